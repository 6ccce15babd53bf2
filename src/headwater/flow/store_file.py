"""Store a file: its bytes under the key that is theirs, and the event about them, which is for others to publish.

Reads   one file or stream; the ledger's claims
Writes  the raw store; the ledger's claims
Key     customer, folders below the one that was named, and name; or the customer's id. See `known_files` for its day.
"""

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, NamedTuple

from headwater import faults
from headwater.domain.event import Event
from headwater.domain.keys import raw_key, shown_path
from headwater.domain.meta import require_meta
from headwater.domain.modality import CONTENT_TYPES, Modality, classify
from headwater.domain.pointer import Pointer
from headwater.errors import Conflict, InvalidRequest
from headwater.flow.known_files import KnownFiles
from headwater.flow.side_car import read_side_car
from headwater.flow.sources import Source, unreadable
from headwater.storage.raw.store import RawStore, digest, read_chunks

_ROWS: Final = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"})
_ENDINGS: Final = " ".join(sorted(CONTENT_TYPES))


class UnsupportedKind(InvalidRequest):
    """A file whose ending says that nobody here can read it; to a program it is an InvalidRequest like others."""

    @property
    def kind(self) -> str:
        return InvalidRequest.__name__


class Stored(NamedTuple):
    event: Event
    was_there: bool


@dataclass(frozen=True, slots=True)
class Putting:
    """What is the same for all files of one put. Without `known`, a file that was touched is another one.

    Of `meta` and `thread`, a file's side-car says better.
    """

    raw: RawStore
    customer: str
    event_id: str | None = None
    at: datetime | None = None
    known: KnownFiles | None = None
    skip_unsupported: bool = False
    meta: Mapping[str, Any] | None = None
    thread: str | None = None


def store_file(putting: Putting, source: Source) -> Stored:
    """Raises UnsupportedKind, Skipped, or another of our errors."""
    # One file system keeps a name as it was typed, another in parts: to a person both are the same name.
    *folders, name = (unicodedata.normalize("NFC", part) for part in _names(source))
    with source.open() as stream:
        kind = _kind_of(name, shown=not source.parts)
        try:
            found = os.fstat(stream.fileno())
            moment = to_millisecond(putting.at or datetime.fromtimestamp(found.st_mtime, UTC))
            event = _with_what_is_known(_event(putting, kind, folders, name, moment), source)
            if putting.known is not None:
                checksum = digest(read_chunks(stream))[0]
                stream.seek(0)
                event = _as_known(putting, putting.known, _with_bytes(event, found.st_size, checksum))
            stored = _store(putting.raw, stream, event)
            if putting.known is not None and stored.was_there:
                _check_same(putting.known, stored.event)
            return stored
        except (OSError, ValueError) as error:
            raise unreadable(source.path, error) from error


def store_stream(putting: Putting, stream: BinaryIO, name: str, at: datetime) -> Stored:
    """`name` says by its ending what the bytes are. They are read once, so what was put before is not looked for."""
    return _store(putting.raw, stream, _event(putting, _kind_of(name, shown=True), (), name, to_millisecond(at)))


def to_millisecond(moment: datetime) -> datetime:
    """What an event carries: a time without a zone is UTC, finer than a millisecond is dropped."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)


def _names(source: Source) -> Sequence[str]:
    """The folders below the one that was named, and the file."""
    below = os.path.normpath("/".join(source.parts)).split("/")
    return below if source.parts and ".." not in below else (source.path.name,)


def _kind_of(name: str, *, shown: bool) -> tuple[Modality, str]:
    if kind := classify(name):
        return kind
    if PurePath(name).suffix.lower() in _ROWS:
        raise UnsupportedKind(
            f"{name} is not a kind of file that is taken. If its rows are messages: put --from {name}"
        )
    which = f" Its ending must be one of {_ENDINGS}." if shown else " Convert it, or leave such out: --skip-unsupported"
    raise UnsupportedKind(f"{name} is not a kind of file that is taken.{which}")


def _event(putting: Putting, kind: tuple[Modality, str], folders: Sequence[str], name: str, moment: datetime) -> Event:
    """Without its bytes yet."""
    modality, content_type = kind
    *folders, name = [putting.event_id + Path(name).suffix] if putting.event_id else [*folders, name]
    key = raw_key(modality, putting.customer, moment, name, folders)
    pointer = Pointer(key, 0, content_type, "")
    known = (putting.meta, putting.thread)
    return Event(putting.event_id or key, modality, putting.customer, pointer, moment, None, *known)


def _with_what_is_known(event: Event, source: Source) -> Event:
    """By its side-car; of a part, what it came in. Nothing lies beside that."""
    meta, thread = ({"part_of": source.part_of}, None) if source.part_of else read_side_car(source)
    if meta is None and thread is None:
        return event
    both = require_meta({**(event.meta or {}), **(meta or {})})
    return replace(event, meta=both, thread=thread or event.thread)


def _with_bytes(event: Event, size: int, checksum: str) -> Event:
    return replace(event, pointer=replace(event.pointer, size=size, checksum=checksum))


def _at_key(event: Event, key: str) -> Event:
    event_id = key if event.event_id == event.pointer.path else event.event_id
    return replace(event, event_id=event_id, pointer=replace(event.pointer, path=key))


def _as_known(putting: Putting, known: KnownFiles, event: Event) -> Event:
    """As it was put before. A time that is told is the caller's word; a file's own time changes when it is copied."""
    first = known.first_key(event.pointer.path, event.pointer.checksum)
    event = event if putting.at else _at_key(event, first)
    if putting.event_id:
        known.check_id(event)
    return event


def _check_same(known: KnownFiles, event: Event) -> None:
    """Bytes that were there were told of before: as far as that is known, in the same words."""
    try:
        known.check_id(event)
    except Conflict as conflict:
        raise Conflict(
            f"{shown_path(event.pointer.path)} is there with other meta or in another thread, and these stay. To say "
            f"more of it: headwater label {event.event_id} KEY=VALUE"
        ) from conflict


def _store(raw: RawStore, stream: BinaryIO, event: Event) -> Stored:
    key = event.pointer.path
    was_there = raw.head(key) is not None
    pointer = raw.put_stream(key, stream, event.pointer.content_type or "")
    faults.point("land.stored")
    return Stored(replace(event, pointer=pointer), was_there)
