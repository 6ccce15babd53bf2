"""The one door through which errors of Spark, and of the bridge to its JVM, become ours.

When the JVM is gone every call fails, each in words of its own: a refused connection, an empty answer, a broken pipe.
So the first question is whether it lives, whatever the error; then what Spark says. It is told at once: the words of
Spark's errors are in its JVM, and gone with it.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.errors import (
    AccessRefused,
    Conflict,
    HeadwaterError,
    InternalError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    SnapshotExpired,
    Unavailable,
    describe,
)
from headwater.storage.spark import session as spark

_PATIENCE_SECONDS: Final = 5.0
_SAFE: Final = "What was committed is safe. Run again."
# What a worker says in our words is what it was there.
_OURS: Final = {
    kind.__name__: kind
    for kind in (
        Unavailable,
        OutcomeUnknown,
        SnapshotExpired,
        AccessRefused,
        InvalidRequest,
        NotFound,
        Conflict,
        InternalError,
    )
}
_TOLD: Final = re.compile(r"^headwater\.errors\.(\w+): (.*)", re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by: )?[\w.]*(?:Exception|Error)\b.*", re.MULTILINE)
_FILE_GONE: Final = re.compile(r"\borg\.apache\.iceberg\.exceptions\.NotFoundException: [\w ]+: (\S.*)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_PASSING: Final = {
    "OutOfMemoryError": "Spark ran out of memory: give it more by spark.memory_mb, or take smaller batches",
    "No space left on device": "The disk is full: make room",
    "ExecutorLostFailure": "Spark lost an executor too often",
    "FetchFailed": "Spark lost an executor's files too often",
    "crashed": "A worker of Spark's crashed too often, or was killed: the machine may be short of memory",
    "SparkContext was shut down": "Spark was stopped under this work",
    "stopped SparkContext": "Spark was stopped under this work",
}


@contextmanager
def translated_spark() -> Iterator[None]:
    """Around all work that uses Spark; imports nothing of it."""
    try:
        yield
    except Exception as error:
        ours = translate(error)
        if ours is error:
            raise
        raise ours from error


def check_jvm(patience_seconds: float = 0.0) -> None:
    """Unavailable where Spark's JVM is gone: who has nothing to ask of it would not notice."""
    if ended := spark.how_jvm_ended(patience_seconds):
        raise Unavailable(f"Spark's JVM ended under this work: {ended}. {_SAFE}")


def translate(error: Exception) -> Exception:
    """One of ours where Spark raised it; what we had to say ourselves stays what it is, and so does a bug in the
    driver. What broke in Spark or in a worker is a bug too, in the words of its last cause."""
    if isinstance(error, HeadwaterError) and type(error) is not Unavailable:
        return error
    broke = _is_broken_connection(error)
    try:
        check_jvm(_PATIENCE_SECONDS if broke else 0.0)
    except Unavailable as gone:
        return gone
    if broke:
        return Unavailable(f"The connection to Spark's JVM broke: {_first_line(error)}. {_SAFE}")
    return _of_spark(error) or error


def _is_broken_connection(error: Exception) -> bool:
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JError):
        return not isinstance(error, Py4JJavaError)
    return isinstance(error, ConnectionError | EOFError) and _came_through_py4j(error)


def _of_spark(error: Exception) -> HeadwaterError | None:
    if "pyspark" not in sys.modules:
        return None
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JJavaError | PySparkException):
        return None
    said = str(error)
    if (told := _TOLD.search(said)) and told.group(1) in _OURS:
        return _OURS[told.group(1)](told.group(2))
    if gone := _FILE_GONE.search(said):
        return _expired(gone.group(1).strip())
    sentence = next((sentence for words, sentence in _PASSING.items() if words in said), None)
    if sentence and _TRACEBACK not in said:
        return Unavailable(f"{sentence}. logs/spark.log in the lake has more. {_SAFE}")
    causes = _CAUSE.findall(said)
    return InternalError(f"Spark broke: {causes[-1][:300] if causes else describe(error)}")


def _expired(file: str) -> SnapshotExpired:
    """Which of the two it is, the next run finds out: it plans on the table as it is then."""
    return SnapshotExpired(
        f"{file} is gone: most likely its table was rewritten, and its old files expired while Spark read them. "
        f"{_SAFE} If the same file is told again it is missing, not expired: bring it back from a copy.",
        file,
    )


def _came_through_py4j(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if "py4j" in trace.tb_frame.f_code.co_filename:
            return True
        trace = trace.tb_next
    return False


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}".rstrip(".: ")
