"""Expiry: which snapshots a table lets go, so that a stream may commit for a year and its metadata stays small.

The newest are kept, and from there back to the horizon the last one of each span of time: a week by the hour, say. What
a tag or a branch names is kept, until it is older than it says it may get. A snapshot that took files out of the table
is kept as long as an older one is: only it tells which files they were, and the older one still needs them.
Pure. `storage.tables.unreachable_files` finds the files that go with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headwater.settings import Settings
from headwater.storage.tables.metadata import MAIN, Metadata, current_snapshot_id, find_snapshot

HOUR_MS: Final = 3_600_000
NEWEST: Final = 50  # a reader that planned some commits ago still finds what it planned
SPANS: Final = 168  # a week by the hour; a longer horizon has longer spans
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

    @classmethod
    def from_settings(cls, settings: Settings) -> "Keep":
        return cls(settings.number("maintain.keep_hours"))


def expirable(metadata: Metadata, keep: Keep, now_ms: int) -> frozenset[int]:
    """The snapshots that can go."""
    named = _named(metadata, now_ms)
    lineage = list(ancestors(metadata))
    kept = named | _spaced(lineage, keep, now_ms)
    horizon = now_ms - int(keep.hours * HOUR_MS)
    inside = {snapshot["snapshot-id"] for snapshot in lineage}
    # What was staged and never published, or rolled back, may be wanted again for as long as all else.
    others = [one for one in metadata.get("snapshots", ()) if one["snapshot-id"] not in inside]
    kept |= {one["snapshot-id"] for one in others if one["timestamp-ms"] >= horizon}
    older_kept = False
    for snapshot in reversed(lineage):
        if older_kept and took_files(snapshot):
            kept.add(snapshot["snapshot-id"])
        older_kept = older_kept or snapshot["snapshot-id"] in kept
    return frozenset({one["snapshot-id"] for one in metadata.get("snapshots", ())} - kept)


def ancestors(metadata: Metadata) -> Iterator[Metadata]:
    """From the current snapshot back, as far as they are kept."""
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
    found = find_snapshot(metadata, current_snapshot_id(metadata))
    while found is not None:
        yield found
        found = by_id.get(found.get("parent-snapshot-id"))


def took_files(snapshot: Metadata) -> bool:
    return int((snapshot.get("summary") or {}).get("deleted-data-files") or 0) > 0


def _named(metadata: Metadata, now_ms: int) -> set[int]:
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


def _spaced(lineage: list[Metadata], keep: Keep, now_ms: int) -> set[int]:
    horizon, spans = now_ms - int(keep.hours * HOUR_MS), set()
    newest = [one for one in lineage[: keep.newest] if not keep.age or one["timestamp-ms"] >= horizon]
    kept = {snapshot["snapshot-id"] for snapshot in [*newest, *lineage[:1]]}
    for snapshot in lineage[keep.newest :]:
        span = snapshot["timestamp-ms"] // keep.span_ms
        if snapshot["timestamp-ms"] >= horizon and span not in spans:
            spans.add(span)
            kept.add(snapshot["snapshot-id"])
    return kept
