"""The pointer log in a directory: one partition of immutable JSON-lines segments, `{base}-{count}.jsonl`.

A line is `{"offset", "published_at", "event"}`. Writers, in any number of processes, append under a file lock: a hidden
temporary file, synced, renamed, the directory synced. A writer that dies leaves nothing that a reader sees.

`.end`   the end of the log at the last expiry, durable: offsets below it are never given again, were all segments gone
`.next`  a hint that saves listing the directory for each publish; believed only in the directory and boot that
         it was written in
"""

import fcntl
import json
import os
import re
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from headwater import faults
from headwater.clock import Clock, parse_time, to_text, utc_now
from headwater.domain.event import Event
from headwater.domain.groups import grouped
from headwater.errors import DataFault, InvalidRequest, NotFound, Unavailable
from headwater.storage.pointer_log import Expired, LogLine

PARTITION: Final = 0
SEGMENT_BYTES: Final = 1 << 20  # small enough that a micro-batch is cut near its limit of events
_EVENT_LINE: Final = re.compile(r'\{"offset":(\d{1,18}),"published_at":"[^"]*","event":(.*)\}', re.DOTALL)
_LOCK, _TEMPORARY, _END, _NEXT = ".lock", ".segment.tmp", ".end", ".next"


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    base: int
    count: int

    @property
    def end(self) -> int:
        return self.base + self.count

    @property
    def name(self) -> str:
        return f"{self.base:020d}-{self.count:06d}.jsonl"

    def lines(self, data: bytes) -> list[bytes]:
        """As many as its name says: in the place of one that is gone from a damaged file stands a sentence."""
        held = data.removesuffix(b"\n").split(b"\n") if data else []
        gone = range(self.base + len(held), self.end)
        return held + [b"line %d of the log is gone from its segment" % offset for offset in gone]

    def read_line(self, line: bytes) -> tuple[int | None, str]:
        """Offset and value, whatever the line is: a damaged one has no offset, and its value is all of it."""
        value = line.decode(errors="replace")
        if sound := _EVENT_LINE.fullmatch(value):
            return self._own(int(sound[1])), sound[2]
        try:
            fields = json.loads(value)
            offset, raw = fields.get("offset"), fields.get("raw")
        except (ValueError, AttributeError):
            return None, value
        return self._own(offset), (raw if isinstance(raw, str) else value)

    def _own(self, offset: Any) -> int | None:
        return offset if isinstance(offset, int) and self.base <= offset < self.end else None

    @classmethod
    def parse(cls, name: str) -> Self | None:
        base, dash, count = name.removesuffix(".jsonl").partition("-")
        sound = name.endswith(".jsonl") and dash and base.isdecimal() and count.isdecimal()
        return cls(int(base), int(count)) if sound else None


