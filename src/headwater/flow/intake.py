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
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import HeadwaterError, InternalError, Unavailable
from headwater.flow.continuity import pass_markers
from headwater.flow.loop import Loop
from headwater.storage.directory_log import PARTITION, DirectoryLog
from headwater.storage.log_stream import checkpoint, read_segments, stream_log
from headwater.storage.pointer_log import PointerLog
from headwater.storage.spark import POOL
from headwater.storage.table_writer import TableWriter

# Brings a batch of lines, as `storage.log_stream` gives them, into bronze.
Bring = Callable[[DataFrame | pa.Table], None]


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
    writer: TableWriter,
    log: PointerLog,
    start: Mapping[int, int],
    bring: Bring,
    stop: threading.Event,
) -> Intake:
    """`start` is the offset to begin at, by partition; once `stop` is set no more comes in, and that is no fault."""
    if isinstance(log, DirectoryLog):
        return DirectoryIntake(writer, log, start.get(PARTITION, 0), bring, stop)
    return StreamIntake(writer, log, start, bring, stop)


class DirectoryIntake:
    """Of a log in a directory, which costs nothing to look at."""

    def __init__(self, writer: TableWriter, log: DirectoryLog, start: int, bring: Bring, stop: threading.Event) -> None:
        settings = writer.settings
        self._spark = writer.spark
        self._log = log
        self._next = start
        self._bring = bring
        self._stop = stop
        self._batch_bytes = settings.whole("log.batch_bytes")
        self._following = Loop("intake", self._look, every=settings.number("run.trigger_seconds"))

    def drain(self) -> None:
        for lines in read_segments(self._log, self._next, self._batch_bytes):
            if self._stop.is_set() or self._following.is_stopped:
                return
            self._bring(lines)
            self._next = pc.max(lines["log_end"]).as_py()

    def follow(self) -> None:
        self._following.start()

    def check(self) -> None:
        self._following.check()

    def stop(self) -> None:
        self._following.stop()

    def _look(self) -> bool:
        self._spark.sparkContext.setLocalProperty(POOL, "intake")
        self.drain()
        return False


class StreamIntake:
    """Of a log that Spark streams from."""

    def __init__(
        self, writer: TableWriter, log: PointerLog, start: Mapping[int, int], bring: Bring, stop: threading.Event
    ) -> None:
        self._writer = writer
        self._spark = writer.spark
        self._settings = writer.settings
        self._log = log
        self._start = start
        self._bring = bring
        self._stop = stop
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._stopped = False

    def drain(self) -> None:
        ends = self._log.end()
        query = self.begin(once=True)
        try:
            query.awaitTermination()
        except PySparkException as error:
            if self._stop.is_set():
                raise
            self._tell()
            raise _ended(query) from error
        pass_markers(self._writer, self._log, ends)

    def follow(self) -> None:
        self._query = self.begin(once=False)

    def check(self) -> None:
        if self._stopped or self._stop.is_set():  # which breaks off a batch, and Spark says so in its own words
            if isinstance(self._failure, HeadwaterError):
                raise self._failure
        elif self._query is not None and not self._query.isActive:
            self._tell()
            raise _ended(self._query)

    def stop(self) -> None:
        self._stopped = True
        for query in self._spark.streams.active:
            query.stop()

    def begin(self, *, once: bool) -> StreamingQuery:
        writer = (
            stream_log(self._spark, self._settings, self._log, self._start)
            .writeStream.queryName("bronze")
            .option("checkpointLocation", checkpoint(self._settings))
            .foreachBatch(self._take)
        )
        seconds = self._settings.number("run.trigger_seconds")
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds} seconds")
        context = self._spark.sparkContext
        context.setLocalProperty(POOL, "intake")  # the stream takes over what the thread has that starts it
        try:
            return writer.start()
        finally:
            context.setLocalProperty(POOL, "default")

    def _take(self, lines: DataFrame, _batch: int) -> None:
        try:
            self._bring(lines)
        except BaseException as error:  # kept, because Spark would show it as a stack trace of its own
            self._failure = error
            raise

    def _tell(self) -> None:
        if self._failure is not None:
            raise self._failure


def _ended(query: StreamingQuery) -> HeadwaterError:
    """Why, where no batch of ours failed: then it was the reading."""
    error = query.exception()
    if error is None:
        return InternalError("The log's stream ended by itself. See logs/spark.log in the lake.")
    said = str(error).strip().splitlines()[0][:300]
    return Unavailable(f"The log cannot be read: {said} Run again when it answers; nothing that was read is lost.")
