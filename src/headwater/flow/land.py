"""Land: store what comes in, then say so.

Reads   files, directories, globs, streams, chat text
Writes  the raw store, then the pointer log
Key     the object's path; the same file twice is one object and one event, also when it was touched in between.
Invariant: an object is durable before its event is published. A crash between the two leaves an orphan that
`find_orphans` finds, never an event without bytes; a result is given only once its event is published.
"""

import hashlib
import uuid
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from headwater.clock import Clock, utc_now
from headwater.domain.event import EVENT_BYTES_MAX, Event
from headwater.domain.keys import chat_key
from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.flow.known_files import KnownFiles
from headwater.flow.lake_places import LakePlaces
from headwater.flow.side_car import is_side_car
from headwater.flow.sources import Skipped, Source, expand
from headwater.flow.store_file import Putting, Stored, UnsupportedKind, store_file, store_stream, to_millisecond
from headwater.flow.unpack.unpacker import Unpacker
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.raw.store import ObjectStat, RawStore

TEXT_BYTES_MAX: Final = 256 << 10  # an event must fit a log message; Kafka's default is 1 MB, JSON may double a text
BATCH_EVENTS: Final = 256
BATCH_SECONDS: Final = 1.0  # about the longest that a file which is stored waits for its event
WRITERS: Final = 8  # storing is mostly waiting for the disk to sync, and a disk syncs several files at once

