"""Around a whole task that uses Spark: what its JVM, and the bridge to it, raise becomes an error of ours.

When the JVM is gone every call fails, each in words of its own: a refused connection, an empty answer, a broken pipe.
So the first question is whether it lives, whatever the error; then what it says (`storage.tables.spark_errors`). That
is asked at once: the words of Spark's errors are in its JVM, and gone with it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.errors import HeadwaterError, InternalError, Unavailable
from headwater.storage.spark import session as spark
from headwater.storage.tables.spark_errors import SAFE, java_error

_PATIENCE_SECONDS: Final = 5.0


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
        raise Unavailable(f"Spark's JVM ended under this work: {ended}. {SAFE}")


def translate(error: Exception) -> Exception:
    """One of ours where Spark raised it; an error of ours stays what it is, unless the JVM's end explains it, and so
    does a bug in the driver. What broke in Spark or in a worker is a bug too, in the words of its last cause."""
    if isinstance(error, HeadwaterError) and type(error) not in {Unavailable, InternalError}:
        return error
    broke = _is_broken_connection(error)
    try:
        check_jvm(_PATIENCE_SECONDS if broke else 0.0)
    except Unavailable as gone:
        return gone
    if broke:
        return Unavailable(f"The connection to Spark's JVM broke: {_first_line(error)}. {SAFE}")
    return java_error(error) or error


def _is_broken_connection(error: Exception) -> bool:
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JError):
        return not isinstance(error, Py4JJavaError)
    return isinstance(error, ConnectionError | EOFError) and _came_through_py4j(error)


def _came_through_py4j(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if "py4j" in trace.tb_frame.f_code.co_filename:
            return True
        trace = trace.tb_next
    return False


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}".rstrip(".: ")
