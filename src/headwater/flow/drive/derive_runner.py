"""Derive in a run: batch after batch, of a size that is learnt; beside them the stragglers; and what is due for a retry
when there is no batch."""

import time

from headwater.flow.derive.plan import plan_work
from headwater.flow.derive.stage import derive_next, is_cut_short
from headwater.flow.derive.work import Work
from headwater.flow.drive.batch_size import BatchSize
from headwater.flow.drive.retry import Retrying, note_due
from headwater.flow.drive.retry_schedule import is_retry_due, note_set_aside_in
from headwater.flow.drive.stragglers import Stragglers
from headwater.flow.rows import BatchLimit, batch_limit
from headwater.flow.runner import Committed, Record, RunContext, StageRunner
from headwater.flow.spent import Spent


class DeriveRunner(StageRunner):
    def __init__(self, context: RunContext, record: Record) -> None:
        super().__init__(context, record)
        self.stragglers = Stragglers(context.writer, context.ledger, context.clock, record)
        self._on_set_aside = note_set_aside_in(context.ledger, context.clock)
        self._batch_size = BatchSize(context.settings.number("run.batch_seconds"), batch_limit(context.writer).rows)

    def start(self) -> None:
        self.stragglers.start()

    def run_batch(self) -> Committed | None:
        """In the order of arrival."""
        limit = batch_limit(self.context.writer)
        limit = BatchLimit(self._batch_size.within(limit.rows), limit.bytes)
        work = self._work()
        begun = time.monotonic()
        derived = derive_next(self.context.writer, work, limit, self.context.workers, self._on_set_aside)
        if derived is None:
            return None
        self._batch_size.learn(derived.events, time.monotonic() - begun)
        if derived.slow:
            self.stragglers.expect()
        return derived.to_committed(work.labels())

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
