"""Continuity: is the log the one that was read before, and does it still hold what has yet to be read?

A log that keeps events for hours may drop some before they are read; it may be wiped, replaced, set back to an older
copy, or a topic be made anew. None of that is passed over in silence: what is missing is written to the ledger's
journal as a loss that stays open until `headwater rescan` has compared the raw store with the tables.
Invariant: positions are moved only after the loss is written down, and claims of committed events outlive their log.
Who reads goes on from memory, the table may be set back under him: nothing is committed unless the two still agree.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Self

from headwater.clock import Clock
from headwater.domain.progress import Progress
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.errors import Unavailable
from headwater.flow.log.identity import IDENTITY, MADE_ANEW, find_anew, forget_marks, name_logs
from headwater.flow.log.offset_gaps import COMPACTED_AWAY, check_policy, find_compacted, watch_policy
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.losses import LOST
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.writer import TableWriter


class ReadAnew(Unavailable):
    """What is being read no longer follows on what the table has; `Continuity.resume` begins anew."""


class LogReplaced(ReadAnew):
    """The log is no longer the one that is being read."""

    def __init__(self) -> None:
        super().__init__(
            "The log was made anew while it was being read. Run again: what is missing is told, and it begins anew."
        )


class PositionMoved(ReadAnew):
    """The table no longer says that the log was read up to here: it was rolled back, or restored."""

    def __init__(self) -> None:
        super().__init__(
            f"{EVENTS.name} was set back while the log was being read. Run again: it goes on from where the table is."
        )


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the table says that the log was read, by partition, and how often it was rolled back before that."""

    generation: int
    offsets: Mapping[int, int]

    @classmethod
    def of(cls, events: Progress) -> Self:
        return cls(events.generation, events.offsets)

    def is_behind(self, known: "LogPosition") -> bool:
        """Whether this is of a table that was set back since `known`. One that is ahead is our own commit, by a thread
        that has not said so yet."""
        before = (self.offsets.get(partition, 0) < offset for partition, offset in known.offsets.items())
        return self.generation != known.generation or any(before)


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets from `first` to before `until` that nobody will read; None where it is not known how many there were:
    then `log` is the identity of the one that has taken its place."""

    partition: int
    first: int
    until: int | None
    cause: str
    log: str = ""

    @property
    def events(self) -> int:
        """At least: of a log that was made anew nobody knows, and it counts as one."""
        return self.until - self.first if self.until is not None else 1

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "log" or value}


@dataclass(slots=True)
class Continuity:
    """Of the log that a run reads. `on_losses` is called with what was lost, after it was written down. `position` is
    what the table said when reading began, and after every commit since: the next batch follows on that."""

    writer: TableWriter
    log: PointerLog
    ledger: Ledger
    clock: Clock
    on_losses: Callable[[Sequence[Loss]], None]
    position: LogPosition | None = None

    def resume(self) -> Mapping[int, int]:
        """Where to read on, by partition; of a log that was made anew, from its beginning. InvalidRequest where the log
        is one that loses events by its very settings."""
        check_policy(self.log, self.ledger)
        self.position, losses = resume(self.writer, self.log, self.ledger, self.clock)
        self.on_losses(losses)
        return self.position.offsets

    def check(self, position: Mapping[int, int] | None = None) -> None:
        """Raises ReadAnew where reading on from there would pass lines over; without a position, the table's."""
        found = LogPosition.of(read_progress(self.writer.tables, EVENTS))
        if self.position is not None and found.is_behind(self.position):
            raise PositionMoved
        if find_anew(self.log, self.ledger, found.offsets if position is None else position, self.log.end()):
            raise LogReplaced

    def watch(self) -> None:
        """The same, while a stream goes on that notices nothing; and whether somebody has set the log up otherwise."""
        watch_policy(self.log, self.ledger)
        self.check()

    def pass_markers(self, ends: Mapping[int, int]) -> None:
        """After all lines before `ends` were read. PositionMoved where the table has less than was read."""
        since = read_progress(self.writer.tables, EVENTS)
        if self.position is not None and LogPosition.of(since) != self.position:
            raise PositionMoved
        self.position = pass_markers(self.writer, self.log, since, ends)


