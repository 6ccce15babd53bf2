"""Run: bring what is pending through the stages, once or until stopped.

One Spark session for the whole run. The intake brings the log into bronze on a thread of its own, so events come in
while models work; derive goes on here, and what it made is embedded and indexed on a third thread. One run a lake: the
lease names who holds it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater import telemetry
from headwater.clock import Clock
from headwater.domain.quarantine import Retried
from headwater.domain.tables import EMBEDDINGS, EVENTS
from headwater.errors import Unavailable
from headwater.flow import bronze
from headwater.flow.derive.plan import plan_work
from headwater.flow.derive.stage import Derived, derive_next, is_cut_short
from headwater.flow.derive.work import Work
from headwater.flow.derive.worker import derive_soon
from headwater.flow.drive.account import Account, tell_commit
from headwater.flow.drive.findable import Findable
from headwater.flow.drive.intake import Intake, open_intake
from headwater.flow.drive.loop import Loop
from headwater.flow.drive.pace import Pace
from headwater.flow.drive.pending import expect_aside, is_due
from headwater.flow.drive.register_models import introduce, settle_models
from headwater.flow.drive.retry import Retrying, note_due
from headwater.flow.drive.stragglers import Stragglers
from headwater.flow.embed.stage import Embeddings
from headwater.flow.log.continuity import Continuity, Loss, ReadAnew
from headwater.flow.parts import wake_workers
from headwater.flow.rows import Cut, batch_cut
from headwater.flow.spent import Spent
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.spark.errors import check_jvm
from headwater.storage.spark.session import POOL
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.writer import TableWriter

_STOP_LOOK_SECONDS: Final = 0.2
_EXPIRE_SECONDS: Final = 3600.0


# Told after every commit, with the stage and how many it did; a progress bar or a log line.
Report = Callable[[str, int], None]


@dataclass(slots=True)
class Run:
    """The live parts of one run, and what it has done so far."""

    writer: TableWriter
    ledger: Ledger
    log: PointerLog
    index: VectorIndex
    clock: Clock
    report: Report
    stop: threading.Event = field(default_factory=threading.Event)
    account: Account = field(default_factory=Account)
    _came: threading.Event = field(default_factory=threading.Event)
    _ends: ExitStack = field(default_factory=ExitStack)
    _continuity: Continuity = field(init=False, repr=False)
    _intake: Intake = field(init=False, repr=False)
    findable: Findable = field(init=False)
    _finding: Loop = field(init=False)
    stragglers: Stragglers = field(init=False)
    _without: str = ""
    _resting: bool = False
    _pace: Pace = field(init=False)
    _expire_after: float = 0.0

    @property
    def spark(self) -> SparkSession:
        return self.writer.spark

    @property
    def settings(self) -> Settings:
        return self.writer.settings

    def __post_init__(self) -> None:
        self._continuity = Continuity(self.writer, self.log, self.ledger, self.clock, self._tell_lost)
        self.findable = Findable(self.writer, self.ledger, self.index, self.clock, self._tell_found)
        self._finding = Loop("embed and index", self._make_findable)
        self.stragglers = Stragglers(self.writer, self.ledger, self.clock, self._tell_derived)
        self._pace = Pace(self.settings.number("run.batch_seconds"), batch_cut(self.writer).rows)

    def once(self) -> dict[str, int]:
        """Drain the log and every stage, then return the counts."""
        with self.interruptible():
            self.begin()
            self._intake.drain()
            self._finding.start()
            self.stragglers.start()
            while not self.stop.is_set() and (self.derive() or self._retry_due()):
                self._finding.check()
                self.stragglers.check()
            self.finish()
            if not self.stop.is_set():
                self.findable.check()
        return self.account.done

    def until_stopped(self) -> dict[str, int]:
        """Stream until `stop` is set. Work under way is left as it is: what was not committed is done again."""
        with self.interruptible():
            self.begin()
            self.follow()
            while not self.stop.is_set():
                self.check()
                self._expire()
                self._came.clear()
                self._resting = not self.derive() and not self._retry_due()
                if self._resting:
                    self.wake()  # to organise the index, and to ask an embedder again that was down
                    self._came.wait(self.settings.number("run.trigger_seconds"))
        return self.account.done

    def retry(self, reason: str | None, model: str | None) -> Retried:
        """Try again what is quarantined, at once; with `model` by that one, on the steps that it is for."""
        settle_models(self.settings, self.ledger, self.clock)
        self.end_cut_short()
        known = introduce(self.settings, self.ledger, self.clock, model) if model else None
        book = read_book(self.ledger)
        spent: dict[str, Spent] = {}
        retried = Retrying(self.writer, self.ledger, book, self.clock, known).all_of(reason, spent)
        note_due(self.spark, self.ledger)
        self.account.add(spent, book.labels())
        self.account.count("tried", retried.tried)
        self.account.count("recovered", retried.recovered)
        return retried

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A stop does not wait for a model: Spark's jobs are cancelled, and what is not committed is done again.

        The same where one of the threads fails: the others are not waited for.
        """
        failed, ended = threading.Event(), threading.Event()

        def cancel_when_stopped() -> None:
            while not ended.wait(_STOP_LOOK_SECONDS):
                if self.stop.is_set() or failed.is_set():
                    self._came.set()
                    with suppress(Exception):  # a JVM that is gone has no jobs, and who waits for them knows by himself
                        self.spark.sparkContext.cancelAllJobs()

        watcher = threading.Thread(target=cancel_when_stopped, name="stop", daemon=True)
        watcher.start()
        try:
            yield
        except BaseException as error:
            failed.set()
            cancelled = any(isinstance(one, PySparkException | Py4JError) for one in (error, error.__cause__))
            if not (self.stop.is_set() and cancelled):
                raise
        finally:
            try:
                self._ends.close()
            finally:
                ended.set()
                watcher.join()

    def begin(self) -> None:
        """Find where to read on and with which models, and drop log segments that are consumed and past retention."""
        wake_workers(self.spark, derive_soon(Work({}, self.settings, self.clock())))
        settle_models(self.settings, self.ledger, self.clock)
        start = self._continuity.resume()
        self._expire()
        self._intake = open_intake(self.writer, self.log, start, self._bring, self.stop, self._continuity)
        self._ends.callback(self._intake.stop)
        self._ends.callback(self._finding.stop)
        self._ends.callback(self.stragglers.stop)

    def _expire(self) -> None:
        """Once an hour: a run that goes on for weeks would else keep every event that it has read."""
        if time.monotonic() < self._expire_after:
            return
        self._expire_after = time.monotonic() + _EXPIRE_SECONDS
        with suppress(ReadAnew):  # positions say nothing of another log; the intake begins it anew
            self._continuity.check()
            self.log.expire(self.clock(), read_progress(self.settings, EVENTS).offsets)

    def follow(self, *, without: str = "") -> None:
        """What comes is brought in, and what was made is embedded and indexed, from here on; one stage may rest."""
        self._without = without
        self._intake.follow()
        self._finding.start()
        if without != "derive":
            self.stragglers.start()

    def check(self) -> None:
        """Raise what has ended one of the other threads, or Spark."""
        check_jvm()
        self._intake.check()
        self._finding.check()
        self.stragglers.check()

    def finish(self) -> None:
        """Bring in no more; derive, embed and index what there is, and organise it, unless the run is stopped."""
        self._intake.check()
        self._intake.stop()
        self._intake.check()
        while not self.stop.is_set() and self.derive():
            self._finding.check()
        if not self.stop.is_set():
            self.stragglers.finish()
        self._resting = True
        self._finding.finish()

    def end_cut_short(self) -> None:
        """Derive the rest of a batch that a kill left in some tables only, before rows are added in another way."""
        while is_cut_short(self.writer, read_book(self.ledger)) and self._derive():
            pass

    def _tell_lost(self, losses: Sequence[Loss]) -> None:
        if losses:
            self._count("lost", sum(loss.events for loss in losses))
            telemetry.note(
                "log.lost", level="error", losses=[loss.to_dict() for loss in losses], way_out="headwater rescan"
            )

    def _bring(self, lines: DataFrame | pa.Table) -> None:
        begun = time.monotonic()
        follows = self._continuity.position
        taken = bronze.take(self.writer, lines, follows, log=self.log, ledger=self.ledger, clock=self.clock)
        self._continuity.position = taken.position
        self._tell_lost(taken.losses)
        self._count("bronze", taken.events)
        self._count_quarantined(taken.quarantined, "bronze")
        tell_commit("bronze", taken.events, begun, next_seq=read_progress(self.settings, EVENTS).next_seq)
        self._came.set()

    def derive(self) -> bool:
        """One batch; False when there was nothing to do."""
        return self._without != "derive" and self._derive()

    def wake(self) -> None:
        """Something was made that can be embedded and indexed."""
        self._finding.wake()

    def _make_findable(self) -> bool:
        if self.stop.is_set():
            return False
        self.spark.sparkContext.setLocalProperty(POOL, "findable")
        stages = {"embed": self.findable.embed, "index": self.findable.follow}
        worked = [work() for name, work in stages.items() if name != self._without]
        if not any(worked) and self._resting:
            self.findable.organise()
        return any(worked)

    def _tell_found(self, stage: str, done: int, begun: float, made: Embeddings | None) -> None:
        self._count(stage, done)
        if made is not None:
            self._count_quarantined(made.quarantined, stage)
            self.account.add(made.efforts, read_book(self.ledger).labels())
        next_seq: int | None = None
        with suppress(Unavailable):  # an index that went down since ends no run
            next_seq = self.index.position() if made is None else read_progress(self.writer.tables, EMBEDDINGS).next_seq
        tell_commit(stage, done, begun, next_seq=next_seq)

    def _derive(self) -> bool:
        cut = batch_cut(self.writer)
        cut = Cut(self._pace.within(cut.rows), cut.bytes)
        work = self._work()
        begun = time.monotonic()
        derived = derive_next(self.writer, work, cut, self._workers, self.expect_aside)
        if derived is None:
            return False
        self._pace.learn(derived.events, time.monotonic() - begun)
        self._tell_derived("derive", derived, begun, work)
        if derived.slow:
            self.stragglers.expect()
        return True

    def _tell_derived(self, stage: str, derived: Derived, begun: float, work: Work) -> None:
        self._count(stage, derived.events)
        self._count_quarantined(derived.quarantined, stage)
        self.account.add(derived.efforts, work.labels())
        tell_commit(stage, derived.events, begun, tables=dict(derived.rows))
        self.wake()

    @property
    def _workers(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def _work(self) -> Work:
        """The book is read for every batch: a model that was activated or retired meanwhile counts from here on."""
        work = plan_work(self.settings, read_book(self.ledger), now=self.clock(), share=self._workers)
        return work.hurried()

    def expect_aside(self, passing: int, slow: int) -> None:
        expect_aside(self.ledger, self.clock(), passing, slow)

    def _count_quarantined(self, rows: int, stage: str) -> None:
        self._count("quarantine", rows)
        if rows:
            telemetry.note("quarantine.grew", level="warning", stage=stage, rows=rows)

    def _retry_due(self) -> bool:
        """What was down for a while is tried again when its time has come."""
        if not is_due(self.ledger, self.clock()):
            return False
        begun = time.monotonic()
        book = read_book(self.ledger)
        spent: dict[str, Spent] = {}
        retried = Retrying(self.writer, self.ledger, book, self.clock, hurried=True).due(spent)
        note_due(self.spark, self.ledger)
        self.stragglers.expect()
        self.account.add(spent, book.labels())
        self.wake()
        tell_commit("retry", retried.tried, begun, recovered=retried.recovered)
        self._count("retry", retried.recovered)
        return retried.tried > 0

    def _count(self, stage: str, done: int) -> None:
        self.account.count(stage, done)
        self.report(stage, done)
