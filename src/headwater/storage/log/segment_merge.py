"""Merging small segments of a log: a publish makes a file, and a million of them must not be a million files.

Whoever publishes merges, under the lock, once enough small ones stand at the end: sixty-four small ones become one, and
sixty-four of those a full one. A line is written three times at most, and files are as many as the log has megabytes,
and a hundred or two.
Invariant: the merged segment lasts before the others go, and holds the same bytes, so either may be read.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from headwater import faults
from headwater.clock import parse_time
from headwater.storage.log.locked_directory import LockedDirectory
from headwater.storage.log.segments import Segment, SizedSegment, Tail

SEGMENT_BYTES: Final = 1 << 20  # small enough that a micro-batch is cut near its limit of events
MERGE_SEGMENTS: Final = 64
_SMALL_BYTES: Final = SEGMENT_BYTES // MERGE_SEGMENTS
_FULL_BYTES: Final = SEGMENT_BYTES // 2
# Retention goes by whole segments, so an event may be kept for this much longer than it should.
_SPAN: Final = timedelta(hours=1)
_HEAD: Final = re.compile(rb'\{"offset":(\d{1,18}),"published_at":"([^"]{1,40})"')


def merge_small(directory: LockedDirectory, tail: Tail, note: str) -> None:
    """Where it is due, and under the lock. `note` is the file that keeps the tail."""
    due = _due(tail.recent)
    if not due:
        return
    merged = list(_write_merged(directory, due))
    directory.sync()
    after = tail.with_recent([*tail.recent[: -len(due)], *merged])
    directory.write(note, after.to_bytes(directory.place))
    faults.point("log.merged")
    kept = {each.segment for each in merged}
    for each in due:
        if each.segment not in kept:
            directory.remove(each.segment.name)


def newest_line_at(data: bytes) -> datetime | None:
    """When the last line of a segment was published; None where it is damaged."""
    return published_at(_last_line(data))


def published_at(line: bytes, offset: int | None = None) -> datetime | None:
    """As a line says, if it is the one of that offset."""
    with suppress(ValueError):
        found = _HEAD.match(line)
        if found and offset in {None, int(found[1])}:
            return parse_time(found[2].decode())
    return None


def _due(recent: Sequence[SizedSegment]) -> list[SizedSegment]:
    """Those at the end that are small enough, once there are enough of them."""
    for level in (0, 1):
        run = list(takewhile(lambda each: _level(each.size) <= level, reversed(recent)))  # noqa: B023
        if sum(_level(each.size) == level for each in run) >= MERGE_SEGMENTS:
            return run[::-1]
    return []


def _level(size: int) -> int:
    return (size >= _SMALL_BYTES) + (size >= _FULL_BYTES)


def _write_merged(directory: LockedDirectory, due: Sequence[SizedSegment]) -> Iterator[SizedSegment]:
    groups = list(_groups(directory, due))
    for number, group in enumerate(groups, start=1):
        segments, data = [segment for segment, _ in group], b"".join(data for _, data in group)
        merged = Segment(segments[0].base, sum(segment.count for segment in segments))
        if len(group) > 1:
            directory.write_durably(merged.name, data, point="log.merging")
        # What could not go together is not looked at again: it counts as full.
        yield SizedSegment(merged, len(data) if number == len(groups) else SEGMENT_BYTES)


def _groups(directory: LockedDirectory, due: Sequence[SizedSegment]) -> Iterator[list[tuple[Segment, bytes]]]:
    """Neighbours that fit in one segment and were published within an hour; a damaged one stays alone, as it is."""
    group: list[tuple[Segment, bytes]] = []
    size, begun = 0, None
    for segment, _ in due:
        data = directory.read(segment.name) or b""
        first, last = _times(segment, data)
        fits = begun is not None and last is not None and last - begun <= _SPAN and size + len(data) <= SEGMENT_BYTES
        if group and not fits:
            yield group
            group, size, begun = [], 0, None
        group.append((segment, data))
        size, begun = size + len(data), begun or first
    if group:
        yield group


def _times(segment: Segment, data: bytes) -> tuple[datetime | None, datetime | None]:
    """When its first and its last line were published; None where it does not hold the lines that its name says."""
    if not data.endswith(b"\n") or data.count(b"\n") != segment.count:
        return None, None
    return published_at(data, offset=segment.base), published_at(_last_line(data), offset=segment.end - 1)


def _last_line(data: bytes) -> bytes:
    return data.removesuffix(b"\n").rpartition(b"\n")[2]
