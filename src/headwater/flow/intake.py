"""Intake: what the log holds, brought into bronze; all there is now, or on and on beside the other stages.

An embedded log is read here, segment by segment: Spark's file source would read the same files, seconds later. Any
other log comes through Spark Structured Streaming, in bounded micro-batches.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import InternalError
from headwater.settings import Settings
from headwater.storage.directory_log import PARTITION, DirectoryLog
from headwater.storage.log_stream import checkpoint, read_segments, stream_log
from headwater.storage.pointer_log import PointerLog

# Brings a batch of lines, as `storage.log_stream` gives them, into bronze.
Bring = Callable[[SparkSession, DataFrame | pa.Table], None]


class Intake(Protocol):
    def drain(self) -> None:
        """Bring in what the log holds now."""
        ...

    def follow(self) -> None:
        """Begin to bring in what comes, on a thread of its own."""
        ...

    def check(self) -> None:
        """Raise what has ended it, where it no longer follows."""
        ...

    def stop(self) -> None:
        """A batch under way is left as it is: what was not committed is brought in again. Twice is once."""
        ...


def open_intake(
    spark: SparkSession, settings: Settings, log: PointerLog, start: Mapping[int, int], bring: Bring
) -> Intake:
    """`start` is the offset to begin at, by partition."""
    if isinstance(log, DirectoryLog):
        return DirectoryIntake(spark, settings, log, start.get(PARTITION, 0), bring)
    return StreamIntake(spark, settings, log, start, bring)


class DirectoryIntake:
    """Of a log in a directory, which costs nothing to look at."""

    def __init__(self, spark: SparkSession, settings: Settings, log: DirectoryLog, start: int, bring: Bring) -> None:
        self._spark = spark
        self._log = log
        self._bring = bring
        self._next = start
        self._batch_bytes = settings.whole("log.batch_bytes")
        self._look_seconds = settings.number("run.trigger_seconds")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="intake", daemon=True)
        self._failure: BaseException | None = None

    def drain(self) -> None:
        for lines in read_segments(self._log, self._next, self._batch_bytes):
            if self._stopped.is_set():
                return
            self._bring(self._spark, lines)
            self._next = pc.max(lines["log_end"]).as_py()

    def follow(self) -> None:
        self._thread.start()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self) -> None:
        try:
            while not self._stopped.is_set():
                self.drain()
                self._stopped.wait(self._look_seconds)
        except BaseException as error:  # told by `check`, on the thread that waits for it
            self._failure = error


class StreamIntake:
    """Of a log that Spark streams from."""

    def __init__(
        self, spark: SparkSession, settings: Settings, log: PointerLog, start: Mapping[int, int], bring: Bring
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._log = log
        self._start = start
        self._bring = bring
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None

    def drain(self) -> None:
        try:
            self.begin(once=True).awaitTermination()
        except PySparkException:
            self._tell()
            raise

    def follow(self) -> None:
        self._query = self.begin(once=False)

    def check(self) -> None:
        if self._query is not None and not self._query.isActive:
            self._tell()
            raise InternalError("The log's stream ended by itself. See logs/spark.log in the lake.")

    def stop(self) -> None:
        for query in self._spark.streams.active:
            query.stop()

    def begin(self, *, once: bool) -> StreamingQuery:
        writer = (
            stream_log(self._spark, self._settings, self._log, self._start)
            .writeStream.queryName("bronze")
            .option("checkpointLocation", checkpoint(self._settings))
            .foreachBatch(self._take)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.number('run.trigger_seconds')} seconds").start()

    def _take(self, lines: DataFrame, _batch: int) -> None:
        try:
            self._bring(lines.sparkSession, lines)
        except BaseException as error:  # kept, because Spark would show it as a stack trace of its own
            self._failure = error
            raise

    def _tell(self) -> None:
        if self._failure is not None:
            raise self._failure
