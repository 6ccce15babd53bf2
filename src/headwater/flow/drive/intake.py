"""Intake: what the log holds, brought into bronze; all there is now, or on and on beside the other stages.

An embedded log is read here, segment by segment: Spark's file source would read the same files, seconds later. Any
other log comes through Spark Structured Streaming, in bounded micro-batches.
A log that is wiped, replaced or set back while it is read is begun anew, by the `Continuity` that the caller gives; so
it is where the table was set back, because what is read on is kept in memory here.

A commit of every table costs as much as some thousand rows, so events that trickle in are gathered: few of them wait
for others until `run.freshness_seconds` after the last ones. The first after a pause, and many at once, never wait.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import HeadwaterError, InternalError, Unavailable
from headwater.flow.drive.loop import Loop
from headwater.flow.log.continuity import Continuity, ReadAnew
from headwater.flow.log.identity import count_lag
from headwater.storage.log.checkpoint import fresh_checkpoint
from headwater.storage.log.directory_log import PARTITION, DirectoryLog
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.log.stream import read_segments, stream_log
from headwater.storage.spark.session import POOL
from headwater.storage.tables.writer import TableWriter

# Brings a batch of lines, as `storage.log.stream` gives them, into bronze.
Bring = Callable[[DataFrame | pa.Table], None]
WATCH_SECONDS: Final = 5.0  # between looks at a topic, whose stream does not notice when it is made anew
MANY_EVENTS: Final = 100  # which are worth a commit of their own, however recent the last one


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
    continuity: Continuity,
) -> Intake:
    """`start` is the offset to begin at, by partition; once `stop` is set no more comes in, and that is no fault."""
    if isinstance(log, DirectoryLog):
        return DirectoryIntake(writer, log, start.get(PARTITION, 0), bring, stop, continuity)
    return StreamIntake(writer, log, start, bring, stop, continuity)


class DirectoryIntake:
    """Of a log in a directory, which costs nothing to look at."""

    def __init__(
        self,
        writer: TableWriter,
        log: DirectoryLog,
        start: int,
        bring: Bring,
        stop: threading.Event,
        continuity: Continuity | None = None,
    ) -> None:
        settings = writer.settings
        self._spark = writer.spark
        self._log = log
        self._next = start
        self._bring = bring
        self._stop = stop
        self._continuity = continuity
        self._batch_bytes = settings.whole("log.batch_bytes")
        self._freshness_seconds = settings.number("run.freshness_seconds")
        self._brought_at = -math.inf
        self._following = Loop("intake", self._look, every=settings.number("run.trigger_seconds"))

    def drain(self) -> None:
        try:
            self._read_on()
        except ReadAnew:
            if self._continuity is None:
                raise
            self._next = self._continuity.resume().get(PARTITION, 0)
            self._read_on()

    def follow(self) -> None:
        self._following.start()

    def check(self) -> None:
        self._following.check()

    def stop(self) -> None:
        self._following.stop()

    def _look(self) -> bool:
        if not self._are_gathering():
            self._spark.sparkContext.setLocalProperty(POOL, "intake")
            self.drain()
        return False

    def _are_gathering(self) -> bool:
        """Whether what is new, if anything, may wait for others; a log that is shorter than it was may not."""
        is_recent = time.monotonic() < self._brought_at + self._freshness_seconds
        return is_recent and 0 <= self._log.end()[PARTITION] - self._next < MANY_EVENTS

    def _read_on(self) -> None:
        if self._continuity is not None:
            self._continuity.check({PARTITION: self._next})
        for lines in read_segments(self._log, self._next, self._batch_bytes):
            if self._stop.is_set() or self._following.is_stopped:
                return
            self._bring(lines)
            self._next = pc.max(lines["log_end"]).as_py()
            self._brought_at = time.monotonic()


class StreamIntake:
    """Of a log that Spark streams from."""

    def __init__(
        self,
        writer: TableWriter,
        log: PointerLog,
        start: Mapping[int, int],
        bring: Bring,
        stop: threading.Event,
        continuity: Continuity,
    ) -> None:
        self._writer = writer
        self._spark = writer.spark
        self._settings = writer.settings
        self._log = log
        self._start = start
        self._bring = bring
        self._stop = stop
        self._continuity = continuity
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._stopped = False
        self._ending = threading.Event()  # of the query: a batch that waits for others waits no longer
        self._lock = threading.Lock()  # of the query, which two threads may begin anew
        self._watching = Loop("log watch", self._watch, every=WATCH_SECONDS)

    def drain(self) -> None:
        try:
            self._drain()
        except ReadAnew:
            self._failure = None
            self._start = self._continuity.resume()
            self._drain()

    def follow(self) -> None:
        self._query = self.begin(once=False)
        self._watching.start()

    def check(self) -> None:
        self._watching.check()
        if self._stopped or self._stop.is_set():  # which breaks off a batch, and Spark says so in its own words
            if isinstance(self._failure, HeadwaterError):
                raise self._failure
        elif (query := self._query) is not None and not query.isActive and not self._begin_anew(query):
            self._tell()
            raise _ended(query)

    def stop(self) -> None:
        self._stopped = True
        self._ending.set()
        self._watching.stop(wait=False)  # it may be asking a broker that is down
        with self._lock:
            for query in self._spark.streams.active:
                query.stop()

    def begin(self, *, once: bool) -> StreamingQuery:
        self._ending = threading.Event()
        writer = (
            stream_log(self._spark, self._settings, self._log, self._start)
            .writeStream.queryName("bronze")
            .option("checkpointLocation", fresh_checkpoint(self._spark, self._settings))
            .foreachBatch(self._take if once else self._take_and_gather)
        )
        seconds = self._settings.number("run.trigger_seconds")
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds} seconds")
        context = self._spark.sparkContext
        context.setLocalProperty(POOL, "intake")  # the stream takes over what the thread has that starts it
        try:
            return writer.start()
        finally:
            context.setLocalProperty(POOL, "default")

    def _drain(self) -> None:
        ends = self._log.end()
        query = self.begin(once=True)
        try:
            query.awaitTermination()
        except PySparkException as error:
            if self._stop.is_set():
                raise
            self._tell()
            raise _ended(query) from error
        self._continuity.pass_markers(ends)

    def _watch(self) -> bool:
        """Spark reads on where it was, whatever topic is there now."""
        with suppress(Unavailable):  # the stream waits for a broker that is down, and so do we
            self._begin_anew(self._query)
        return False

    def _begin_anew(self, query: StreamingQuery | None) -> bool:
        """Where the log is another one than that of this query, or the table was set back; the other thread may have
        replaced the query meanwhile. False where nothing of the kind happened."""
        is_anew = self._is_anew()  # not under the lock: a stop does not wait for a broker that is down
        with self._lock:
            if self._stopped or self._stop.is_set() or self._query is not query:
                return True
            if is_anew:
                self._ending.set()
                if query is not None:
                    query.stop()
                self._start, self._failure = self._continuity.resume(), None
                self._query = self.begin(once=False)
            return is_anew

    def _is_anew(self) -> bool:
        try:
            self._continuity.watch()
        except ReadAnew:
            return True
        return False

    def _take(self, lines: DataFrame, _batch: int) -> None:
        try:
            self._bring(lines)
        except BaseException as error:  # kept, because Spark would show it as a stack trace of its own
            self._failure = error
            raise

    def _take_and_gather(self, lines: DataFrame, batch: int) -> None:
        """Spark begins no other batch before this one has ended, and by then there is more in the log."""
        self._take(lines, batch)
        looks_every = self._settings.number("run.trigger_seconds")
        until = time.monotonic() + self._settings.number("run.freshness_seconds") - looks_every
        while (left := until - time.monotonic()) > 0 and not (self._stop.is_set() or self._are_many()):
            if self._ending.wait(min(left, looks_every)):
                return

    def _are_many(self) -> bool:
        position = self._continuity.position
        with suppress(Unavailable):  # the stream will tell
            return position is None or count_lag(self._log.end(), position.offsets) >= MANY_EVENTS
        return True

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
