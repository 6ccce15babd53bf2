"""Lanes: the threads of a run. Stages of one pool share a lane and take turns on it, in the order of the map."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from headwater.flow.drive.loop import Loop
from headwater.flow.map import Stage
from headwater.flow.models.registry import find_place
from headwater.flow.runner import Record, RunContext, StageRunner
from headwater.storage.spark.session import POOL


class Lane(Protocol):
    """`start` it once; `finish` or `stop` it. What it raised on a thread of its own, `check` raises."""

    def start(self) -> None: ...

    def wake(self) -> None:
        """Something was committed that one of its stages reads."""
        ...

    def check(self) -> None: ...

    def finish(self) -> None:
        """Do what there is, and end; nothing comes before it any more."""
        ...

    def stop(self) -> None:
        """End after the batch that is under way, or leave it as it is. Twice is once, and before the start no harm."""
        ...


class Turns:
    """Stages that take turns, in the order of the map. Those in `resting` take none."""

    def __init__(self, stages: Sequence[Stage], context: RunContext, record: Callable[[Stage], Record]) -> None:
        self.stages = tuple(stages)
        self.runners: Mapping[str, StageRunner] = {
            stage.name: find_place(stage.runner)(context, record(stage)) for stage in stages
        }
        self.resting: set[str] = set()
        self._stop = context.stop
        self._record = {stage.name: record(stage) for stage in stages}
        self._taking = {stage.name: threading.Lock() for stage in stages}

    def take(self) -> bool:
        """A batch of each; whether any of them had one."""
        worked = [self._batch(name, runner) for name, runner in self._awake()]
        return any(worked)

    def idle(self) -> bool:
        """What waits for a pause, of each; whether any of them had something."""
        worked = [runner.run_idle() for _, runner in self._awake() if not self._stop.is_set()]
        return any(worked)

    def each(self, call: Callable[[StageRunner], None]) -> None:
        for _, runner in self._awake():
            call(runner)

    @contextmanager
    def held_back(self, stage: str) -> Iterator[None]:
        """The stage begins no batch meanwhile."""
        with self._taking[stage]:
            yield

    def _awake(self) -> list[tuple[str, StageRunner]]:
        return [(name, runner) for name, runner in self.runners.items() if name not in self.resting]

    def _batch(self, name: str, runner: StageRunner) -> bool:
        begun = time.monotonic()
        with self._taking[name]:
            made = None if self._stop.is_set() else runner.run_batch()
        if made is None:
            return False
        self._record[name](name, made, begun)
        return True


class OwnThread:
    """A lane beside the others, in a pool of its own. `is_idle` tells whether nothing before it is at work."""

    def __init__(self, pool: str, turns: Turns, context: RunContext, is_idle: Callable[[], bool]) -> None:
        self.turns = turns
        self._pool, self._spark, self._is_idle = pool, context.spark, is_idle
        self._loop = Loop(pool, self._work)

    def start(self) -> None:
        self.turns.each(lambda runner: runner.start())
        self._loop.start()

    def wake(self) -> None:
        self._loop.wake()

    def check(self) -> None:
        self._loop.check()
        self.turns.each(lambda runner: runner.check())

    def finish(self) -> None:
        self._loop.finish()
        self.turns.each(lambda runner: runner.finish())

    def stop(self) -> None:
        self._loop.stop()
        self.turns.each(lambda runner: runner.stop())

    def _work(self) -> bool:
        self._spark.sparkContext.setLocalProperty(POOL, self._pool)
        return self.turns.take() or (self._is_idle() and self.turns.idle())


class CallersThread:
    """The lane of who called the run, turn by turn. `woken` is set when something was committed that it reads."""

    def __init__(self, turns: Turns, context: RunContext, woken: threading.Event) -> None:
        self.turns = turns
        self.is_idle = not turns.stages
        self._context, self._woken = context, woken

    def start(self) -> None:
        self.turns.each(lambda runner: runner.start())

    def turn(self) -> bool:
        """Whether there was anything to do."""
        return self.turns.take() or self.turns.idle()

    def wake(self) -> None:
        self._woken.set()

    def check(self) -> None:
        self.turns.each(lambda runner: runner.check())

    def finish(self) -> None:
        """After the last turn."""
        if not self._context.stop.is_set():
            self.turns.each(lambda runner: runner.finish())
        self.is_idle = True

    def stop(self) -> None:
        self.turns.each(lambda runner: runner.stop())
