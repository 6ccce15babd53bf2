"""A backup's file: JSON lines that any program can read; its last line says how many there are and their SHA-256.

`{"headwater_backup": 2, "made_at", "lake", "tag", "serves_until"}`, then `["table", [name, metadata file, document]]`,
then the ledger's rows, each with the name of its table, then `{"lines", "sha256"}`. Version 1 had no documents. Written
aside and renamed, so a file that is there is whole.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from headwater.errors import Conflict, DataFault, InvalidRequest, NotFound, Unavailable
from headwater.storage.io.whole_file import removed_where_it_fails, sync_directory
from headwater.storage.tables.state import TableState

VERSION: Final = 2
READABLE: Final = (1, VERSION)
TABLE: Final = "table"
Line = tuple[str, tuple[Any, ...]]


def check_new(file: Path) -> None:
    """Conflict where the file is there already, NotFound where it has no directory."""
    if file.exists():
        raise Conflict(f"{file} is there already. A backup replaces nothing; name another file.")
    if not file.absolute().parent.is_dir():
        raise NotFound(f"There is no directory {file.absolute().parent}. Make it, or name another file.")


def write_backup(file: Path, head: dict[str, Any], lines: Iterable[Line]) -> int:
    """How many lines; Conflict where the file is there already."""
    check_new(file)
    try:
        return _write(file, head, lines)
    except OSError as error:
        raise Unavailable(f"{file} cannot be written: {error.strerror}. Make room, then try again.") from error


def _write(file: Path, head: dict[str, Any], lines: Iterable[Line]) -> int:
    temporary = file.with_name(f".{file.name}.tmp")
    hashed, count = hashlib.sha256(), 0
    with removed_where_it_fails(temporary):
        # The ledger's journal is nobody else's business.
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as writing:
            for line in _lines(head, lines):
                writing.write(line)
                hashed.update(line)
                count += 1
            writing.write(_encoded({"lines": count, "sha256": hashed.hexdigest()}))
            writing.flush()
            os.fsync(writing.fileno())
        temporary.rename(file)
    sync_directory(file.absolute().parent)
    return count - 1


def check_backup(file: Path) -> dict[str, Any]:
    """The head of a file that is whole; DataFault where it is cut or changed."""
    hashed, count, last = hashlib.sha256(), 0, b""
    head: dict[str, Any] | None = None
    for line in _raw_lines(file):
        if last:
            hashed.update(last)
            count += 1
            head = head or _head(file, last)
        last = line
    if head is None or last != _encoded({"lines": count, "sha256": hashed.hexdigest()}):
        raise DataFault("CORRUPT", f"{file} is not a whole backup: its end is missing or its lines were changed.")
    return head


def read_backup(file: Path) -> Iterator[Line]:
    """The lines between head and end, of a file that was checked."""
    for line in _raw_lines(file):
        decoded = json.loads(line)
        if isinstance(decoded, list):
            yield decoded[0], tuple(decoded[1])


def _lines(head: dict[str, Any], lines: Iterable[Line]) -> Iterator[bytes]:
    yield _encoded({"headwater_backup": VERSION, **head})
    for name, row in lines:
        yield _encoded([name, row])


def read_states(file: Path) -> list[TableState]:
    """What the tables were; they stand before all else."""
    tables = takewhile(lambda line: line[0] == TABLE, read_backup(file))
    return [TableState(row[0], row[1], row[2] if len(row) > 2 else None) for _, row in tables]


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _raw_lines(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as reading:
            yield from reading
    except FileNotFoundError:
        raise NotFound(f"There is no file {file}.") from None


def _head(file: Path, line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
        version = head["headwater_backup"]
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest(f"{file} is not a backup that headwater backup wrote.") from None
    if version not in READABLE:
        raise InvalidRequest(f"{file} is a backup of version {version}; this Headwater reads up to version {VERSION}.")
    return dict(head)
