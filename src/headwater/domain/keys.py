"""Raw keys are built here and nowhere else, from parts that have been checked.

A part is percent-encoded where it holds anything but letters, digits and `-_.~@+=`, so a key is plain ASCII on every
store. What cannot be encoded safely is refused: empty, `.`, `..`, control characters, over-long, not NFC (two
spellings that look alike would be two customers).

A customer can be read back from a key, whatever its letters; a name that would be too long for a file system is cut,
and keeps a hash of all of it. Whole keys stay well below S3's 1,024 bytes, so that a prefix has room.
"""

import unicodedata
from collections.abc import Sequence
from datetime import date, datetime
from hashlib import sha256
from pathlib import PurePath
from typing import Final
from urllib.parse import quote, unquote

from headwater.domain.modality import Modality
from headwater.errors import InvalidRequest

PART_BYTES_MAX: Final = 240  # after encoding; every file system takes 255
NAME_BYTES_MAX: Final = 200  # of a name or folder; those that lakes have from before are not longer
NAME_LETTERS_MAX: Final = 255  # as a person wrote it; no file system has longer ones
FOLDERS_BYTES_MAX: Final = 400
_ENDING_BYTES_MAX: Final = 20


def encode_part(part: str, what: str) -> str:
    """One path part, safe on every store; raises InvalidRequest where that cannot be."""
    encoded = _encoded(part, what)
    if len(encoded) > PART_BYTES_MAX:
        raise InvalidRequest(
            f"{what} {part[:40]!r}… is too long: of letters outside ASCII it takes some {PART_BYTES_MAX // 9}, "
            f"of others {PART_BYTES_MAX}. Use a shorter one."
        )
    return encoded


def encode_name(name: str, what: str) -> str:
    """A name of a file, a folder or a message: one that is too long is cut, and told from others by a hash of all."""
    encoded = _encoded(name, what)
    if len(name) > NAME_LETTERS_MAX:
        raise InvalidRequest(
            f"{what} has {len(name):,} letters; at most {NAME_LETTERS_MAX} are taken. Use a shorter one."
        )
    if len(encoded) <= NAME_BYTES_MAX:
        return encoded
    ending = _encoded(PurePath(name).suffix or "-", what) if "." in name else ""
    ending = ending if 1 < len(ending) <= _ENDING_BYTES_MAX else ""
    return _cut(name, NAME_BYTES_MAX - len(ending) - 17) + _mark(name) + ending


def _encoded(part: str, what: str) -> str:
    if not part or part in {".", ".."}:
        raise InvalidRequest(f"{what} {part!r} cannot name anything. Use letters, digits, '-' or '_'.")
    if any(unicodedata.category(char) in {"Cc", "Cs", "Co", "Cn"} for char in part):
        raise InvalidRequest(f"{what} {part!r} holds control characters. Use letters, digits, '-' or '_'.")
    if unicodedata.normalize("NFC", part) != part:
        raise InvalidRequest(f"{what} {part!r} is not in Unicode NFC form; normalise it first.")
    if "/" in part or "\\" in part:
        raise InvalidRequest(f"{what} {part!r} holds a path separator. Use a plain name.")
    return quote(part, safe="-_.~@+=")


def _cut(name: str, bytes_max: int) -> str:
    """As many whole letters as fit."""
    kept = ""
    for letter in name:
        if len(kept) + len(more := quote(letter, safe="-_.~@+=")) > bytes_max:
            break
        kept += more
    return kept


def _mark(name: str) -> str:
    return f"~{sha256(name.encode()).hexdigest()[:16]}"


def raw_key(modality: Modality, customer: str, occurred_at: datetime, name: str, folders: Sequence[str] = ()) -> str:
    """`audio/<customer>/<date>/<name>`, with the folders that the file lay in before its name."""
    day = occurred_at.date().isoformat()
    parts = [*_encode_folders(folders), encode_name(name, "name")]
    return f"{modality.prefix}/{encode_part(customer, 'customer')}/{day}/{'/'.join(parts)}"


def _encode_folders(folders: Sequence[str]) -> list[str]:
    """Where they are too deep for a key, the last of them and a hash of all."""
    encoded = [encode_name(folder, "folder") for folder in folders]
    if len("/".join(encoded)) <= FOLDERS_BYTES_MAX:
        return encoded
    return [_cut(folders[-1], NAME_BYTES_MAX // 2) + _mark("/".join(folders))]


def is_raw_key(key: str) -> bool:
    """Whether it is of the form that `raw_key` gives."""
    parts = key.split("/", 3)
    try:
        return len(parts) == 4 and date.fromisoformat(parts[2]).isoformat() == parts[2]
    except ValueError:
        return False


def without_day(key: str) -> str:
    """What two puts of one file have in common, whenever it was last written."""
    prefix, customer, _, name = key.split("/", 3)
    return f"{prefix}/{customer}/{name}"


def on_day(key: str, day: date) -> str:
    prefix, customer, _, name = key.split("/", 3)
    return f"{prefix}/{customer}/{day.isoformat()}/{name}"


def shown_path(path: str) -> str:
    """A key as a person wrote its names."""
    return unquote(path)


def event_key(event_id: str, customer: str) -> str:
    """What makes an event: an id belongs to its customer. No name holds the zero between them."""
    return f"{event_id}\0{customer}"


def chat_key(customer: str, event_id: str) -> str:
    """A chat message has no bytes of its own, but it is an object with a name like any other."""
    return f"chat/{encode_part(customer, 'customer')}/{encode_name(event_id, 'id')}"