def resume(writer: TableWriter, log: PointerLog, ledger: Ledger, clock: Clock) -> tuple[LogPosition, list[Loss]]:
    """Before a stream starts: where to read on, and what was lost since the last time. Twice is once."""
    since = read_progress(writer.tables, EVENTS)
    consumed = since.offsets
    identity, begin, end = log.identity(), log.begin(), log.end()
    for partition in {*consumed, *end}:
        # Claims of a batch that never was committed.
        ledger.forget_claims_from(partition, consumed.get(partition, 0))
    anew = find_anew(log, ledger, consumed, end)
    for partition in anew:
        ledger.seal_claims(partition)
    losses = [Loss(partition, consumed.get(partition, 0), None, cause, identity) for partition, cause in anew.items()]
    start = {partition: offset for partition, offset in consumed.items() if partition not in anew}
    # Of the same log, set back, what is before its beginning was read long ago.
    read = {partition: begin.get(partition, 0) for partition, cause in anew.items() if cause != MADE_ANEW}
    losses += expired(begin, start | read)
    record_losses(ledger, losses, clock())
    if losses:
        start |= {partition: max(begin[partition], start.get(partition, 0)) for partition in begin}
        _move(writer, since, start, identity, anew)
    if anew:
        forget_marks(ledger)
    ledger.set_fact(IDENTITY, identity)
    return LogPosition(since.generation, start), losses


def expired(begin: Mapping[int, int], read_from: Mapping[int, int]) -> list[Loss]:
    """Pure: what lies between where reading would go on and where the log now begins."""
    ahead = ((partition, read_from.get(partition, 0), first) for partition, first in begin.items())
    return [Loss(partition, offset, first, "expired unread") for partition, offset, first in ahead if first > offset]


def find_lost(
    log: PointerLog, ledger: Ledger, read: Callable[[int], Sequence[int]], begun: Mapping[int, int]
) -> list[Loss]:
    """What a batch should have held and did not. `read` gives the offsets that it holds of a partition."""
    begin = log.begin()
    losses = lost_in_batch(read, begun, begin)
    for partition, first in begin.items():
        expected = max(first, begun.get(partition, 0))
        offsets = sorted(offset for offset in read(partition) if offset >= expected)
        gaps = find_compacted(log, ledger, partition, offsets, expected)
        losses += [Loss(partition, gap, until, COMPACTED_AWAY) for gap, until in gaps]
    return losses


def lost_in_batch(
    read: Callable[[int], Sequence[int]], begun: Mapping[int, int], begin: Mapping[int, int]
) -> list[Loss]:
    """Pure: what expired under a running stream. Offsets from where reading went on to where the log now begins, and
    not in the batch: the broker skips them without a word, at a batch's start, in its middle, or all of it."""
    losses = []
    for partition, first in begin.items():
        if (expected := begun.get(partition, 0)) < first:
            for offset in [*sorted(offset for offset in read(partition) if offset < first), first]:
                if offset > expected:
                    losses.append(Loss(partition, expected, offset, "expired unread"))
                expected = offset + 1
    return losses


def pass_markers(writer: TableWriter, log: PointerLog, since: Progress, ends: Mapping[int, int]) -> LogPosition:
    """After all lines before `ends` were read: what is still between there and the position are marks of transactions,
    which have offsets and no lines, and would count as lag for ever."""
    consumed, begin = since.offsets, log.begin()
    behind = {partition: end for partition, end in ends.items() if end > consumed.get(partition, 0)}
    # What has expired meanwhile is no mark: the next start tells it as lost.
    behind = {partition: end for partition, end in behind.items() if begin[partition] <= consumed.get(partition, 0)}
    if behind:
        _move(writer, since, {**consumed, **behind}, log.identity())
    return LogPosition(since.generation, {**consumed, **behind})


def record_losses(ledger: Ledger, losses: Iterable[Loss], now: datetime) -> None:
    """One open line of the journal for each; a loss that is written down already is not written again."""
    known = [_known_as(run.detail) for run in ledger.unfinished(LOST)]
    for loss in losses:
        if _known_as(detail := loss.to_dict()) not in known:
            ledger.start_run(LOST, now, detail)


def _known_as(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Without the position, where nobody knows how many: a run that was killed after it moved that tells no other."""
    return {name: value for name, value in detail.items() if name != "first" or detail["until"] is not None}


def _move(
    writer: TableWriter, since: Progress, start: Mapping[int, int], identity: str, anew: Collection[int] = ()
) -> None:
    """`since` is what `start` was worked out from: a table that was set back meanwhile is not moved."""
    position = {"log": {str(partition): offset for partition, offset in start.items()}}
    logs = name_logs(identity, since.logs, {*start, *anew}, anew)
    held = read_progress(writer.tables, QUARANTINE)
    writer.publish(QUARANTINE, None, position, since=held, stage="continuity", logs=logs)
    writer.publish(EVENTS, None, position, since=since, stage="continuity", logs=logs)
