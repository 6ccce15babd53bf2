"""The child that opens containers: what is in them is written to numbered files, and their names are only told.

Bounded in memory by the kernel, in bytes, files and depth by what it is told, in time by its parent. Nothing is written
but the numbered files, wherever a name inside would lead.
"""

import lzma
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Final

from headwater.errors import DataFault, HeadwaterError, describe
from headwater.flow.child.bounds import bound_memory, open_pipes
from headwater.flow.child.frames import packed, read_message

ARCHIVE, MAIL = ".zip", ".eml"
DEPTH_MAX: Final = 2  # an e-mail in an archive, an archive in an archive
FILES_MAX: Final = 10_000
_PARTS_MAX: Final = 32  # folders in folders
_READ_BYTES: Final = 1 << 20
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
Names = tuple[str, ...]
Told = dict[str, Any]


class Unpacking:
    """Of one container: how much it may still write."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._left = bytes_max
        self._files = 0

    def all_in(self, file: BinaryIO, kind: str, names: Names = (), depth: int = 1) -> Iterator[Told]:
        try:
            yield from self._archive(file, names, depth) if kind == ARCHIVE else self._mail(file, names, depth)
        except DataFault as fault:
            yield _failed(names, fault.detail)
        except (*_DAMAGED, OSError, ValueError) as error:
            yield _failed(names, f"It cannot be unpacked: {describe(error)}")

    def _archive(self, file: BinaryIO, names: Names, depth: int) -> Iterator[Told]:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            self._require_files(len(members))
            for member in members:
                path = _safe_names(member.filename)
                if path is None:
                    yield _failed(names, f"Of its {member.filename[-80:]!r} the name leads out of it, or nowhere.")
                elif not _is_hidden(path):
                    yield from self._member(archive, member, (*names, *path), depth)

    def _member(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, names: Names, depth: int) -> Iterator[Told]:
        if stat.S_ISLNK(member.external_attr >> 16):
            yield _failed(names, "It is a link. Put what it leads to.")
        elif member.flag_bits & 1:
            yield _failed(names, "It asks for a password. Unlock the archive.")
        elif member.file_size > self._left:
            yield _failed(names, f"It claims {member.file_size:,} bytes, more than may be unpacked. Put it by itself.")
        else:
            try:
                with archive.open(member) as content:
                    path = self._write(_blocks(content))
            except (*_DAMAGED, RuntimeError) as error:
                yield _failed(names, f"It cannot be unpacked: {describe(error)}")
                return
            yield from self._found(path, names, depth)

    def _mail(self, file: BinaryIO, names: Names, depth: int) -> Iterator[Told]:
        from headwater.flow.models.readers.mail import attached, parse_mail

        parts = list(attached(parse_mail(file)))
        self._require_files(len(parts))
        seen: set[str] = set()
        for number, (name, content) in enumerate(parts, 1):
            plain = PurePosixPath(name.replace("\\", "/")).name
            plain = plain if plain not in seen and plain not in {"", ".", ".."} else f"{number} {plain}"
            seen.add(plain)
            yield from self._found(self._write(iter([content])), (*names, plain), depth, of_mail=True)

    def _found(self, path: Path, names: Names, depth: int, *, of_mail: bool = False) -> Iterator[Told]:
        """A container in it is opened in its turn; an e-mail is an object beside that."""
        kind = PurePosixPath(names[-1]).suffix.lower()
        if kind != ARCHIVE:
            yield {"names": names, "file": path.name, "of_mail": of_mail}
        if kind not in {ARCHIVE, MAIL}:
            return
        if depth < DEPTH_MAX:
            with path.open("rb") as file:
                inner = names if kind == ARCHIVE else (*names[:-1], parts_folder(names[-1]))
                yield from self.all_in(file, kind, inner, depth + 1)
        elif kind == ARCHIVE:
            yield _failed(names, f"It lies more than {DEPTH_MAX} archives deep. Put it by itself.")

    def _write(self, chunks: Iterator[bytes]) -> Path:
        self._files += 1
        path = self._folder / f"{self._files}"
        with path.open("xb") as file:
            for chunk in chunks:
                self._left -= len(chunk)
                if self._left < 0:
                    raise DataFault("TOO_LARGE", "All of it together is more than may be unpacked. Put it in parts.")
                file.write(chunk)
        return path

    def _require_files(self, more: int) -> None:
        if self._files + more > FILES_MAX:
            raise DataFault("TOO_LARGE", f"It holds more than {FILES_MAX:,} files. Put it in parts.")


def parts_folder(name: str) -> str:
    """Where an e-mail's attachments go: a directory cannot have the name of a file that lies there."""
    return f"{name}.parts"


def _blocks(content: IO[bytes]) -> Iterator[bytes]:
    try:
        yield from iter(lambda: content.read(_READ_BYTES), b"")
    except OSError as error:  # so bzip2 says that its data are damaged; a full disk is who writes
        raise zipfile.BadZipFile(describe(error)) from error


def _safe_names(path: str) -> Names | None:
    names = tuple(path.replace("\\", "/").split("/"))
    bad = any(name in {"", ".", ".."} or not name.isprintable() or len(name.encode()) > 255 for name in names)
    return None if bad or ":" in names[0] or len(names) > _PARTS_MAX else names


def _is_hidden(names: Names) -> bool:
    """As in a directory; and what macOS keeps beside files."""
    return any(name.startswith(".") or name == "__MACOSX" for name in names)


def _failed(names: Names, reason: str) -> Told:
    return {"names": names, "failed": reason.encode(errors="replace").decode()}


def main() -> None:
    jobs, answers = open_pipes()
    config: Mapping[str, Any] = read_message(jobs)
    bound_memory(config["child_mb"])
    while (job := read_message(jobs)) is not None:
        try:
            with open(job["file"], "rb") as file:
                unpacking = Unpacking(Path(job["folder"]), config["bytes_max"])
                for told in unpacking.all_in(file, job["kind"]):
                    answers.write(packed(told))
        except (HeadwaterError, OSError, MemoryError, RecursionError) as error:
            answers.write(packed(_failed((), describe(error))))
        answers.write(packed({"done": True}))


if __name__ == "__main__":
    main()
