"""The pointer log in a directory: one partition of immutable JSON-lines segments, `{base}-{count}.jsonl`.

A line is `{"offset", "published_at", "event"}`. Writers, in any number of processes, append under a file lock: a hidden
temporary file, synced, renamed, the directory synced. A writer that dies leaves nothing that a reader sees.

`.identity`  which log this is, durable, made before its first line; a copy of the log has the same
`.end`       the end of the log at the last expiry, durable: offsets below it are never given again, were all gone
`.next`      the newest segments and the first, a hint that saves listing the directory; believed only in the directory
             and boot that it was written in
Looking for what is new, and publishing, cost the same however many segments there are.
"""

import fcntl
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from headwater.clock import Clock, parse_time, to_text, utc_now
from headwater.domain.event import Event, by_producer
from headwater.domain.groups import grouped
from headwater.errors import DataFault, InvalidRequest, NotFound, Unavailable
from headwater.storage.log.locked_directory import LockedDirectory, is_read_only, locked
from headwater.storage.log.pointer_log import ADOPTED, Expired, LogLine
from headwater.storage.log.segment_merge import SEGMENT_BYTES, merge_small, newest_line_at
from headwater.storage.log.segments import (
    Segment,
    SizedSegment,
    Tail,
    format_event,
    format_lines,
    newest,
    parse_segments,
)

PARTITION: Final = 0
_IDENTITY, _END, _NEXT = ".identity", ".end", ".next"
_LOOKS: Final = 3  # at a segment that others merge or expire meanwhile


class DirectoryLog:
    """A `PointerLog` with the single partition 0."""

    def __init__(self, directory: Path, retention_hours: int, clock: Clock = utc_now, producer: str = "") -> None:
        self.directory = directory.absolute()
        self._retention = timedelta(hours=retention_hours)
        self._clock = clock
        self._producer = producer

    def publish(self, events: Sequence[Event]) -> None:
        try:
            self._append([format_event(event) for event in by_producer(events, self._producer)])
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"An event holds text that is not valid Unicode: {error.reason}.") from error

    def publish_raw(self, values: Sequence[str]) -> None:
        """What a foreign producer might send: lines that need not be events. For tests; the port has no such door."""
        self._append([f'"raw":{json.dumps(value)}'.encode() for value in values])

    def begin(self) -> dict[int, int]:
        with self._reading() as (directory, tail):
            if tail.first is not None and directory.stat(tail.first.name) is None:
                return {PARTITION: next(iter(_list(directory)), Segment(tail.end, 0)).base}
            return {PARTITION: tail.first.base if tail.first else tail.end}

    def end(self) -> dict[int, int]:
        with self._reading() as (_, tail):
            return {PARTITION: tail.end}

    def identity(self) -> str:
        with self._reading() as (directory, _):
            return (directory.read(_IDENTITY) or b"").decode()

    def fingerprint(self, partition: int, offset: int) -> str | None:
        for segment, data in self.segments(offset) if partition == PARTITION else ():
            return sha256(data.partition(b"\n")[0]).hexdigest() if data and segment.base == offset else None
        return None

    def segments(self, offset: int) -> Iterator[tuple[Segment, bytes]]:
        """Segments from an offset on, to the newest there is now, the first one cut; one that is gone is empty."""
        reached, end, looks = offset, None, 0
        while looks < _LOOKS and (end is None or reached < end):
            with self._reading() as (directory, tail):
                known = tail.since(reached) if looks == 0 else None
                listed = known if known is not None else _list(directory)
            end = tail.end if end is None else end
            # Before the first of all it has expired, which is another loss and told as one.
            reached, looks = max(reached, listed[0].base) if listed else end, looks + 1
            for segment, data in self._read_on(listed, reached, end):
                yield segment, data
                reached, looks = segment.end, 0

    def read(self, partition: int, offset: int, limit: int) -> list[LogLine]:
        return list(islice(self._lines(offset), limit)) if partition == PARTITION and limit > 0 else []

    def expire(self, now: datetime, consumed: Mapping[int, int], *, force: bool = False) -> Expired:
        with self._locked(fcntl.LOCK_EX) as directory:
            tail, listed = _settle(directory), _list(directory)
            # Oldest first and without a gap, so that what remains is dense.
            due = list(takewhile(lambda each: _published_at(directory, each) <= now - self._retention, listed))
            removed = [segment for segment in due if force or segment.end <= consumed.get(PARTITION, 0)]
            if removed:
                directory.write_durably(_END, b"%d" % tail.end, point="log.written")
                kept = listed[len(removed) :]
                _remove_others(directory, kept)
                _note(directory, _tail_of(directory, kept, tail.end))
        counts = sum(segment.count for segment in removed), sum(segment.count for segment in due)
        return Expired(removed_events=counts[0], overdue_events=counts[1] - counts[0])

    def _append(self, bodies: Sequence[bytes]) -> None:
        if not bodies:
            return
        with self._locked(fcntl.LOCK_EX) as directory:
            tail, published_at = _settle(directory), to_text(self._clock())
            for batch in grouped(bodies, len, most_bytes=SEGMENT_BYTES):
                data = format_lines(tail.end, published_at, batch)
                tail = tail.with_segment(Segment(tail.end, len(batch)), len(data))
                # Noted before the segment appears: whether it did, the next reader of the note sees by its name.
                _note(directory, tail)
                directory.write_durably(tail.recent[-1].segment.name, data, point="log.written")
            directory.sync()
            _note(directory, tail := replace(tail, sure=True))
            if not directory.is_in_place():
                raise Unavailable(f"The log {self.directory} was replaced while it was written to. Put the same again.")
            with suppress(OSError):  # what was published is safe; who publishes next tries again
                merge_small(directory, tail, _NEXT)

    def _read_on(self, listed: Sequence[Segment], reached: int, end: int) -> Iterator[tuple[Segment, bytes]]:
        """As far as they are where they were listed: others may have merged or expired them since."""
        for segment in listed:
            if segment.end <= reached or segment.base >= end:
                continue
            if segment.base > reached:
                yield Segment(reached, segment.base - reached), b""
            reached = max(reached, segment.base)
            try:
                data = (self.directory / segment.name).read_bytes()
            except FileNotFoundError:
                return
            except OSError as error:
                raise self._failed(error) from error
            yield segment.cut(reached, data)
            reached = segment.end
        if reached < end:
            yield Segment(reached, end - reached), b""

    def _lines(self, offset: int) -> Iterator[LogLine]:
        begin = self.begin()[PARTITION]
        if offset < begin:
            raise NotFound(f"Offset {offset} has expired; the log begins at {begin}. Read from there.")
        for segment, data in self.segments(offset):
            try:
                yield from map(_parse_line, data.split(b"\n")[:-1])
            except (ValueError, KeyError, TypeError) as error:
                raise DataFault("CORRUPT", f"the log's segment {segment.name} is damaged: {error!r}") from error

    @contextmanager
    def _reading(self) -> Iterator[tuple[LockedDirectory, Tail]]:
        """Beside other readers, unless something must be noted first."""
        # Not without the lock: a listing while somebody publishes may show the later of two alone.
        with self._locked(fcntl.LOCK_SH) as directory:
            if directory.stat(_IDENTITY) and (tail := _read_tail(directory)):
                yield directory, tail
                return
            if is_read_only(self.directory):
                yield directory, _tail_of(directory, _list(directory), _lowest_end(directory))
                return
        with self._locked(fcntl.LOCK_EX) as directory:
            yield directory, _settle(directory)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[LockedDirectory]:
        """Also the one place where the file system's errors become ours."""
        try:
            with locked(self.directory, kind) as directory:
                yield directory
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"The log {self.directory} failed: {error.strerror}. Free space or mend its permissions, and try again."
        )


