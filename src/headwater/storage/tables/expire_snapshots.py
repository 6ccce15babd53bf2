"""Expiry: which snapshots a table lets go, so that a stream may commit for a year and its metadata stays small.

The newest are kept, and from there back to the horizon the last one of each span of time: a week by the hour, say. What
a tag or a branch names is kept, until it is older than it says it may get. Where a snapshot took files out of a table,
it and the one before it are kept for an hour: who planned before a compaction reads to the end.
Pure. `storage.tables.unreachable_files` finds the files that go with them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.settings import Settings
from headwater.storage.tables.metadata import MAIN, Metadata, current_snapshot_id, find_snapshot, snapshot_ids

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
NEWEST: Final = 50  # a reader that planned some commits ago still finds what it planned
SPANS: Final = 168  # a week by the hour; a longer horizon has longer spans
ASIDE: Final = 8  # of each span, of what is beside the line
READABLE_MS: Final = HOUR_MS  # what was replaced, for who had planned to read it
LEAST: Final = 32  # fewer than this are not worth a look at their files


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept besides what is named: so many of the newest, and one for each span back to the horizon.

    Where the newest `age`, they go too when they are past it, all but the current one.
    """

    hours: float
    newest: int = NEWEST
    age: bool = False

    @property
    def span_ms(self) -> int:
        return int(max(HOUR_MS, self.hours * HOUR_MS / SPANS))

    def horizon(self, now_ms: int) -> int:
        return now_ms - int(self.hours * HOUR_MS)

    @classmethod
    def from_settings(cls, settings: Settings) -> "Keep":
        return cls(settings.number("maintain.keep_hours"))


def expirable(metadata: Metadata, keep: Keep, now_ms: int) -> frozenset[int]:
    """The snapshots that can go."""
    lineage = list(ancestors(metadata))
    inside = {snapshot["snapshot-id"] for snapshot in lineage}
    others = [one for one in metadata.get("snapshots", ()) if one["snapshot-id"] not in inside]
    kept = (
        _referenced(metadata, now_ms) | _one_per_span(lineage, keep, now_ms) | _lately_replaced(metadata, keep, now_ms)
    )
    kept |= _off_lineage(others, _removals_and_parents(metadata), keep, now_ms)
    return frozenset(snapshot_ids(metadata) - kept)


def ancestors(metadata: Metadata) -> Iterator[Metadata]:
    """From the current snapshot back, as far as they are kept."""
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
    found = find_snapshot(metadata, current_snapshot_id(metadata))
    while found is not None:
        yield found
        found = by_id.get(found.get("parent-snapshot-id"))


def removed_files(snapshot: Metadata) -> bool:
    return int((snapshot.get("summary") or {}).get("deleted-data-files") or 0) > 0


def _referenced(metadata: Metadata, now_ms: int) -> set[int]:
    """By tags and branches that have not aged. As Iceberg has it, a tag is as old as the snapshot that it names."""
    made_at = {one["snapshot-id"]: one["timestamp-ms"] for one in metadata.get("snapshots", ())}
    refs: Metadata = metadata.get("refs") or {}
    return {
        ref["snapshot-id"]
        for name, ref in refs.items()
        if name == MAIN
        or ref.get("max-ref-age-ms") is None
        or now_ms - made_at.get(ref["snapshot-id"], now_ms) <= ref["max-ref-age-ms"]
    }


def _removals_and_parents(metadata: Metadata) -> dict[int, int]:
    """The snapshots that took files out, each with the one before it, which has these files still."""
    there = snapshot_ids(metadata)
    return {
        one["snapshot-id"]: one["parent-snapshot-id"]
        for one in sorted(metadata.get("snapshots", ()), key=_age_order)
        if one.get("parent-snapshot-id") in there and removed_files(one)
    }


def _lately_replaced(metadata: Metadata, keep: Keep, now_ms: int) -> set[int]:
    """Those that took files out within the hour, each with the one before it.

    Of each minute the first alone: what was there when it began is in that one, however often files are taken out.
    """
    readable_ms = min(READABLE_MS, int(keep.hours * HOUR_MS))
    since = (now_ms - readable_ms) // MINUTE_MS  # a minute goes as a whole: its first stands for the last
    made_at = {one["snapshot-id"]: one["timestamp-ms"] for one in metadata.get("snapshots", ())}
    first: dict[int, tuple[int, int]] = {}
    for pair in _removals_and_parents(metadata).items():
        if readable_ms and (minute := made_at[pair[0]] // MINUTE_MS) >= since:
            first.setdefault(minute, pair)
    return {number for pair in first.values() for number in pair}


def _off_lineage(others: list[Metadata], took: Mapping[int, int], keep: Keep, now_ms: int) -> set[int]:
    """Of those that are no ancestors any more: the last of each span, and a few more.

    One that was on the line looks, once the next was let go, as one that was staged or rolled back; that may be wanted
    again for as long as all else. What was kept for the files that it took out, or has still, is not: its hour is over.
    """
    kept: set[int] = set()
    spans: Counter[int] = Counter()
    passing = {number for pair in took.items() for number in pair}
    for one in sorted(others, key=_age_order, reverse=True):
        span, number = one["timestamp-ms"] // keep.span_ms, one["snapshot-id"]
        wanted = not spans[span] or (number not in passing and spans[span] < ASIDE)
        if one["timestamp-ms"] >= keep.horizon(now_ms) and wanted:
            spans[span] += 1
            kept.add(number)
    return kept


def _age_order(snapshot: Metadata) -> tuple[int, int]:
    return snapshot["timestamp-ms"], snapshot.get("sequence-number") or 0


def _one_per_span(lineage: list[Metadata], keep: Keep, now_ms: int) -> set[int]:
    horizon, spans = keep.horizon(now_ms), set()
    newest = [one for one in lineage[: keep.newest] if not keep.age or one["timestamp-ms"] >= horizon]
    kept = {snapshot["snapshot-id"] for snapshot in [*newest, *lineage[:1]]}
    for snapshot in lineage[keep.newest :]:
        span = snapshot["timestamp-ms"] // keep.span_ms
        if snapshot["timestamp-ms"] >= horizon and span not in spans:
            spans.add(span)
            kept.add(snapshot["snapshot-id"])
    return kept
