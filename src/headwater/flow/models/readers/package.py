"""Office files are ZIP packages of XML: opened with limits, and read by expat as a stream of events.

A document type, which entities and thus bombs need, is refused; so is what is locked, and what would unpack to more
than a document has.
"""

import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final
from xml.parsers import expat

from headwater.errors import DataFault, spelled

MEMBERS_MAX: Final = 20_000
PART_BYTES_MAX: Final = 256 << 20
XML_BYTES_MAX: Final = 512 << 20
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LOCKED: Final = "EncryptedPackage".encode("utf-16-le")
_READ_BYTES: Final = 1 << 16
_HEAD_BYTES: Final = 8_192

Attributes = Mapping[str, str]


@contextmanager
def opened(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """Foreign errors leave as DataFault."""
    _require_zip(file)
    try:
        with zipfile.ZipFile(file) as package:
            _require_bounded(package)
            yield package
    except zipfile.BadZipFile as error:
        raise DataFault("TRUNCATED", f"Its list of parts, which stands at the end, is not there: {error}.") from error
    except expat.ExpatError as error:
        raise DataFault("UNREADABLE", f"A part of it is no XML: {error}.") from error
    except (KeyError, NotImplementedError, OSError, EOFError, ValueError, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
        raise DataFault("UNREADABLE", f"It cannot be unpacked: {error}.") from error
    except RuntimeError as error:
        raise DataFault("ENCRYPTED", f"{error}.") from error


def _require_zip(file: BinaryIO) -> None:
    head = file.read(8)
    if head == _OLE:
        # An old binary file, or a new one behind a password: the name of its only part tells.
        if _LOCKED in file.read(1 << 20) or _LOCKED in _tail(file):
            raise DataFault("ENCRYPTED", "The document asks for a password.")
        raise DataFault("UNSUPPORTED", "It is a binary Office file of before 2007. Save it as .docx, .xlsx or .pptx.")
    if not head.startswith(b"PK\x03\x04"):
        raise DataFault("UNREADABLE", f"The first bytes, {spelled(head)}, are not those of an Office file.")
    file.seek(0)


def _tail(file: BinaryIO) -> bytes:
    file.seek(max(0, file.seek(0, 2) - (1 << 20)))
    return file.read()


def _require_bounded(package: zipfile.ZipFile) -> None:
    """By what its list claims; no part gives more than is claimed there."""
    members = package.infolist()
    if len(members) > MEMBERS_MAX:
        raise DataFault("TOO_LARGE", f"It has {len(members):,} parts; at most {MEMBERS_MAX:,} are looked at.")
    if any(member.flag_bits & 1 for member in members):
        raise DataFault("ENCRYPTED", "Its parts ask for a password.")
    sizes = [member.file_size for member in members if member.filename.endswith((".xml", ".rels"))]
    if sum(sizes) > XML_BYTES_MAX or max(sizes, default=0) > PART_BYTES_MAX:
        raise DataFault("TOO_LARGE", f"It unpacks to {sum(sizes) >> 20:,} MB of XML.")


def read_part(
    package: zipfile.ZipFile,
    name: str,
    begin: Callable[[str, Attributes], None],
    end: Callable[[str], None] = lambda name: None,
    text: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Events of a part, some kilobytes of it at each step. Names come without their namespaces."""
    parser = _parser()
    parser.StartElementHandler = lambda name, given: begin(_local(name), {_key(key): given[key] for key in given})
    parser.EndElementHandler = lambda name: end(_local(name))
    parser.CharacterDataHandler = text
    with package.open(name) as part:
        while data := part.read(_READ_BYTES):
            parser.Parse(data, False)
            yield
        parser.Parse(b"", True)
        yield


def require_no_doctype(package: zipfile.ZipFile) -> None:
    """For a library that reads the parts by itself. A document type stands before all else."""
    for member in package.infolist():
        if member.filename.endswith((".xml", ".rels")):
            with package.open(member) as part:
                _parser().Parse(part.read(_HEAD_BYTES), False)


def _parser() -> Any:
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    return parser


def _refuse_doctype(*_: object) -> None:
    raise DataFault("UNREADABLE", "It holds a document type, which no Office file has: entities are not expanded.")


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _key(name: str) -> str:
    """What names another part is `r:id`: an element may have an `id` of its own beside it."""
    return f"r:{_local(name)}" if name.rpartition("}")[0].endswith("/relationships") else _local(name)


def main_part(package: zipfile.ZipFile, usual: str) -> str:
    """The part that is the document, as the package says it."""
    name = next((target for kind, target in related(package, "").values() if kind == "officeDocument"), usual)
    folder = usual.partition("/")[0]
    if not name.startswith(f"{folder}/") or name not in package.namelist():
        raise DataFault("UNREADABLE", f"It has no {folder} in it: it is another kind of file than its name says.")
    return name


def related(package: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Of each id the kind and the part's name; what lies outside the package is not there."""
    folder, name = posixpath.split(part)
    place = posixpath.join(folder, "_rels", f"{name}.rels")
    found: dict[str, tuple[str, str]] = {}

    def begin(element: str, given: Attributes) -> None:
        if element == "Relationship" and given.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, given.get("Target", "")))
            found[given.get("Id", "")] = given.get("Type", "").rpartition("/")[2], target.lstrip("/")

    if place in package.namelist():
        for _ in read_part(package, place, begin):
            pass
    return found


def is_on(given: Attributes) -> bool:
    """Of a property that stands for itself unless it says otherwise."""
    return not re.fullmatch("0|false|off|none", given.get("val", "1"))
