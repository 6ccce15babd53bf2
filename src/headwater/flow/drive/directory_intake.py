"""The intake of a log in a directory, which costs nothing to look at."""

import math
import time

import pyarrow.compute as pc

from headwater.errors import InternalError
from headwater.flow.drive.intake import MANY_EVENTS, Count, Intake
from headwater.flow.drive.loop import Loop
from headwater.flow.log.continuity import ReadAnew
from headwater.flow.map import BRONZE
from headwater.flow.runner import Record, RunContext
from headwater.storage.log.directory_log import PARTITION, DirectoryLog
from headwater.storage.log.stream import read_segments
from headwater.storage.spark.session import POOL


class DirectoryIntake(Intake):
    def __init__(self, context: RunContext, record: Record, count: Count) -> None:
        super().__init__(context, record, count)
        if not isinstance(context.log, DirectoryLog):
            raise InternalError("A directory's intake was given another log.")
        settings = context.settings
        self._log: DirectoryLog = context.log
        self._batch_bytes = settings.whole("log.batch_bytes")
        self._freshness_seconds = settings.number("run.freshness_seconds")
        self._brought_at = -math.inf
        self._following = Loop(BRONZE.pool, self._look, every=settings.number("run.trigger_seconds"))

    def drain(self) -> None:
        try:
            self._read_on()
        except ReadAnew:
            self.resume()
            self._read_on()

    def start(self) -> None:
        self._following.start()

    def check(self) -> None:
        self._following.check()

    def stop(self) -> None:
        self._following.stop()

    @property
    def _next(self) -> int:
        return self._from.get(PARTITION, 0)

    def _look(self) -> bool:
        if not self._are_gathering():
            self.context.spark.sparkContext.setLocalProperty(POOL, BRONZE.pool)
            self.drain()
        return False

    def _are_gathering(self) -> bool:
        """Whether what is new, if anything, may wait for others; a log that is shorter than it was may not."""
        is_recent = time.monotonic() < self._brought_at + self._freshness_seconds
        return is_recent and 0 <= self._log.end()[PARTITION] - self._next < MANY_EVENTS

    def _read_on(self) -> None:
        self._continuity.check({PARTITION: self._next})
        for lines in read_segments(self._log, self._next, self._batch_bytes):
            if self.context.stop.is_set() or self._following.is_stopped:
                return
            self.take(lines)
            self._from = {PARTITION: pc.max(lines["log_end"]).as_py()}
            self._brought_at = time.monotonic()
