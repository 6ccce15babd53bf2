"""Intake: what the log holds, brought into bronze; all there is now, or on and on beside the other stages.

A line's way is one: an intake reads it, `flow.bronze` judges it and commits it. An embedded log is read segment by
segment (`directory_intake.py`): Spark's file source would read the same files, seconds later. Any other log comes
through Spark Structured Streaming, in bounded micro-batches (`stream_intake.py`).

A log that is wiped, replaced or set back while it is read is begun anew, as its `Continuity` tells; so it is where the
table was set back, because what is read on is kept in memory here.

A commit of every table costs as much as some thousand rows, so events that trickle in are gathered: few of them wait
for others until `run.freshness_seconds` after the last ones. The first after a pause, and many at once, never wait.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from headwater import telemetry
from headwater.domain.tables import EVENTS
from headwater.errors import Unavailable
from headwater.flow import bronze
from headwater.flow.log.continuity import Continuity, Loss, ReadAnew
from headwater.flow.map import BRONZE
from headwater.flow.runner import Committed, Record, RunContext
from headwater.storage.tables.read_progress import read_progress

MANY_EVENTS: Final = 100  # which are worth a commit of their own, however recent the last one
_EXPIRE_SECONDS: Final = 3600.0

Count = Callable[[str, int], None]


class Intake(ABC):
    """The lane of bronze: its batches are pushed by the log. `resume` it before anything else. Once the run's `stop` is
    set no more comes in, and that is no fault."""

    def __init__(self, context: RunContext, record: Record, count: Count) -> None:
        self.context = context
        self._record, self._count = record, count
        self._continuity = Continuity(context.writer, context.log, context.ledger, context.clock, self._report_losses)
        self._from: Mapping[int, int] = {}  # the offset to begin at, by partition
        self._expire_after = 0.0

    def resume(self) -> None:
        """Find where to read on; what was lost since the last time is told."""
        self._from = self._continuity.resume()

    @abstractmethod
    def drain(self) -> None:
        """Bring in what the log holds now."""

    @abstractmethod
    def start(self) -> None:
        """Begin to bring in what comes, on a thread of its own."""

    @abstractmethod
    def check(self) -> None:
        """Raise what has ended it, where it no longer follows."""

    @abstractmethod
    def stop(self) -> None:
        """A batch under way is left as it is: what was not committed is brought in again. Twice is once."""

    def wake(self) -> None:
        """No stage of a run writes to the log: nobody need be told."""
        return

    def finish(self) -> None:
        """Bring in no more."""
        self.check()
        self.stop()
        self.check()

    def expire(self) -> None:
        """Drop segments that are consumed and past retention; once an hour, or a run that goes on for weeks would keep
        every event that it has read."""
        if time.monotonic() < self._expire_after:
            return
        self._expire_after = time.monotonic() + _EXPIRE_SECONDS
        with suppress(ReadAnew):  # positions say nothing of another log; it is begun anew
            self._continuity.check()
            self.context.log.expire(self.context.clock(), read_progress(self.context.settings, EVENTS).offsets)

    def take(self, lines: DataFrame | pa.Table) -> None:
        """A batch of lines, as `storage.log.stream` gives them, into bronze."""
        begun, context, continuity = time.monotonic(), self.context, self._continuity
        taken = bronze.take(
            context.writer, lines, continuity.position, log=context.log, ledger=context.ledger, clock=context.clock
        )
        continuity.position = taken.position
        self._report_losses(taken.losses)
        next_seq: int | None = None
        with suppress(Unavailable):  # what was committed is counted, whether or not the catalog still answers
            next_seq = read_progress(context.settings, EVENTS).next_seq
        self._record(BRONZE.name, Committed(taken.events, taken.quarantined, facts={"next_seq": next_seq}), begun)

    def _report_losses(self, losses: Sequence[Loss]) -> None:
        if losses:
            self._count("lost", sum(loss.events for loss in losses))
            telemetry.note(
                "log.lost", level="error", losses=[loss.to_dict() for loss in losses], way_out="headwater rescan"
            )
