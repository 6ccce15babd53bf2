"""Continuity: is the log the one that was read before, and does it still hold what has yet to be read?

A log that keeps events for hours may drop some before they are read, and a topic can be made anew. Neither is passed
over in silence: what is missing is written to the ledger's journal as a loss that stays open until `headwater rescan`
has compared the raw store with the tables.
Invariant: positions are moved only after the loss is written down, and claims of committed events outlive their log.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from headwater.clock import Clock
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.storage.ledger import Ledger
from headwater.storage.losses import LOST
from headwater.storage.pointer_log import PointerLog
from headwater.storage.table_writer import TableWriter

IDENTITY: Final = "log.identity"


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets from `first` to before `until` that nobody will read; None where it is not known how many there were."""

    partition: int
    first: int
    until: int | None
    cause: str

    @property
    def events(self) -> int:
        return self.until - self.first if self.until is not None else 0


def resume(writer: TableWriter, log: PointerLog, ledger: Ledger, clock: Clock) -> tuple[dict[int, int], list[Loss]]:
    """Before a stream starts: where to read on, and what was lost since the last time. Twice is once."""
    consumed = writer.progress(EVENTS).offsets
    begin, end, identity = log.begin(), log.end(), log.identity()
    for partition in {*consumed, *end}:
        # Claims of a batch that never was committed.
        ledger.forget_claims_from(partition, consumed.get(partition, 0))
    replaced = ledger.fact(IDENTITY) not in {None, identity}
    again = [partition for partition, offset in consumed.items() if replaced or offset > end.get(partition, 0)]
    for partition in again:
        ledger.seal_claims(partition)
    losses = [Loss(partition, consumed[partition], None, "the log was made anew") for partition in again]
    start = {partition: offset for partition, offset in consumed.items() if partition not in again}
    losses += expired(begin, start)
    record_losses(ledger, losses, clock())
    if losses:
        start |= {partition: max(begin[partition], start.get(partition, 0)) for partition in begin}
        _move(writer, start)
    ledger.set_fact(IDENTITY, identity)
    return start, losses


def expired(begin: Mapping[int, int], read_from: Mapping[int, int]) -> list[Loss]:
    """Pure: what lies between where reading would go on and where the log now begins."""
    ahead = ((partition, read_from.get(partition, 0), first) for partition, first in begin.items())
    return [Loss(partition, offset, first, "expired unread") for partition, offset, first in ahead if first > offset]


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


def pass_markers(writer: TableWriter, log: PointerLog, ends: Mapping[int, int]) -> None:
    """After all lines before `ends` were read: what is still between there and the position are marks of transactions,
    which have offsets and no lines, and would count as lag for ever."""
    consumed, begin = writer.progress(EVENTS).offsets, log.begin()
    behind = {partition: end for partition, end in ends.items() if end > consumed.get(partition, 0)}
    # What has expired meanwhile is no mark: the next start tells it as lost.
    behind = {partition: end for partition, end in behind.items() if begin[partition] <= consumed.get(partition, 0)}
    if behind:
        _move(writer, {**consumed, **behind})


def record_losses(ledger: Ledger, losses: Iterable[Loss], now: datetime) -> None:
    """One open line of the journal for each; a loss that is written down already is not written again."""
    known = [dict(run.detail) for run in ledger.unfinished(LOST)]
    for loss in losses:
        detail: dict[str, Any] = asdict(loss)
        if detail not in known:
            ledger.start_run(LOST, now, detail)


def _move(writer: TableWriter, start: Mapping[int, int]) -> None:
    position = {"log": {str(partition): offset for partition, offset in start.items()}}
    for table in (QUARANTINE, EVENTS):
        writer.publish(table, None, position, since=writer.progress(table), stage="continuity")
