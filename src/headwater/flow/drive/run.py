"""Run: the stages of the map, brought up to date once or until stopped.

Which stages there are, in which order they are drained, on which thread and in which Spark pool each works, and whom a
commit wakes is all said by `flow.map`. One Spark session for the whole run, and one run a lake: the lease names who
holds it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.domain.quarantine import FORBIDDEN, Retried
from headwater.errors import InternalError
from headwater.flow.derive.work import Work
from headwater.flow.derive.worker import sandbox_start
from headwater.flow.drive.account import Account
from headwater.flow.drive.derive_runner import DeriveRunner
from headwater.flow.drive.intake import Intake
from headwater.flow.drive.lanes import CallersThread, Lane, OwnThread, Turns
from headwater.flow.drive.register_models import register_model, settle_models
from headwater.flow.drive.retry import Retrying, note_due
from headwater.flow.drive.retry_forbidden import retry_forbidden
from headwater.flow.drive.stopping import jobs_cancelled
from headwater.flow.map import DEFAULT_POOL, DERIVE, FLOW, LOG, Flow, Stage, names_counted, stages_by_pool
from headwater.flow.models.registry import find_place
from headwater.flow.partitions import warm_up_workers
from headwater.flow.runner import Committed, Record, RunContext, StageRunner
from headwater.flow.spent import Spent
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.spark.errors import check_jvm
from headwater.storage.tables.writer import TableWriter


@dataclass(slots=True)
class Run:
    """The live parts of one run, and what it has done so far: `account`. `flow` is the map that it goes by."""

    writer: TableWriter
    ledger: Ledger
    log: PointerLog
    index: VectorIndex
    clock: Clock
    stop: threading.Event = field(default_factory=threading.Event)
    account: Account = field(default_factory=Account)
    flow: Flow = FLOW
    _woken: threading.Event = field(default_factory=threading.Event)
    _lanes: dict[Flow, Lane] = field(init=False, default_factory=dict)  # in the order of the map
    _turns: list[Turns] = field(init=False, default_factory=list)
    _caller: CallersThread = field(init=False)

    @property
    def spark(self) -> SparkSession:
        return self.writer.spark

    @property
    def settings(self) -> Settings:
        return self.writer.settings

    def __post_init__(self) -> None:
        self.account.names = names_counted(self.flow)
        context = RunContext(self.writer, self.ledger, self.log, self.index, self.clock, self.stop, self.held_back)
        pools = stages_by_pool(self.flow)
        pools.setdefault(DEFAULT_POOL, ())
        for pool, stages in pools.items():
            self._lanes[stages] = self._make_lane(pool, stages, context)

    def once(self) -> dict[str, int]:
        """Drain the log and every stage, then return the counts."""
        with self.interruptible():
            self.begin()
            for intake in self.intakes:
                intake.drain()
            self._start(lane for lane in self._lanes.values() if not isinstance(lane, Intake))
            while not self.stop.is_set() and self._caller.turn():
                self.check()
            self.finish()
            if not self.stop.is_set():
                self._each(lambda runner: runner.require_done())
        return self.account.done

    def until_stopped(self) -> dict[str, int]:
        """Stream until `stop` is set. Work under way is left as it is: what was not committed is done again."""
        with self.interruptible():
            self.begin()
            self.follow()
            while not self.stop.is_set():
                self.check()
                for intake in self.intakes:
                    intake.expire()
                self._woken.clear()
                self._caller.is_idle = not self._caller.turn()
                if self._caller.is_idle:
                    self._wake_others()  # for what waits for a pause, and to ask again who was down
                    self._woken.wait(self.settings.number("run.trigger_seconds"))
        return self.account.done

    def retry(self, reason: str | None, model: str | None) -> Retried:
        """Try again what is quarantined, at once; with `model` by that one, on the steps that it is for."""
        settle_models(self.settings, self.ledger, self.clock)
        self.derivation.end_cut_short()
        taken = Retried(0, 0, 0)
        if model is None and reason in {None, FORBIDDEN}:
            taken = retry_forbidden(self.writer, self.ledger, self.log, self.clock)
        known = register_model(self.settings, self.ledger, self.clock, model) if model else None
        book = read_book(self.ledger)
        spent: dict[str, Spent] = {}
        retried = Retrying(self.writer, self.ledger, book, self.clock, known).all_of(reason, spent) + taken
        note_due(self.spark, self.ledger)
        self.account.add(spent, book.labels())
        self.account.count("tried", retried.tried, shown=False)
        self.account.count("recovered", retried.recovered, shown=False)
        return retried

    def interruptible(self) -> AbstractContextManager[None]:
        """A stop does not wait for a model, nor one thread for the others where it has failed."""
        return jobs_cancelled(self.spark, self.stop, self._woken.set, self._end)

    def begin(self) -> None:
        """Find where to read on and with which models, and drop log segments that are consumed and past retention."""
        warm_up_workers(self.spark, sandbox_start(Work({}, self.settings, self.clock())))
        settle_models(self.settings, self.ledger, self.clock)
        for intake in self.intakes:
            intake.resume()
            intake.expire()

    def follow(self, *, resting: Stage | None = None) -> None:
        """What comes is brought through the stages from here on; one of them may rest."""
        if resting is not None:
            for turns in self._turns:
                turns.resting.add(resting.name)
        self._start(self._lanes.values())

    def check(self) -> None:
        """Raise what has ended one of the other threads, or Spark."""
        check_jvm()
        for lane in self._lanes.values():
            lane.check()

    def finish(self) -> None:
        """Bring in no more; bring what there is through the stages, in their order, unless the run is stopped."""
        for lane in self._lanes.values():
            while lane is self._caller and self.take_turn():
                self.check()
            lane.finish()

    def take_turn(self) -> bool:
        """A batch of each stage that works on the thread of who calls; False when there was nothing to do."""
        return self._caller.turns.take()

    def wake_readers(self, stage: Stage) -> None:
        """Something was committed for a stage: whoever reads what it writes looks for it, also on the stage's own lane,
        since a replay commits for it from elsewhere."""
        for stages, lane in self._lanes.items():
            if any(other.is_woken_by(stage) for other in stages):
                lane.wake()

    @contextmanager
    def held_back(self, stage: Stage) -> Iterator[None]:
        """The stage begins no batch meanwhile."""
        with ExitStack() as held:
            for turns in self._turns:
                if stage.name in turns.runners:
                    held.enter_context(turns.held_back(stage.name))
            yield

    @property
    def intakes(self) -> list[Intake]:
        return [lane for lane in self._lanes.values() if isinstance(lane, Intake)]

    @property
    def derivation(self) -> DeriveRunner:
        for turns in self._turns:
            if isinstance(runner := turns.runners.get(DERIVE.name), DeriveRunner):
                return runner
        raise InternalError("This run's map has no stage that derives.")

    def _make_lane(self, pool: str, stages: Flow, context: RunContext) -> Lane:
        if any(LOG in stage.reads for stage in stages):
            (stage,) = stages
            intake: Intake = find_place(stage.runner)(context, self._recorder(stage), self.account.count)
            return intake
        turns = Turns(stages, context, self._recorder)
        self._turns.append(turns)
        if pool == DEFAULT_POOL:
            self._caller = CallersThread(turns, context, self._woken)
            return self._caller
        return OwnThread(pool, turns, context, lambda: self._caller.is_idle)

    def _recorder(self, stage: Stage) -> Record:
        def record(name: str, made: Committed, begun: float) -> None:
            self.account.record(name, made, begun)
            self.wake_readers(stage)

        return record

    def _start(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            lane.start()

    def _wake_others(self) -> None:
        for lane in self._lanes.values():
            if lane is not self._caller:
                lane.wake()

    def _each(self, call: Callable[[StageRunner], None]) -> None:
        for turns in self._turns:
            turns.each(call)

    def _end(self) -> None:
        with ExitStack() as ends:
            for lane in self._lanes.values():
                ends.callback(lane.stop)
