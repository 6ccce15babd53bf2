"""Run: bring what is pending through the stages, once or until stopped.

One Spark session for the whole run. The log's stream lands in bronze on a thread of its own, so events come in while
models work; derive, embed and index take turns on this thread. One run a lake: the lease names who holds it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater import telemetry
from headwater.clock import Clock
from headwater.domain.tables import EMBEDDINGS, EVENTS
from headwater.errors import InternalError
from headwater.flow import bronze
from headwater.flow.continuity import Loss, resume
from headwater.flow.derive.plan import plan_work
from headwater.flow.derive.stage import Cut, derive_next
from headwater.flow.embed import embed_next
from headwater.flow.index import index_next
from headwater.settings import Settings
from headwater.storage.ledger import Ledger
from headwater.storage.log_stream import checkpoint, stream_log
from headwater.storage.pointer_log import PointerLog
from headwater.storage.publish import progress_of
from headwater.storage.vector_index import VectorIndex

# Embeddings and index entries are small beside what they are made from.
_TEXTS_AT_ONCE: Final = 20_000
_VECTORS_AT_ONCE: Final = 20_000
_STOP_LOOK_SECONDS: Final = 0.2


# Told after every commit, with the stage and how many it did; a progress bar or a log line.
Report = Callable[[str, int], None]


@dataclass(slots=True)
class Pace:
    """How many objects the next batch takes: as many as were done in `seconds`, but no leap, and no more than `most`.

    A batch of long calls is committed before it grows old, and a backlog of chat is not committed in crumbs.
    """

    seconds: float
    most: int
    rows: int = 2_000

    def learn(self, rows: int, seconds: float) -> None:
        wanted = rows * self.seconds / max(seconds, 0.001)
        self.rows = int(min(self.most, max(1, self.rows // 4, min(wanted, self.rows * 4))))


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
    done: dict[str, int] = field(default_factory=dict)
    _failure: BaseException | None = None
    _unsettled: bool = False
    _start: dict[int, int] = field(default_factory=dict)
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.settings.number("run.batch_seconds"), self.settings.whole("run.batch_rows"))
        self._pace.rows = min(self._pace.rows, self._pace.most)

    def once(self) -> dict[str, int]:
        """Drain the log and every stage, then return the counts."""
        with self._interruptible():
            self._begin()
            self._await(self._start_stream(once=True))
            while not self.stop.is_set() and self._advance():
                pass
            self._settle()
        return self.done

    def until_stopped(self) -> dict[str, int]:
        """Stream until `stop` is set. Work under way is left as it is: what was not committed is done again."""
        with self._interruptible():
            self._begin()
            query = self._start_stream(once=False)
            while not self.stop.is_set():
                if not query.isActive:
                    self._check()
                    raise InternalError("The log's stream ended by itself. See logs/spark.log in the lake.")
                if not self._advance():
                    self._settle()
                    self.stop.wait(self.settings.number("run.trigger_seconds"))
        return self.done

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """A stop does not wait for a model: Spark's jobs are cancelled, and what is not committed is done again."""
        finished = threading.Event()

        def cancel_when_stopped() -> None:
            while not finished.wait(_STOP_LOOK_SECONDS):
                if self.stop.is_set():
                    self.spark.sparkContext.cancelAllJobs()

        watcher = threading.Thread(target=cancel_when_stopped, name="stop", daemon=True)
        watcher.start()
        try:
            yield
        except (PySparkException, Py4JError):
            if not self.stop.is_set():
                raise
        finally:
            finished.set()
            watcher.join()
            for query in self.spark.streams.active:
                query.stop()

    def _begin(self) -> None:
        """Find where to read on, and drop log segments that are consumed and past retention."""
        self._start, losses = resume(self.spark, self.log, self.ledger, self.clock)
        self._tell_lost(losses)
        self.log.expire(self.clock(), self._start)

    def _tell_lost(self, losses: Sequence[Loss]) -> None:
        if losses:
            self._count("lost", sum(loss.events for loss in losses))
            telemetry.note(
                "log.lost", level="error", losses=[asdict(loss) for loss in losses], way_out="headwater rescan"
            )

    def _start_stream(self, *, once: bool) -> StreamingQuery:
        writer = (
            stream_log(self.spark, self.settings, self._start)
            .writeStream.queryName("bronze")
            .option("checkpointLocation", checkpoint(self.settings))
            .foreachBatch(self._take)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.settings.number('run.trigger_seconds')} seconds").start()

    def _take(self, lines: DataFrame, _batch: int) -> None:
        try:
            spark, begun = lines.sparkSession, time.monotonic()
            taken = bronze.take(spark, lines, log=self.log, ledger=self.ledger, clock=self.clock)
            self._tell_lost(taken.losses)
            self._count("bronze", taken.events)
            _tell_commit("bronze", taken.events, begun, next_seq=progress_of(spark, EVENTS).next_seq)
        except BaseException as error:  # kept, because Spark would show it as a stack trace of its own
            self._failure = error
            raise

    def _await(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except PySparkException:
            self._check()
            raise

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _advance(self) -> bool:
        """One batch of each stage, in order; False when none had anything to do."""
        worked = [self._derive(), self._embed(), self._index()]
        return any(worked)

    def _settle(self) -> None:
        """Nothing is pending: time to organise what was indexed."""
        if self._unsettled:
            self.index.optimise()
            self._unsettled = False

    def _derive(self) -> bool:
        cut = Cut(self._pace.rows, self.settings.whole("run.batch_bytes"))
        work = plan_work(self.settings, now=self.clock())
        begun = time.monotonic()
        derived = derive_next(self.spark, work, cut, self.spark.sparkContext.defaultParallelism * 2)
        if derived is None:
            return False
        self._pace.learn(derived.events, time.monotonic() - begun)
        self._count("derive", derived.events)
        self._count("quarantine", derived.quarantined)
        _tell_commit("derive", derived.events, begun, tables=dict(derived.rows))
        if derived.quarantined:
            telemetry.note("quarantine.grew", level="warning", stage="derive", rows=derived.quarantined)
        return True

    def _embed(self) -> bool:
        model, begun = self.settings.text("models.embed"), time.monotonic()
        embedded = embed_next(self.spark, model, batch_rows=_TEXTS_AT_ONCE, clock=self.clock)
        if embedded is not None:
            self._count("embed", embedded)
            _tell_commit("embed", embedded, begun, next_seq=progress_of(self.spark, EMBEDDINGS).next_seq)
        return embedded is not None

    def _index(self) -> bool:
        begun = time.monotonic()
        indexed = index_next(self.spark, self.settings, self.index, batch_rows=_VECTORS_AT_ONCE)
        if indexed is not None:
            self._unsettled = True
            self._count("index", indexed)
            _tell_commit("index", indexed, begun, next_seq=self.index.position())
        return indexed is not None

    def _count(self, stage: str, done: int) -> None:
        self.done[stage] = self.done.get(stage, 0) + done
        self.report(stage, done)


def _tell_commit(stage: str, rows: int, begun: float, **more: Any) -> None:
    seconds = round(time.monotonic() - begun, 3)
    telemetry.note("stage.committed", stage=stage, rows=rows, seconds=seconds, **more)
