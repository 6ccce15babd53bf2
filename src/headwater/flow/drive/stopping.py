"""Who stops: a run does not wait for a model. Spark's jobs are cancelled, and what is not committed is done again."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.storage.spark.existing_session import cancel_jobs

_LOOK_SECONDS: Final = 0.2


@contextmanager
def jobs_cancelled(
    spark: SparkSession, stop: threading.Event, wake: Callable[[], None], end: Callable[[], None]
) -> Iterator[None]:
    """Once `stop` is set, or what is done in here has failed: one of a run's threads is not waited for by the others.

    `wake` who waits, again and again until it is over; `end` the threads, at the end. What Spark says of cancelled jobs
    is no error where `stop` was set.
    """
    failed, ended = threading.Event(), threading.Event()

    def cancel() -> None:
        while not ended.wait(_LOOK_SECONDS):
            if stop.is_set() or failed.is_set():
                wake()
                with suppress(Exception):  # a JVM that is gone has no jobs, and who waits for them knows by himself
                    cancel_jobs(spark)

    watcher = threading.Thread(target=cancel, name="stop", daemon=True)
    watcher.start()
    try:
        yield
    except BaseException as error:
        failed.set()
        is_cancelled = any(isinstance(one, PySparkException | Py4JError) for one in (error, error.__cause__))
        if not (stop.is_set() and is_cancelled):
            raise
    finally:
        try:
            end()
        finally:
            ended.set()
            watcher.join()