def _settle(directory: LockedDirectory) -> Tail:
    """Call with the lock held alone: the log has its identity then, and its end is noted."""
    if not directory.stat(_IDENTITY):
        # A log that earlier versions made has none, and goes on being what it was.
        adopted = directory.stat(_END) is not None or bool(_list(directory))
        identity = f"{ADOPTED if adopted else ''}{uuid.uuid4()}"
        directory.write_durably(_IDENTITY, identity.encode(), point="log.identified")
        directory.sync()
        directory.sync_parent()
    if tail := _read_tail(directory):
        return tail
    tail = _tail_of(directory, _list(directory), _lowest_end(directory))
    _note(directory, tail)
    return tail


def _read_tail(directory: LockedDirectory) -> Tail | None:
    """As it was noted, if that can be believed."""
    tail = Tail.parse(directory.read(_NEXT) or b"", directory.place)
    if tail is None or not tail.recent or directory.stat(tail.recent[-1].segment.name):
        return tail
    # Its writer died before it was there; or somebody took it away, and nothing is believed.
    return None if tail.sure else tail.without_last()


def _tail_of(directory: LockedDirectory, listed: Sequence[Segment], lowest_end: int) -> Tail:
    end = max(listed[-1].end if listed else 0, lowest_end)
    if not listed or listed[-1].end < end:
        return Tail(end, listed[0] if listed else None)
    sized = [(segment, directory.stat(segment.name)) for segment in newest(listed)]
    return Tail(end, listed[0], tuple(SizedSegment(segment, found.st_size if found else 0) for segment, found in sized))


def _lowest_end(directory: LockedDirectory) -> int:
    """No offset below it may be given again: expiry noted it, or segments were there that somebody took away."""
    tail = Tail.parse(directory.read(_NEXT) or b"", directory.place)
    return max(int(directory.read(_END) or 0), tail.end if tail and tail.sure else 0)


def _remove_others(directory: LockedDirectory, kept: Sequence[Segment]) -> None:
    """Segments that are not to be kept, and those that a merged one holds."""
    names = {segment.name for segment in kept}
    for name in directory.names():
        if Segment.parse(name) and name not in names:
            directory.remove(name)
    directory.sync()


def _note(directory: LockedDirectory, tail: Tail) -> None:
    directory.write(_NEXT, tail.to_bytes(directory.place))


def _list(directory: LockedDirectory) -> list[Segment]:
    return parse_segments(directory.names())


def _published_at(directory: LockedDirectory, segment: Segment) -> datetime:
    """As its newest line says; a damaged segment is as old as its file."""
    found = directory.stat(segment.name)
    written = datetime.fromtimestamp(found.st_mtime if found else 0, UTC)
    return newest_line_at(directory.read(segment.name) or b"") or written


def _parse_line(line: bytes) -> LogLine:
    fields = json.loads(line)
    value = json.dumps(fields["event"], ensure_ascii=False) if "event" in fields else fields["raw"]
    return LogLine(PARTITION, fields["offset"], parse_time(fields["published_at"]), value)
