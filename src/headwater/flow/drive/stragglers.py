"""Stragglers: objects that their batch did not wait for, derived beside the run, as long as the limits let them.

Reads   silver.quarantine (reason SLOW), bronze.events, the raw store
Writes  what derive writes
Key     a row of quarantine
Invariant: each stays in quarantine until what came of it is committed, so a kill loses none; and only those are taken
whose batch is committed in every table, so none is derived twice.

They have half of the workers, and never all of them, unless there is one: the next batch always finds room. However
many wait, a look reads so many of them, and their rows are taken out of quarantine by the portion, since that writes
files anew: after a kill some that are done are derived once more, and tables leave alone what they have.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from headwater.clock import Clock
from headwater.domain.model_book import ModelBook
from headwater.domain.quarantine import SLOW, STRAGGLERS
from headwater.domain.steps import derived_tables
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.flow.derive.corrected import Corrections
from headwater.flow.derive.plan import plan_work
from headwater.flow.derive.stage import derive_again
from headwater.flow.drive.loop import Loop
from headwater.flow.drive.retry import pending_again, settled
from headwater.flow.drive.retry_schedule import has_stragglers, note_set_aside_in
from headwater.flow.runner import Record
from headwater.storage.ledger.dismissals import QuarantineKey, find_dismissals
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.storage.spark.session import POOL
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import collect, read_table
from headwater.storage.tables.rewrite_files import remove_seqs
from headwater.storage.tables.writer import TableWriter

_POOL: Final = "stragglers"
_LOOK_ROWS: Final = 256  # read at once
_PORTION_MAX: Final = 1_024
_PORTION_SECONDS: Final = 30.0  # after which those that are done do not wait for a portion to be full


@dataclass(slots=True)
class Stragglers:
    """`expect` it whenever some were set aside; `stop` it with the run."""

    writer: TableWriter
    ledger: Ledger
    clock: Clock
    record: Record
    corrections: Corrections
    _loops: list[Loop] = field(init=False)
    _expected: bool = False
    _started: bool = False
    _waiting: list[Row] = field(default_factory=list)  # as they were when last looked at
    _taken: dict[int, str] = field(default_factory=dict)  # by the row's seq: the content, which is derived once
    _done: set[int] = field(default_factory=set)  # and not yet taken out of quarantine
    _portion: int = 1  # doubles, so that however many there are a file is written anew a handful of times
    _removed_at: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        places = max(1, self.writer.spark.sparkContext.defaultParallelism // 2)
        self._loops = [Loop(f"straggler {number}", self._derive_one) for number in range(places)]

    def start(self) -> None:
        """From here on; those that an earlier run has left first."""
        self._expected, self._started = has_stragglers(self.ledger), True
        for loop in self._loops:
            loop.start()

    def expect(self) -> None:
        """Some were set aside. It is written down, so that another run knows if this one ends before they are done."""
        with self._lock:
            self.ledger.set_fact(STRAGGLERS, "yes")
            self._expected = True
        for loop in self._loops:
            loop.wake()

    def check(self) -> None:
        for loop in self._loops:
            loop.check()

    def finish(self) -> None:
        """Derive all that there are; nobody else may set some aside meanwhile."""
        if not self._started:
            return
        for loop in self._loops:
            loop.finish()
        if not self._expected:
            self.ledger.set_fact(STRAGGLERS, "")

    def stop(self) -> None:
        for loop in self._loops:
            loop.stop()

    def _derive_one(self) -> bool:
        self.writer.spark.sparkContext.setLocalProperty(POOL, _POOL)
        taken = self._take()
        if taken is None:
            self._remove_done()
            return False
        begun, number = time.monotonic(), taken["seq"]
        try:
            held = read_table(self.writer.spark, QUARANTINE).where(F.col("seq") == number)
            held = held.withColumn("held", F.col("seq"))
            workers = self.writer.spark.sparkContext.defaultParallelism
            work = plan_work(self.writer.settings, read_book(self.ledger), now=self.clock(), share=workers)
            pending = pending_again(self.writer, held, work)
            derived = derive_again(
                self.writer, pending, work, workers, note_set_aside_in(self.ledger, self.clock), self.corrections
            )
            with self._lock:
                self._done.add(number)
        finally:
            with self._lock:
                del self._taken[number]
        self.record("straggler", derived.to_committed(work.labels()), begun)
        if self._is_portion():
            self._remove_done()
        return True

    def _is_portion(self) -> bool:
        with self._lock:
            waited = time.monotonic() - self._removed_at
            return len(self._done) >= self._portion or waited >= _PORTION_SECONDS

    def _remove_done(self) -> None:
        """They count as done until they are out: a look between the two must not find them."""
        with self._lock:
            numbers = sorted(self._done)
            self._portion = min(_PORTION_MAX, 2 * self._portion) if len(numbers) >= self._portion else self._portion
            self._removed_at = time.monotonic()
        remove_seqs(self.writer, QUARANTINE, numbers)
        with self._lock:
            self._done -= set(numbers)

    def _take(self) -> Row | None:
        """The oldest that nobody is at; where there is none at all, nobody need look again before some are expected."""
        with self._lock:
            if not self._expected:
                return None
            if not self._waiting:
                self._waiting = self._look()
            self._expected = bool(self._waiting or self._taken)
            busy = set(self._taken.values())
            found = next((row for row in self._waiting if row["content"] not in busy), None)
            if found is not None:
                self._waiting.remove(found)
                self._taken[found["seq"]] = found["content"]
            return found

    def _look(self) -> list[Row]:
        """The oldest that nobody is at, some of them."""
        book = read_book(self.ledger)
        slow = (F.col("reason") == SLOW) & settled(book) & (F.col("event_seq") < self._committed(book))
        waiting = read_table(self.writer.spark, QUARANTINE).where(slow)
        columns = ("seq", F.col("pointer.checksum").alias("content"), *QuarantineKey._fields)
        known, last = {*self._taken, *self._done}, -1
        while True:
            some = collect(waiting.where(F.col("seq") > last).select(*columns).orderBy("seq").limit(_LOOK_ROWS))
            if not some:
                return []
            last = some[-1]["seq"]
            if found := [row for row in self._not_dismissed(some) if row["seq"] not in known]:
                return found

    def _not_dismissed(self, rows: Sequence[Row]) -> list[Row]:
        let_go = find_dismissals(self.ledger, map(QuarantineKey.of, rows))
        return [row for row in rows if QuarantineKey.of(row) not in let_go]

    def _committed(self, book: ModelBook) -> int:
        """Events before this one are in every table that derive moves on with each batch."""
        return min(
            read_progress(self.writer.tables, table).seq_of(EVENTS.name) for table in derived_tables(book.steps_kept())
        )
