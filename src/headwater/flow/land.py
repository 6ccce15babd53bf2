"""Land: store what comes in, then say so.

Reads   files, directories, globs, streams, chat text
Writes  the raw store, then the pointer log
Key     the object's path; the same file twice is one object and one event.
Invariant: an object is durable before its event is published. A crash between the two leaves an orphan that
`find_orphans` finds, never an event without bytes; a result is given only once its event is published.
"""

import hashlib
import os
import stat
import uuid
from collections import deque
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from glob import has_magic, iglob
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal

from headwater import faults
from headwater.clock import Clock, utc_now
from headwater.domain.event import Event
from headwater.domain.keys import chat_key, raw_key
from headwater.domain.modality import CONTENT_TYPES, Modality, classify
from headwater.domain.pointer import Pointer
from headwater.errors import HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.storage.pointer_log import PointerLog
from headwater.storage.raw_store import ObjectStat, RawStore

TEXT_BYTES_MAX: Final = 256 << 10  # an event must fit a log message; Kafka's default is 1 MB, JSON may double a text
BATCH_EVENTS: Final = 256
BATCH_SECONDS: Final = 1.0  # about the longest that a file which is stored waits for its event
WRITERS: Final = 8  # storing is mostly waiting for the disk to sync, and a disk syncs several files at once

Status = Literal["stored", "already there", "failed"]


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of one file or text; exactly one of `event` and `error` is there."""

    source: str
    status: Status
    event: Event | None = None
    error: HeadwaterError | None = None


def land_file(
    raw: RawStore,
    log: PointerLog,
    path: Path,
    customer: str,
    *,
    event_id: str | None = None,
    at: datetime | None = None,
) -> Landed:
    """`at` is the file's time of modification unless told, so the same file twice is one event."""
    landed = _store_file(raw, path, customer, event_id, at)
    _publish(log, [landed])
    return landed


def land_stream(
    raw: RawStore,
    log: PointerLog,
    stream: BinaryIO,
    name: str,
    customer: str,
    *,
    at: datetime,
    event_id: str | None = None,
) -> Landed:
    """`name` says by its ending what the bytes are."""
    landed = _store(raw, stream, name, customer, event_id, at)
    _publish(log, [landed])
    return landed


def land_text(log: PointerLog, text: str, customer: str, *, at: datetime, event_id: str | None = None) -> Landed:
    """A chat message travels inline and needs no raw object; without an id it gets a fresh one."""
    event = text_event(text, customer, event_id or str(uuid.uuid4()), at)
    log.publish([event])
    return Landed(event.object_id, "stored", event)


def text_event(text: str, customer: str, event_id: str, at: datetime) -> Event:
    """A message as an event, checked; publish many of them at once where there are many."""
    data = _checked_text(text)
    pointer = Pointer(chat_key(customer, event_id), len(data), "text/plain", hashlib.sha256(data).hexdigest())
    return Event(event_id, Modality.CHAT, customer, pointer, _to_millisecond(at), text)


def land_many(
    raw: RawStore,
    log: PointerLog,
    patterns: Iterable[str | Path],
    customer: str,
    *,
    event_id: str | None = None,
    at: datetime | None = None,
    clock: Clock = utc_now,
) -> Iterator[Landed]:
    """One result for each file, in order; events are published in batches, and no result comes before its event."""
    paths = _only_one(patterns) if event_id else expand(patterns)
    batch = _Batch(log, clock)
    with ThreadPoolExecutor(WRITERS, "land") as pool:
        try:
            for path in paths:
                batch.make_room(path.name)
                batch.storing.append((path.name, pool.submit(_attempt, raw, path, customer, event_id, at)))
                if batch.is_due():
                    yield from batch.publish()
            batch.settle_all()
            yield from batch.publish()
        finally:
            # The caller stopped listening, or was interrupted: what is stored is still announced.
            batch.settle_all()
            batch.publish()


def expand(patterns: Iterable[str | Path]) -> Iterator[Path]:
    """Files as they are, directories recursively without what is hidden, globs; sorted, each path once.

    What matches nothing is given back as it is, for its result to say so.
    """
    seen: set[str] = set()
    for pattern in patterns:
        for path in _matches(str(pattern)):
            if (place := os.path.abspath(path)) not in seen:
                seen.add(place)
                yield Path(path)


def find_orphans(raw: RawStore, known: Container[str], *, stored_before: datetime) -> Iterator[ObjectStat]:
    """Objects that no event names. Younger ones are passed over: their event may still be on its way."""
    return (found for found in raw.list() if found.modified_at < stored_before and found.path not in known)


