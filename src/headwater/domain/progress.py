"""How far a table has come: table properties that are committed together with its rows, and stamped into the snapshot.

`headwater.next_seq`    the seq of the next row; never goes back, so that no number is given twice
`headwater.consumed`    per upstream, how far it was read: JSON {"log": {"0": 17}} or {"bronze.events": 17}
`headwater.logs`        of which log each offset in `consumed` is, by partition: {"0": "<identity>@2"}, the third one
                        there; after a rollback, an offset of a log that is gone is none of the one that is read now
`headwater.duplicates`  how many events were seen again with the same content (bronze only)
`headwater.generation`  counted up when the table was rolled back to an older snapshot
`headwater.redo`        after a rollback, how far each upstream had been read before it; gone when that is reached again
`headwater.redone`      rows before this seq may be rows that a rollback took away, made again; without end where the
                        log that had them is gone: who announces them again does so when he likes
`headwater.aside`       by step and model, how many rows were added without moving a position: by a retry
`headwater.raw`         what its rows name in the raw store: {"rows": 9, "objects": 7, "bytes": 512} (bronze only)
`headwater.epoch`       of the run that committed last: a run with a smaller one has lost its lease
`headwater.snapshot`    the snapshot that was current when these were set

Iceberg's rollback sets the current snapshot back and leaves the properties as they are. So the properties are believed
only where their snapshot is the current one or an ancestor of it (others may compact on top); else the stamp in the
summary of the snapshot that was rolled back to tells how far the table had come then.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from headwater.errors import Conflict

NEXT_SEQ: Final = "headwater.next_seq"
CONSUMED: Final = "headwater.consumed"
LOGS: Final = "headwater.logs"
DUPLICATES: Final = "headwater.duplicates"
GENERATION: Final = "headwater.generation"
REDO: Final = "headwater.redo"
REDONE: Final = "headwater.redone"
ASIDE: Final = "headwater.aside"
RAW: Final = "headwater.raw"
EPOCH: Final = "headwater.epoch"
SNAPSHOT: Final = "headwater.snapshot"
STAMP: Final = "headwater.progress"  # in a snapshot's summary: the properties above, as one JSON document
_WITHOUT_END: Final = (1 << 63) - 1
_LOG: Final = "log"  # the upstream that has an offset for each partition
_NONE: Final = "none"  # what `headwater.snapshot` says of a table without one

# Upstream → the next position to read: a seq for tables, an offset per partition for the log.
Positions = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SnapshotNote:
    """What is needed of a snapshot: whose child it is, and our stamp, where it has one."""

    parent: int | None
    stamp: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    next_seq: int = 0
    consumed: Positions = field(default_factory=dict)
    duplicates: int = 0
    generation: int = 0
    redo: Positions = field(default_factory=dict)
    redone: int = 0
    aside: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0
    raw: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """As the properties tell it, whatever the current snapshot is."""
        return cls(
            next_seq=int(properties.get(NEXT_SEQ, 0)),
            consumed=json.loads(properties.get(CONSUMED, "{}")),
            duplicates=int(properties.get(DUPLICATES, 0)),
            generation=int(properties.get(GENERATION, 0)),
            redo=json.loads(properties.get(REDO, "{}")),
            redone=int(properties.get(REDONE, 0)),
            aside=json.loads(properties.get(ASIDE, "{}")),
            raw=json.loads(properties.get(RAW, "{}")),
            epoch=int(properties.get(EPOCH, 0)),
            logs=json.loads(properties.get(LOGS, "{}")),
        )

    @classmethod
    def of_table(
        cls, properties: Mapping[str, str], current: int | None, snapshots: Mapping[int, SnapshotNote]
    ) -> Self:
        """As properties and snapshots tell it together; Conflict where a rollback went back before all stamps."""
        noted, known = cls.from_properties(properties), properties.get(SNAPSHOT)
        if known is None or known == _NONE or known == str(current):
            return noted
        for snapshot_id, note in _ancestors(current, snapshots):
            if str(snapshot_id) == known:
                return noted
            if note.stamp is not None:
                return noted.rolled_back(cls.from_properties(json.loads(note.stamp)))
        if current is None:
            return noted.rolled_back(cls())
        if int(known) not in snapshots:
            return noted  # it expired, below snapshots that others made
        raise Conflict(
            f"The table was rolled back to snapshot {current}, which does not say how far it had come. "
            f"Roll it forward again: snapshot {known} does."
        )

    def to_properties(self) -> dict[str, str]:
        """What is as at the beginning is left out of the rarer ones, and taken out where it was set."""
        return {
            NEXT_SEQ: str(self.next_seq),
            CONSUMED: _text(self.consumed),
            DUPLICATES: str(self.duplicates),
            **{name: text for name, text in self._rare().items() if text},
        }

    def cleared(self) -> list[str]:
        """The properties that a table must not have any more."""
        return [name for name, text in self._rare().items() if not text]

    def stamp(self) -> str:
        """For the summary of the snapshot that is committed with it."""
        return _text(self.to_properties())

    def seq_of(self, upstream: str) -> int:
        """How far a table upstream was read."""
        return int(self.consumed.get(upstream, 0))

    @property
    def offsets(self) -> dict[int, int]:
        """How far each partition of the log was read."""
        return {int(partition): offset for partition, offset in self.consumed.get(_LOG, {}).items()}

    def repeats_from(self, seq: int) -> bool:
        """Whether rows from this seq on may be some that a reader has had before: a rollback took them away."""
        return bool(self.redo) or seq < self.redone

    @property
    def repeats_without_end(self) -> bool:
        """Whether such rows may come again at any time, with whatever time their event tells now."""
        return bool(self.redo) or self.redone == _WITHOUT_END

    def advanced(
        self,
        consumed: Positions,
        *,
        rows: int,
        duplicates: int = 0,
        aside: Mapping[str, int] | None = None,
        raw: Mapping[str, int] | None = None,
        logs: Mapping[str, str] | None = None,
    ) -> Self:
        next_seq, now = self.next_seq + rows, {**self.consumed, **consumed}
        there = _without_logs(self.redo, _replaced(self.logs, logs or {}))
        redo, is_gone = _ahead(there, now), there != self.redo
        return replace(
            self,
            next_seq=next_seq,
            consumed=now,
            duplicates=self.duplicates + duplicates,
            redo=redo,
            redone=max(self.redone, _WITHOUT_END if is_gone else next_seq if self.redo and not redo else 0),
            aside=_sum(self.aside, aside or {}),
            raw=_sum(self.raw, raw or {}),
            logs={**self.logs, **(logs or {})},
        )

    def rolled_back(self, then: "Progress") -> Self:
        """What was read is as it was then; numbers and the account of what is to be made again go on.

        Of the log that is read now nothing had been read then, where that was another one.
        """
        replaced = _replaced(then.logs, self.logs)
        consumed = _without_logs(then.consumed, replaced)
        return replace(
            self,
            redone=_WITHOUT_END if replaced else self.redone,
            next_seq=max(self.next_seq, then.next_seq),
            consumed=consumed,
            duplicates=then.duplicates,
            raw=then.raw,
            generation=self.generation + 1,
            redo=_ahead(_furthest(self.redo, self.consumed), consumed),
        )

    def _rare(self) -> dict[str, str]:
        return {
            GENERATION: str(self.generation or ""),
            REDO: _text(self.redo) if self.redo else "",
            REDONE: str(self.redone or ""),
            ASIDE: _text(self.aside) if self.aside else "",
            RAW: _text(self.raw) if self.raw else "",
            EPOCH: str(self.epoch or ""),
            LOGS: _text(self.logs) if self.logs else "",
        }


def log_name(identity: str, before: str = "", *, anew: bool = False) -> str:
    """What `logs` says of a partition. `before` is what it said until now; `anew` where the log is made anew, or set
    back: then it is another one, though it may have the same identity."""
    known, _, number = before.rpartition("@")
    if before and known == identity and not anew:
        return before
    return f"{identity}@{int(number or 0) + 1 if before or anew else 0}"


def snapshot_property(current: int | None) -> dict[str, str]:
    return {SNAPSHOT: _NONE if current is None else str(current)}


def _ancestors(current: int | None, snapshots: Mapping[int, SnapshotNote]) -> Iterator[tuple[int, SnapshotNote]]:
    while current is not None and (note := snapshots.get(current)) is not None:
        yield current, note
        current = note.parent


def _replaced(then: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Partitions that had another log then. Who did not say which, as earlier versions, had the first that was told."""
    return {partition for partition, name in now.items() if name != then.get(partition, f"{name.rpartition('@')[0]}@0")}


def _without_logs(positions: Positions, partitions: Collection[str]) -> dict[str, Any]:
    """The same positions, but none in these partitions of the log."""
    offsets = {name: offset for name, offset in positions.get(_LOG, {}).items() if name not in partitions}
    return {**positions, _LOG: offsets} if _LOG in positions else dict(positions)


def _ahead(before: Positions, now: Positions) -> dict[str, Any]:
    """Those of `before` that `now` has not reached."""
    found: dict[str, Any] = {}
    for name, position in before.items():
        reached = now.get(name)
        if isinstance(position, Mapping):
            left = _ahead(position, reached or {})
            found |= {name: left} if left else {}
        elif position > (reached or 0):
            found[name] = position
    return found


def _furthest(one: Positions, other: Positions) -> dict[str, Any]:
    found = dict(one)
    for name, position in other.items():
        if isinstance(position, Mapping):
            found[name] = _furthest(found.get(name, {}), position)
        else:
            found[name] = max(position, found.get(name, 0))
    return found


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {*one, *other}}


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)
