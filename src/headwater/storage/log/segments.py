"""Segments of a log in a directory: what a file of lines is called, how its lines are read, and which ones are newest.

A segment is never changed; neighbours may be put together in one of the same lines (`segment_merge`), and while both
are there the larger one counts.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

from headwater.domain.event import Event

# Enough to know every segment that a follower of the log has not seen, and every one that could still be merged.
RECENT_MAX: Final = 256
_EVENT_LINE: Final = re.compile(rb'\{"offset":(\d{1,18}),"published_at":"[^"]*","event":(.*)\}', re.DOTALL)


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

    def read_line(self, line: bytes) -> tuple[int | None, bytes]:
        """Offset and value, whatever the line is: a damaged one has no offset, and its value is all of it."""
        if sound := _EVENT_LINE.fullmatch(line):
            return self._own(int(sound[1])), sound[2]
        try:
            fields = json.loads(line.decode(errors="replace"))
            offset, raw = fields.get("offset"), fields.get("raw")
        except (ValueError, AttributeError):
            return None, line
        return self._own(offset), (raw.encode(errors="surrogatepass") if isinstance(raw, str) else line)

    def cut(self, offset: int, data: bytes) -> tuple["Segment", bytes]:
        """What is left of it from an offset on."""
        passed = offset - self.base
        if passed <= 0:
            return self, data
        lines = data.split(b"\n", passed)
        return Segment(offset, self.end - offset), lines[passed] if len(lines) > passed else b""

    def _own(self, offset: Any) -> int | None:
        return offset if isinstance(offset, int) and self.base <= offset < self.end else None

    @classmethod
    def parse(cls, name: str) -> Self | None:
        base, dash, count = name.removesuffix(".jsonl").partition("-")
        sound = name.endswith(".jsonl") and dash and base.isdecimal() and count.isdecimal()
        return cls(int(base), int(count)) if sound else None


def format_event(event: Event) -> bytes:
    return f'"event":{event.to_json()}'.encode()


def format_lines(base: int, published_at: str, bodies: Sequence[bytes]) -> bytes:
    head = b'{"offset":%d,"published_at":"' + published_at.encode() + b'",'
    return b"".join([head % (base + index) + body + b"}\n" for index, body in enumerate(bodies)])


def parse_segments(names: Iterable[str]) -> list[Segment]:
    """In order, and none that a merged one holds: whoever merged them was killed before they were removed."""
    found: list[Segment] = []
    for segment in sorted(filter(None, map(Segment.parse, names)), key=lambda each: (each.base, -each.count)):
        if not found or segment.end > found[-1].end:
            found.append(segment)
    return found


class SizedSegment(NamedTuple):
    segment: Segment
    size: int


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a log ends, its newest segments, without a gap between them, and the first one of all.

    Kept in a file, it saves listing the directory, which may hold very many. `sure` is said once the last one is
    there: else whoever noted it may have died before.
    """

    end: int
    first: Segment | None = None
    recent: tuple[SizedSegment, ...] = ()
    sure: bool = True

    @classmethod
    def parse(cls, data: bytes, place: str) -> Self | None:
        """None where it was noted in another place, by another version, or not whole."""
        try:
            noted: dict[str, Any] = json.loads(data)
            if noted["place"] != place:
                return None
            end, recent = int(noted["base"]) + int(noted["count"]), list[SizedSegment]()
            for count, size in reversed(noted["recent"]):
                end_of = recent[-1].segment.base if recent else end
                recent.append(SizedSegment(Segment(end_of - count, count), size))
            first = Segment(*noted["first"]) if noted["first"] else None
            return cls(end, first, tuple(reversed(recent)), bool(noted["sure"]))
        except (ValueError, KeyError, TypeError):
            return None

    def to_bytes(self, place: str) -> bytes:
        last = self.recent[-1].segment if self.recent else Segment(self.end, 0)
        first = [self.first.base, self.first.count] if self.first else None
        recent = [[each.segment.count, each.size] for each in self.recent]
        noted = {"base": last.base, "count": last.count, "place": place, "first": first, "recent": recent}
        return json.dumps({**noted, "sure": self.sure}, separators=(",", ":")).encode()

    def with_segment(self, segment: Segment, size: int) -> Self:
        """One that is about to be written."""
        recent = (*self.recent, SizedSegment(segment, size))
        return type(self)(segment.end, self.first or segment, recent[-RECENT_MAX:], sure=False)

    def with_recent(self, recent: Sequence[SizedSegment]) -> Self:
        """The same lines in other segments."""
        starts_there = self.first is not None and recent[0].segment.base == self.first.base
        return type(self)(self.end, recent[0].segment if starts_there else self.first, tuple(recent))

    def without_last(self) -> Self:
        last = self.recent[-1].segment
        return type(self)(last.base, self.first if self.first != last else None, self.recent[:-1])

    def since(self, offset: int) -> list[Segment] | None:
        """The segments that hold lines from an offset on; None where it does not know all of them."""
        if offset >= self.end:
            return []
        if not self.recent or not self._reaches(offset):
            return None
        return [each.segment for each in self.recent if each.segment.end > offset]

    def _reaches(self, offset: int) -> bool:
        oldest = self.recent[0].segment
        return offset >= oldest.base or oldest == self.first


def newest(segments: Sequence[Segment]) -> list[Segment]:
    """Those at the end without a gap between them, as many as a tail holds."""
    start = max(0, len(segments) - RECENT_MAX)
    found = segments[start:]
    breaks = [number for number, (one, other) in enumerate(pairwise(found), start=1) if one.end != other.base]
    return list(found[breaks[-1] :] if breaks else found)