@dataclass(slots=True)
class _Batch:
    """Files on their way, in order: first being stored, then waiting to be announced together."""

    log: PointerLog
    clock: Clock
    storing: deque[tuple[str, Future[Landed]]] = field(default_factory=deque)
    waiting: list[Landed] = field(default_factory=list)
    since: datetime | None = None

    def make_room(self, name: str) -> None:
        """Of two files with one name the first is to win, so the second waits until it is stored."""
        while self.storing and (
            len(self.storing) >= WRITERS or self.storing[0][1].done() or any(name == other for other, _ in self.storing)
        ):
            self._settle()

    def settle_all(self) -> None:
        while self.storing:
            self._settle()

    def _settle(self) -> None:
        _, landed = self.storing.popleft()
        self.waiting.append(landed.result())
        self.since = self.since or self.clock()

    def is_due(self) -> bool:
        waited = self.clock() - self.since if self.since else timedelta()
        return len(self.waiting) >= BATCH_EVENTS or waited >= timedelta(seconds=BATCH_SECONDS)

    def publish(self) -> list[Landed]:
        """The results, which from now on may be told; a failure to publish is the failure of each."""
        results, self.waiting, self.since = self.waiting, [], None
        try:
            _publish(self.log, results)
        except HeadwaterError as error:
            return [_failed(landed.source, landed.error or error) for landed in results]
        return results


def _publish(log: PointerLog, results: Iterable[Landed]) -> None:
    log.publish([landed.event for landed in results if landed.event])


def _attempt(raw: RawStore, path: Path, customer: str, event_id: str | None, at: datetime | None) -> Landed:
    try:
        return _store_file(raw, path, customer, event_id, at)
    except HeadwaterError as error:
        return _failed(str(path), error)


def _failed(source: str, error: HeadwaterError) -> Landed:
    return Landed(source, "failed", error=error)


def _store_file(raw: RawStore, path: Path, customer: str, event_id: str | None, at: datetime | None) -> Landed:
    try:
        # Non-blocking, so that a pipe lying among the files does not stop everything.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise InvalidRequest(f"{path} is not a regular file. Copy its content to a file and put that.")
            moment = at or datetime.fromtimestamp(found.st_mtime, UTC)
            landed = _store(raw, stream, path.name, customer, event_id, moment)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return replace(landed, source=str(path))


def _unreadable(path: Path, error: OSError | ValueError) -> HeadwaterError:
    """The one place where a source file's errors become ours."""
    if isinstance(error, FileNotFoundError):
        what = "matches no file" if has_magic(str(path)) else "does not exist"
        return NotFound(f"{path} {what}. Check the name and put it again.")
    if isinstance(error, IsADirectoryError | PermissionError | ValueError):
        return InvalidRequest(f"{str(path)!r} cannot be read: {error}. Check the name and its permissions.")
    return Unavailable(f"{path} cannot be read: {error}. Check its disk and put it again.")


def _store(raw: RawStore, stream: BinaryIO, name: str, customer: str, event_id: str | None, at: datetime) -> Landed:
    kind = classify(name)
    if kind is None:
        raise InvalidRequest(f"{name} is not a kind of file that is taken. Its ending must be one of {_ENDINGS}.")
    modality, content_type = kind
    moment = _to_millisecond(at)
    key = raw_key(modality, customer, moment, event_id + Path(name).suffix if event_id else name)
    known = raw.head(key) is not None
    pointer = raw.put_stream(key, stream, content_type)
    faults.point("land.stored")
    event = Event(event_id or key, modality, customer, pointer, moment)
    return Landed(name, "already there" if known else "stored", event)


_ENDINGS: Final = " ".join(sorted(CONTENT_TYPES))


def _to_millisecond(moment: datetime) -> datetime:
    """What an event carries: a time without a zone is UTC, finer than a millisecond is dropped."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)


def _checked_text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"The text is not valid Unicode: {error.reason}. Send it as UTF-8.") from error
    if not data.strip():
        raise InvalidRequest("The text is empty. Say something, or put a file.")
    if len(data) > TEXT_BYTES_MAX:
        raise InvalidRequest(
            f"The text has {len(data)} bytes; a message has at most {TEXT_BYTES_MAX}. Put it as a PDF."
        )
    return data


def _only_one(patterns: Iterable[str | Path]) -> list[Path]:
    paths = list(islice(expand(patterns), 2))
    if len(paths) > 1:
        raise InvalidRequest("--id names one file, but several were given. Put them one by one, or leave --id out.")
    return paths


def _matches(pattern: str) -> Iterable[str]:
    if os.path.isdir(pattern):
        return _walk(pattern)
    if os.path.lexists(pattern) or not has_magic(pattern):
        return [pattern]
    return _globbed(pattern)


def _globbed(pattern: str) -> list[str]:
    """A glob skips what is hidden by itself; a directory that it names is walked."""
    matches = sorted(iglob(pattern, recursive=True))
    files = [file for match in matches for file in (_walk(match) if os.path.isdir(match) else [match])]
    return files or [pattern]


def _walk(directory: str) -> Iterator[str]:
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(files) if not name.startswith("."))
