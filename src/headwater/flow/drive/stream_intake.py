"""The intake of a log that Spark streams from, in bounded micro-batches."""

import threading
import time
from contextlib import suppress
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import HeadwaterError, InternalError, Unavailable
from headwater.flow.drive.intake import MANY_EVENTS, Count, Intake
from headwater.flow.drive.loop import Loop
from headwater.flow.log.continuity import ReadAnew
from headwater.flow.log.identity import count_lag
from headwater.flow.map import BRONZE, DEFAULT_POOL
from headwater.flow.runner import Record, RunContext
from headwater.storage.log.checkpoint import fresh_checkpoint
from headwater.storage.log.stream import stream_log
from headwater.storage.spark.session import POOL

WATCH_SECONDS: Final = 5.0  # between looks at a topic, whose stream does not notice when it is made anew


class StreamIntake(Intake):
    """One query at a time, which begins where the table is, whatever its checkpoint says."""

    def __init__(self, context: RunContext, record: Record, count: Count) -> None:
        super().__init__(context, record, count)
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._is_stopped = False
        self._ending = threading.Event()  # of the query: a batch that waits for others waits no longer
        self._lock = threading.Lock()  # of the query, which two threads may begin anew
        self._watching = Loop("log watch", self._watch, every=WATCH_SECONDS)

    def drain(self) -> None:
        try:
            self._drain()
        except ReadAnew:
            self._failure = None
            self.resume()
            self._drain()

    def start(self) -> None:
        self._query = self.begin(once=False)
        self._watching.start()

    def check(self) -> None:
        self._watching.check()
        if self._is_stopped or self.context.stop.is_set():
            # Which breaks off a batch, and Spark says so in its own words.
            if isinstance(self._failure, HeadwaterError):
                raise self._failure
        elif (query := self._query) is not None and not query.isActive and not self._begin_anew(query):
            self._raise_failure()
            raise _why_ended(query)

    def stop(self) -> None:
        self._is_stopped = True
        self._ending.set()
        self._watching.stop(wait=False)  # it may be asking a broker that is down
        with self._lock:
            for query in self.context.spark.streams.active:
                query.stop()

    def begin(self, *, once: bool) -> StreamingQuery:
        self._ending = threading.Event()
        writer = (
            stream_log(self.context.spark, self.context.settings, self.context.log, self._from)
            .writeStream.queryName(BRONZE.name)
            .option("checkpointLocation", fresh_checkpoint(self.context.spark, self.context.settings))
            .foreachBatch(self._take_batch if once else self._take_and_gather)
        )
        seconds = self.context.settings.number("run.trigger_seconds")
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds} seconds")
        context = self.context.spark.sparkContext
        context.setLocalProperty(POOL, BRONZE.pool)  # the stream takes over what the thread has that starts it
        try:
            return writer.start()
        finally:
            context.setLocalProperty(POOL, DEFAULT_POOL)

    def _drain(self) -> None:
        ends = self.context.log.end()
        query = self.begin(once=True)
        try:
            query.awaitTermination()
        except PySparkException as error:
            if self.context.stop.is_set():
                raise
            self._raise_failure()
            raise _why_ended(query) from error
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
            if self._is_stopped or self.context.stop.is_set() or self._query is not query:
                return True
            if is_anew:
                self._ending.set()
                if query is not None:
                    query.stop()
                self.resume()
                self._failure = None
                self._query = self.begin(once=False)
            return is_anew

    def _is_anew(self) -> bool:
        try:
            self._continuity.watch()
        except ReadAnew:
            return True
        return False

    def _take_batch(self, lines: DataFrame, _batch: int) -> None:
        try:
            self.take(lines)
        except BaseException as error:  # kept, because Spark would show it as a stack trace of its own
            self._failure = error
            raise

    def _take_and_gather(self, lines: DataFrame, batch: int) -> None:
        """Spark begins no other batch before this one has ended, and by then there is more in the log."""
        self._take_batch(lines, batch)
        looks_every = self.context.settings.number("run.trigger_seconds")
        until = time.monotonic() + self.context.settings.number("run.freshness_seconds") - looks_every
        while (left := until - time.monotonic()) > 0 and not (self.context.stop.is_set() or self._are_many()):
            if self._ending.wait(min(left, looks_every)):
                return

    def _are_many(self) -> bool:
        position = self._continuity.position
        with suppress(Unavailable):  # the stream will tell
            return position is None or count_lag(self.context.log.end(), position.offsets) >= MANY_EVENTS
        return True

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _why_ended(query: StreamingQuery) -> HeadwaterError:
    """Why, where no batch of ours failed: then it was the reading."""
    error = query.exception()
    if error is None:
        return InternalError("The log's stream ended by itself. See logs/spark.log in the lake.")
    reason = str(error).strip().splitlines()[0][:300]
    return Unavailable(f"The log cannot be read: {reason} Run again when it answers; nothing that was read is lost.")
