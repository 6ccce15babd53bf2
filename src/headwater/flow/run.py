"""Run: bring what is pending through the stages, once or until stopped.

One Spark session for the whole run. The intake brings the log into bronze on a thread of its own, so events come in
while models work; derive goes on here, and what it made is embedded and indexed on a third thread. One run a lake: the
lease names who holds it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

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
from headwater.flow.account import Account
from headwater.flow.continuity import Loss, resume
from headwater.flow.derive.batch import Cut
from headwater.flow.derive.plan import plan_work
from headwater.flow.derive.stage import derive_next, is_cut_short
from headwater.flow.derive.worker import Work, derive_soon
from headwater.flow.embed.stage import embed_next
from headwater.flow.index import index_next
from headwater.flow.intake import Intake, open_intake
from headwater.flow.loop import Loop
from headwater.flow.models.introduce import introduce, settle_models
from headwater.flow.pace import Pace
from headwater.flow.parts import wake_workers
from headwater.flow.pending import is_due
from headwater.flow.retry import Retrying, note_due
from headwater.flow.spent import Spent
from headwater.settings import Settings
from headwater.storage.ledger import Ledger
from headwater.storage.model_book import read_book
from headwater.storage.peek import peek_progress
from headwater.storage.pointer_log import PointerLog
from headwater.storage.spark import POOL
from headwater.storage.vector_index import VectorIndex

# Embeddings and index entries are small beside what they are made from.
_TEXTS_AT_ONCE: Final = 20_000
_VECTORS_AT_ONCE: Final = 20_000  # a vector weighs 4 kB
_STOP_LOOK_SECONDS: Final = 0.2
_EXPIRE_SECONDS: Final = 3600.0
_DOWN_SECONDS: Final = 10.0  # before an embedder that did not answer is asked again


# Told after every commit, with the stage and how many it did; a progress bar or a log line.
Report = Callable[[str, int], None]


@dataclass(slots=True)
class Run:
    """The live parts of one run, and what it has done so far."""

    spark: SparkSession
    settings: Settings
    ledger: Ledger
    log: PointerLog
    index: VectorIndex
    clock: Clock
    report: Report
    stop: threading.Event = field(default_factory=threading.Event)
    account: Account = field(default_factory=Account)
    _unsettled: bool = False
    _came: threading.Event = field(default_factory=threading.Event)
    # Held by who embeds texts: the stage must not move on while a replay finds out whether it has caught up.
    embedding: threading.Lock = field(default_factory=threading.Lock)
    _ends: ExitStack = field(default_factory=ExitStack)
    _intake: Intake = field(init=False, repr=False)
    _findable: Loop = field(init=False)
    _without: str = ""
    _resting: bool = False
    _pace: Pace = field(init=False)
    _embedder_down: Unavailable | None = None
    _embed_after: float = 0.0
    _expire_after: float = 0.0

    def __post_init__(self) -> None:
        self._findable = Loop("embed and index", self._make_findable)
        self._pace = Pace(self.settings.number("run.batch_seconds"), self.settings.whole("run.batch_rows"))

    def once(self) -> dict[str, int]:
        """Drain the log and every stage, then return the counts."""
        with self.interruptible():
            self.begin()
            self._intake.drain()
            self._findable.start()
            while not self.stop.is_set() and (self.derive() or self._retry_due()):
                self._findable.check()
            self.finish()
            if self._embedder_down:
                raise self._embedder_down
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
        retried = Retrying(self.spark, self.settings, book, self.clock, known).all_of(reason, spent)
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
                    self.spark.sparkContext.cancelAllJobs()

        watcher = threading.Thread(target=cancel_when_stopped, name="stop", daemon=True)
        watcher.start()
        try:
            yield
        except BaseException as error:
            failed.set()
            if not (self.stop.is_set() and isinstance(error, PySparkException | Py4JError)):
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
        start, losses = resume(self.spark, self.log, self.ledger, self.clock)
        self._tell_lost(losses)
        self._expire()
        self._intake = open_intake(self.spark, self.settings, self.log, start, self._bring, self.stop)
        self._ends.callback(self._intake.stop)
        self._ends.callback(self._findable.stop)

    def _expire(self) -> None:
        """Once an hour: a run that goes on for weeks would else keep every event that it has read."""
        if time.monotonic() >= self._expire_after:
            self._expire_after = time.monotonic() + _EXPIRE_SECONDS
            self.log.expire(self.clock(), peek_progress(self.settings, EVENTS).offsets)

    def follow(self, *, without: str = "") -> None:
        """What comes is brought in, and what was made is embedded and indexed, from here on; one stage may rest."""
        self._without = without
        self._intake.follow()
        self._findable.start()

    def check(self) -> None:
        """Raise what has ended one of the other threads."""
        self._intake.check()
        self._findable.check()

    def finish(self) -> None:
        """Bring in no more; derive, embed and index what there is, and organise it, unless the run is stopped."""
        self._intake.check()
        self._intake.stop()
        self._intake.check()
        while not self.stop.is_set() and self.derive():
            self._findable.check()
        self._resting = True
        self._findable.finish()

    def end_cut_short(self) -> None:
        """Derive the rest of a batch that a kill left in some tables only, before rows are added in another way."""
        while is_cut_short(self.settings, pictures=bool(read_book(self.ledger).kept("picture"))) and self._derive():
            pass

    def _tell_lost(self, losses: Sequence[Loss]) -> None:
        if losses:
            self._count("lost", sum(loss.events for loss in losses))
            telemetry.note(
                "log.lost", level="error", losses=[asdict(loss) for loss in losses], way_out="headwater rescan"
            )

    def _bring(self, spark: SparkSession, lines: DataFrame | pa.Table) -> None:
        begun = time.monotonic()
        taken = bronze.take(spark, lines, log=self.log, ledger=self.ledger, clock=self.clock)
        self._tell_lost(taken.losses)
        self._count("bronze", taken.events)
        _tell_commit("bronze", taken.events, begun, next_seq=peek_progress(self.settings, EVENTS).next_seq)
        self._came.set()

    def derive(self) -> bool:
        """One batch; False when there was nothing to do."""
        if self._without == "derive" or not self._derive():
            return False
        self.wake()
        return True

    def wake(self) -> None:
        """Something was made that can be embedded and indexed."""
        self._findable.wake()

    def _make_findable(self) -> bool:
        if self.stop.is_set():
            return False
        self.spark.sparkContext.setLocalProperty(POOL, "findable")
        stages = {"embed": self._embed, "index": self._index}
        worked = [work() for name, work in stages.items() if name != self._without]
        if not any(worked) and self._resting and self._unsettled:
            # Nothing is pending: time to organise what was indexed.
            self.index.optimise()
            self._unsettled = False
        return any(worked)

    def _derive(self) -> bool:
        cut = Cut(self._pace.rows, self.settings.whole("run.batch_bytes"))
        work = self._work()
        begun = time.monotonic()
        derived = derive_next(self.spark, work, cut, self._workers)
        if derived is None:
            return False
        self._pace.learn(derived.events, time.monotonic() - begun)
        self._count("derive", derived.events)
        self._count_quarantined(derived.quarantined, "derive")
        self.account.add(derived.efforts, work.labels())
        _tell_commit("derive", derived.events, begun, tables=dict(derived.rows))
        return True

    @property
    def _workers(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def _work(self) -> Work:
        """The book is read for every batch: a model that was activated or retired meanwhile counts from here on."""
        return plan_work(self.settings, read_book(self.ledger), now=self.clock(), share=self._workers)

    def _count_quarantined(self, rows: int, stage: str) -> None:
        self._count("quarantine", rows)
        if rows:
            note_due(self.spark, self.ledger)
            telemetry.note("quarantine.grew", level="warning", stage=stage, rows=rows)

    def _embed(self) -> bool:
        """A model that does not answer lets the texts wait; everything before it goes on."""
        begun = time.monotonic()
        if begun < self._embed_after:
            return False
        try:
            with self.embedding:
                book = read_book(self.ledger)
                made = embed_next(
                    self.spark, self.settings, book.kept("embed"), batch_rows=_TEXTS_AT_ONCE, clock=self.clock
                )
            self._embedder_down = None
        except Unavailable as error:
            self._embedder_down, self._embed_after = error, time.monotonic() + _DOWN_SECONDS
            telemetry.note("embedder.down", level="warning", detail=str(error))
            return False
        if made is None:
            return False
        self._count("embed", made.vectors)
        self._count_quarantined(made.quarantined, "embed")
        self.account.add(made.efforts, book.labels())
        _tell_commit("embed", made.vectors, begun, next_seq=peek_progress(self.settings, EMBEDDINGS).next_seq)
        return True

    def _retry_due(self) -> bool:
        """What was down for a while is tried again when its time has come."""
        if not is_due(self.ledger, self.clock()):
            return False
        begun = time.monotonic()
        book = read_book(self.ledger)
        spent: dict[str, Spent] = {}
        retried = Retrying(self.spark, self.settings, book, self.clock).due(spent)
        note_due(self.spark, self.ledger)
        self.account.add(spent, book.labels())
        self.wake()
        _tell_commit("retry", retried.tried, begun, recovered=retried.recovered)
        self._count("retry", retried.recovered)
        return retried.tried > 0

    def _index(self) -> bool:
        begun = time.monotonic()
        indexed = index_next(self.spark, self.settings, self.index, batch_rows=_VECTORS_AT_ONCE)
        if indexed is not None:
            self._unsettled = True
            self._count("index", indexed)
            _tell_commit("index", indexed, begun, next_seq=self.index.position())
        return indexed is not None

    def _count(self, stage: str, done: int) -> None:
        self.account.count(stage, done)
        self.report(stage, done)


def _tell_commit(stage: str, rows: int, begun: float, **more: Any) -> None:
    seconds = round(time.monotonic() - begun, 3)
    telemetry.note("stage.committed", stage=stage, rows=rows, seconds=seconds, **more)
