"""Derive in a run: batch after batch, of a size that is learnt; beside them the stragglers; and what is due for a retry
when there is no batch."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headwater.domain.steps import derived_tables
from headwater.domain.tables import EVENTS
from headwater.flow.derive.corrected import Corrections, IndexDown
from headwater.flow.derive.plan import plan_work
from headwater.flow.derive.stage import Derived, derive_next, is_cut_short
from headwater.flow.derive.work import Work
from headwater.flow.drive.batch_size import FIRST_BYTES, BatchBytes, BatchSize
from headwater.flow.drive.outage import Outage
from headwater.flow.drive.retry import Retrying, note_due
from headwater.flow.drive.retry_schedule import is_retry_due, note_set_aside_in
from headwater.flow.drive.stragglers import Stragglers
from headwater.flow.map import EMBED, INDEX
from headwater.flow.rows import BatchLimit, batch_limit
from headwater.flow.runner import Committed, Record, RunContext, StageRunner
from headwater.flow.spent import Spent
from headwater.storage.tables.read_progress import read_progress


class DeriveRunner(StageRunner):
    def __init__(self, context: RunContext, record: Record) -> None:
        super().__init__(context, record)
        self._corrections = Corrections(context.writer, context.ledger, context.index, self._rest, self._note_corrected)
        self._index = Outage("index", IndexDown)
        self.stragglers = Stragglers(context.writer, context.ledger, context.clock, record, self._corrections)
        self._on_set_aside = note_set_aside_in(context.ledger, context.clock)
        self._batch_bytes = BatchBytes(context.settings.number("run.batch_seconds"), FIRST_BYTES * context.workers)
        self._batch_size = BatchSize(context.settings.number("run.batch_seconds"), batch_limit(context.writer).rows)

    def start(self) -> None:
        self.stragglers.start()

    def run_batch(self) -> Committed | None:
        """In the order of arrival."""
        limit = batch_limit(self.context.writer)
        rows, size = self._batch_size.within(limit.rows), self._batch_bytes.within(limit.bytes)
        limit = BatchLimit(rows, size, least=self.context.workers)
        work = self._work()
        begun = time.monotonic()
        derived: Derived | None = self._index.spared(lambda: self._derive(work, limit))
        if derived is None:
            return None
        seconds = time.monotonic() - begun
        self._batch_size.learn(derived.events, seconds)
        self._batch_bytes.learn(derived.bytes, seconds)
        if derived.slow:
            self.stragglers.expect()
        made = derived.to_committed(work.labels())
        return replace(made, facts={**made.facts, **self._left(derived.events, seconds)})

    def _derive(self, work: Work, limit: BatchLimit) -> Derived | None:
        context = self.context
        return derive_next(context.writer, work, limit, context.workers, self._on_set_aside, self._corrections)

    @contextmanager
    def _rest(self) -> Iterator[None]:
        with self.context.held_back(EMBED), self.context.held_back(INDEX):
            yield

    def _note_corrected(self, objects: int) -> None:
        self.record("corrected", Committed(objects), time.monotonic())

    def require_done(self) -> None:
        self._index.require_over()

    def _left(self, done: int, seconds: float) -> dict[str, float]:
        """How many events wait behind this batch, and how long they will take if they go as it went."""
        writer, kept = self.context.writer, derived_tables(self.context.book().steps_kept())
        reached = min(read_progress(writer.tables, table).seq_of(EVENTS.name) for table in kept)
        left = max(0, read_progress(writer.tables, EVENTS).next_seq - reached)
        return {"left": left, "seconds_left": round(left * seconds / max(1, done))}

    def run_idle(self) -> bool:
        """What was down for a while is tried again when its time has come."""
        ledger, clock = self.context.ledger, self.context.clock
        if not is_retry_due(ledger, clock()):
            return False
        begun, book = time.monotonic(), self.context.book()
        spent: dict[str, Spent] = {}
        retried = Retrying(self.context.writer, ledger, book, clock, hurried=True).due(spent)
        self.look_again()
        facts = {"rows": retried.tried, "recovered": retried.recovered}
        self.record("retry", Committed(retried.recovered, None, spent, book.labels(), facts), begun)
        return retried.tried > 0

    def check(self) -> None:
        self.stragglers.check()

    def finish(self) -> None:
        self.stragglers.finish()

    def stop(self) -> None:
        self.stragglers.stop()

    def look_again(self) -> None:
        """Quarantine has changed: find out what is due next, and whether there are stragglers."""
        note_due(self.context.spark, self.context.ledger)
        self.stragglers.expect()

    def end_cut_short(self) -> None:
        """Derive the rest of a batch that a kill left in some tables only, before rows are added in another way."""
        while is_cut_short(self.context.writer, self.context.book()):
            begun = time.monotonic()
            made = self.run_batch()
            if made is None:
                return
            self.record("derive", made, begun)

    def _work(self) -> Work:
        context = self.context
        work = plan_work(context.settings, context.book(), now=context.clock(), share=context.workers)
        return work.hurried()