Status = Literal["stored", "already there", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of one file or text: `event` is there if it arrived, `error` if it failed, `reason` if skipped.

    `unsupported` is the ending of a file whose kind is not taken, whether that is a failure or was to be skipped.
    """

    source: str
    status: Status
    event: Event | None = None
    error: HeadwaterError | None = None
    reason: str | None = None
    unsupported: str | None = None


def land_file(
    raw: RawStore,
    log: PointerLog,
    path: Path,
    customer: str,
    *,
    event_id: str | None = None,
    at: datetime | None = None,
    known: KnownFiles | None = None,
) -> Landed:
    """`at` is the file's time of modification unless told. `known` is what makes a file that was touched the same."""
    landed = _landed(str(path), store_file(Putting(raw, customer, event_id, at, known), Source(str(path))))
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
    landed = _landed(name, store_stream(Putting(raw, customer, event_id), stream, name, at))
    _publish(log, [landed])
    return landed


def land_text(
    log: PointerLog,
    text: str,
    customer: str,
    *,
    at: datetime,
    event_id: str | None = None,
    known: KnownFiles | None = None,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
) -> Landed:
    """A chat message travels inline and needs no raw object; without an id it gets a fresh one."""
    event = text_event(text, customer, event_id or str(uuid.uuid4()), at, meta, thread)
    if event_id and known:
        known.check_id(event)
    log.publish([event])
    if event_id and known:
        known.note_id(event)
    return Landed(event.object_id, "stored", event)


def text_event(
    text: str,
    customer: str,
    event_id: str,
    at: datetime,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
) -> Event:
    """A message as an event, checked; publish many of them at once where there are many."""
    data = _checked_text(text)
    pointer = Pointer(chat_key(customer, event_id), len(data), "text/plain", hashlib.sha256(data).hexdigest())
    event = Event(event_id, Modality.CHAT, customer, pointer, to_millisecond(at), text, meta, thread)
    # A letter may take six in JSON; a short text fits whatever it holds.
    if len(data) > EVENT_BYTES_MAX // 8 and len(event.to_json().encode()) > EVENT_BYTES_MAX:
        raise InvalidRequest("The text holds too many control characters to travel in a log. Put it as a PDF.")
    return event


def land_many(
    raw: RawStore,
    log: PointerLog,
    patterns: Iterable[str | Path],
    customer: str,
    *,
    event_id: str | None = None,
    at: datetime | None = None,
    follow_links: bool = False,
    skip_unsupported: bool = False,
    known: KnownFiles | None = None,
    places: LakePlaces | None = None,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
    unpacker: Unpacker | None = None,
    clock: Clock = utc_now,
) -> Iterator[Landed]:
    """One result for each file, in order; events are published in batches, and no result comes before its event.

    Links in a directory, or that a glob finds, are skipped unless `follow_links`; one that is named is followed.
    A file whose kind is not taken is a failure, or with `skip_unsupported` skipped. With an `unpacker` archives are
    put as the files in them, and the attachments of e-mails beside those.
    """
    sources = expand(patterns, follow_links=follow_links, places=places)
    putting = Putting(raw, customer, event_id, at, known, skip_unsupported, meta, thread)
    return land_sources(log, sources, putting, clock, unpacker)


def land_sources(
    log: PointerLog, found: Iterable[Source], putting: Putting, clock: Clock, unpacker: Unpacker | None = None
) -> Iterator[Landed]:
    """See `land_many`."""
    event_id, of_part = putting.event_id, replace(putting, event_id=None)
    sources: Iterable[Source] = (source for source in found if not is_side_car(source))
    batch = _Batch(log, clock, putting.known if event_id else None)
    with ExitStack() as unpacked, ThreadPoolExecutor(WRITERS, "land") as pool:
        try:
            sources = _only_one(sources) if event_id else sources
            if unpacker is not None:
                sources = unpacker.unpacked(sources, unpacked, alone=event_id is not None)
            for source in sources:
                name = "/".join(source.parts) or source.path.name
                batch.make_room(name)
                batch.storing.append((name, pool.submit(_attempt, of_part if source.part_of else putting, source)))
                if batch.is_due():
                    yield from batch.publish()
            batch.settle_all()
            yield from batch.publish()
        finally:
            # The caller stopped listening, or was interrupted: what is stored is still announced.
            batch.settle_all()
            batch.publish()


def land_lines(
    log: PointerLog,
    lines: Iterable[str | bytes | None],
    customer: str,
    *,
    event_id: str | None = None,
    id_prefix: str | None = None,
    at: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
    clock: Clock = utc_now,
) -> Iterator[Landed]:
    """One message a line, one result for each that is not blank, as they come; a bad one costs only itself.

    Events are published in batches; None among the lines says that no more has come yet, and what waits goes out. The
    same line at the same place of the input is the same message, so the same input again adds nothing. `event_id` is
    for a single line.
    """
    batch, number = _Batch(log, clock), 0
    try:
        for line in lines:
            number += line is not None
            if line is not None and (line.strip() or _is_too_long(line)):
                landed = _attempt_line(line, number, customer, event_id, id_prefix, at or clock())
                batch.add(_with_known(landed, meta, thread))
            if line is None or batch.is_due():
                yield from batch.publish()
        yield from batch.publish()
    finally:
        batch.publish()  # interrupted: what was read is not lost


def require_landed(results: list[Landed]) -> list[Landed]:
    """The same results; or the first error among them, with a note of how many there are."""
    errors = [landed.error for landed in results if landed.error]
    if not errors:
        return results
    if len(errors) > 1:
        errors[0].add_note(f"{len(errors):,} of {len(results):,} failed; collect=True returns every result.")
    raise errors[0]


def find_orphans(raw: RawStore, known: Container[str], *, stored_before: datetime) -> Iterator[ObjectStat]:
    """Objects that no event names. Younger ones are passed over: their event may still be on its way."""
    return (found for found in raw.list() if found.modified_at < stored_before and found.path not in known)


@dataclass(slots=True)
class _Batch:
    """Files on their way, in order: first being stored, then waiting to be announced together."""

    log: PointerLog
    clock: Clock
    ids: KnownFiles | None = None  # that are told of each id that went out
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
        self.add(landed.result())

    def add(self, landed: Landed) -> None:
        self.waiting.append(landed)
        self.since = self.since or self.clock()

    def is_due(self) -> bool:
        waited = self.clock() - self.since if self.since else timedelta()
        return len(self.waiting) >= BATCH_EVENTS or waited >= timedelta(seconds=BATCH_SECONDS)

    def publish(self) -> list[Landed]:
        """The results, which from now on may be told; a failure to publish is the failure of each."""
        results, self.waiting, self.since = self.waiting, [], None
        try:
            _publish(self.log, results)
            for landed in results:
                if self.ids is not None and landed.event is not None:
                    self.ids.note_id(landed.event)
        except InvalidRequest:  # of one of them; the others go on, and an event that went out twice is one
            return [self._publish_alone(landed) for landed in results]
        except HeadwaterError as error:
            return [_failed(landed.source, error) if landed.event else landed for landed in results]
        return results

    def _publish_alone(self, landed: Landed) -> Landed:
        try:
            _publish(self.log, [landed])
        except HeadwaterError as error:
            return _failed(landed.source, error)
        return landed


def _publish(log: PointerLog, results: Iterable[Landed]) -> None:
    log.publish([landed.event for landed in results if landed.event])


def _attempt(putting: Putting, source: Source) -> Landed:
    try:
        return _landed(str(source.path), store_file(putting, source))
    except Skipped as reason:
        return Landed(str(source.path), "skipped", reason=str(reason))
    except UnsupportedKind as error:
        ending = source.path.suffix.lower()
        if putting.skip_unsupported:
            return Landed(str(source.path), "skipped", reason=str(error), unsupported=ending)
        return replace(_failed(str(source.path), error), unsupported=ending)
    except HeadwaterError as error:
        return _failed(str(source.path), error)


def _attempt_line(
    line: str | bytes, number: int, customer: str, event_id: str | None, id_prefix: str | None, at: datetime
) -> Landed:
    source = f"-:{number}"
    if _is_too_long(line):  # and perhaps not all of it, so it is judged no further
        long = f"Line {number} has more than {TEXT_BYTES_MAX} bytes, the most that a message has. Put it as a PDF."
        return _failed(source, InvalidRequest(long))
    try:
        text = (line if isinstance(line, str) else line.decode()).rstrip("\r\n")
        event_id = event_id or _line_id(text, number, customer, id_prefix)
        return Landed(source, "stored", text_event(text, customer, event_id, at))
    except UnicodeDecodeError:
        return _failed(source, InvalidRequest(f"Line {number} is not UTF-8. Convert the input, and put it again."))
    except HeadwaterError as error:
        return _failed(source, error)


def _with_known(landed: Landed, meta: Mapping[str, Any] | None, thread: str | None) -> Landed:
    if landed.event is None or (meta is None and thread is None):
        return landed
    return replace(landed, event=replace(landed.event, meta=meta, thread=thread))


def _is_too_long(line: str | bytes) -> bool:
    """A text of fewer letters may have more bytes, and is refused as any other is."""
    return len(line) > TEXT_BYTES_MAX + 2  # of its end


def _line_id(text: str, number: int, customer: str, prefix: str | None) -> str:
    if prefix is not None:
        return f"{prefix}-{number}"
    digest = hashlib.sha256(f"{customer}\0{text}".encode(errors="surrogatepass")).hexdigest()
    return f"line-{number}-{digest[:24]}"


def _landed(source: str, stored: Stored) -> Landed:
    return Landed(source, "already there" if stored.was_there else "stored", stored.event)


def _failed(source: str, error: HeadwaterError) -> Landed:
    return Landed(source, "failed", error=error)


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


def _only_one(sources: Iterable[Source]) -> list[Source]:
    found = list(islice(sources, 2))
    if len(found) > 1:
        raise InvalidRequest("--id names one file, but several were given. Put them one by one, or leave --id out.")
    return found