class DirectoryLog:
    """A `PointerLog` with the single partition 0."""

    def __init__(self, directory: Path, retention_hours: int, clock: Clock = utc_now) -> None:
        self.directory = directory.absolute()
        self._retention = timedelta(hours=retention_hours)
        self._clock = clock
        self._known: list[Segment] = []

    def publish(self, events: Sequence[Event]) -> None:
        try:
            self._append([f'"event":{event.to_json()}'.encode() for event in events])
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"An event holds text that is not valid Unicode: {error.reason}.") from error

    def publish_raw(self, values: Sequence[str]) -> None:
        """What a foreign producer might send: lines that need not be events. For tests; the port has no such door."""
        self._append([f'"raw":{json.dumps(value)}'.encode() for value in values])

    def begin(self) -> dict[int, int]:
        with self._locked(fcntl.LOCK_SH):
            segments = self._list()
            return {PARTITION: segments[0].base if segments else self._find_end()}

    def end(self) -> dict[int, int]:
        with self._locked(fcntl.LOCK_SH):
            return {PARTITION: self._find_end()}

    def identity(self) -> str:
        """Its offsets are never given again, so it is always the same log."""
        return "directory"

    def segments(self, offset: int) -> Iterator[tuple[Segment, bytes]]:
        """Whole segments, from the one that holds `offset` to the newest there is now; one that is gone is empty."""
        with self._locked(fcntl.LOCK_SH):  # a listing while somebody publishes may show the later of two alone
            listed = self._list()
        # Before the first of all it has expired, which is another loss and told as one.
        reached = max(offset, listed[0].base) if listed else offset
        for segment in listed:
            if segment.end <= offset:
                continue
            if segment.base > reached:
                yield Segment(reached, segment.base - reached), b""
            reached = segment.end
            try:
                data = (self.directory / segment.name).read_bytes()
            except FileNotFoundError:  # it has just expired: who reads on will find the gap
                return
            except OSError as error:
                raise self._failed(error) from error
            yield segment, data

    def read(self, partition: int, offset: int, limit: int) -> list[LogLine]:
        return list(islice(self._lines(offset), limit)) if partition == PARTITION and limit > 0 else []

    def expire(self, now: datetime, consumed: Mapping[int, int], *, force: bool = False) -> Expired:
        with self._locked(fcntl.LOCK_EX):
            due = [*self._due(now - self._retention)]
            removed = [segment for segment in due if force or segment.end <= consumed.get(PARTITION, 0)]
            if removed:
                self._write_durably(_END, b"%d" % self._find_end())
                for segment in removed:
                    (self.directory / segment.name).unlink(missing_ok=True)
                self._sync()
                self._known = []
        counts = sum(segment.count for segment in removed), sum(segment.count for segment in due)
        return Expired(removed_events=counts[0], overdue_events=counts[1] - counts[0])

    def _append(self, bodies: Sequence[bytes]) -> None:
        if not bodies:
            return
        with self._locked(fcntl.LOCK_EX):
            published_at = to_text(self._clock()).encode()
            base = self._find_end()
            for batch in grouped(bodies, len, most_bytes=SEGMENT_BYTES):
                head = b'{"offset":%d,"published_at":"' + published_at + b'",'
                lines = [head % (base + index) + body + b"}\n" for index, body in enumerate(batch)]
                segment = Segment(base, len(batch))
                self._hint(segment)
                self._write_durably(segment.name, b"".join(lines))
                base = segment.end
            self._sync()

    def _write_durably(self, name: str, data: bytes) -> None:
        """The lock makes one temporary name enough, and the next writer overwrites what a dead one left."""
        temporary = self.directory / _TEMPORARY
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        faults.point("log.written")
        temporary.rename(self.directory / name)

    def _hint(self, segment: Segment) -> None:
        """Written before the segment appears: whether it did, the next reader of the hint sees by its name."""
        hint = json.dumps({"base": segment.base, "count": segment.count, "place": self._place()})
        (self.directory / _NEXT).write_text(hint)

    def _place(self) -> str:
        """A copy of the directory is another place: it may hold an older hint than segments."""
        return f"{_boot()}/{self.directory.stat().st_ino}"

    def _find_end(self) -> int:
        """Call with the lock held."""
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            hint: dict[str, Any] = json.loads((self.directory / _NEXT).read_bytes())
            segment = Segment(int(hint["base"]), int(hint["count"]))
            # Expiry removes segments but first notes the end, so a hinted segment that is gone was never written
            # or lies below that note.
            if hint["place"] == self._place():
                exists = (self.directory / segment.name).exists()
                return max(segment.end if exists else segment.base, self._noted_end())
        segments = self._list()
        return max(segments[-1].end if segments else 0, self._noted_end())

    def _noted_end(self) -> int:
        try:
            return int((self.directory / _END).read_bytes())
        except FileNotFoundError:
            return 0

    def _list(self) -> list[Segment]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(filter(None, map(Segment.parse, names)))

    def _due(self, horizon: datetime) -> Iterator[Segment]:
        """Oldest first and without a gap, so that what remains is dense."""
        for segment in self._list():
            if self._published_at(segment) > horizon:
                return
            yield segment

    def _published_at(self, segment: Segment) -> datetime:
        """As its first line says; a damaged segment is as old as its file."""
        with suppress(DataFault):
            if first := next(self._read_segment(segment), None):
                return first.published_at
        return datetime.fromtimestamp((self.directory / segment.name).stat().st_mtime, UTC)

    def _lines(self, offset: int) -> Iterator[LogLine]:
        if not self._known or self._known[-1].end <= offset:
            self._known = self._list()
        begin = self._known[0].base if self._known else self._noted_end()
        if offset < begin:
            raise NotFound(f"Offset {offset} has expired; the log begins at {begin}. Read from there.")
        start = max(bisect_right(self._known, offset, key=lambda segment: segment.base) - 1, 0)
        for segment in self._known[start:]:
            yield from (line for line in self._read_segment(segment) if line.offset >= offset)

    def _read_segment(self, segment: Segment) -> Iterator[LogLine]:
        try:
            data = (self.directory / segment.name).read_bytes()
        except FileNotFoundError:
            self._known = []
            raise NotFound(f"Offset {segment.base} has just expired. Read again from the log's beginning.") from None
        try:
            yield from map(_parse_line, data.split(b"\n")[:-1])
        except (ValueError, KeyError, TypeError) as error:
            raise DataFault("CORRUPT", f"the log's segment {segment.name} is damaged: {error!r}") from error

    def _sync(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Also the one place where the file system's errors become ours."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with (self.directory / _LOCK).open("ab") as lock:
                fcntl.flock(lock, kind)
                yield
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"The log {self.directory} failed: {error.strerror}. Free space or mend its permissions, and try again."
        )


def _parse_line(line: bytes) -> LogLine:
    fields = json.loads(line)
    value = json.dumps(fields["event"], ensure_ascii=False) if "event" in fields else fields["raw"]
    return LogLine(PARTITION, fields["offset"], parse_time(fields["published_at"]), value)


@cache
def _boot() -> str:
    """Tells one run of the kernel from the next: what was written but not synced may be lost between them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid.uuid4().hex  # such a hint is believed by no other process
