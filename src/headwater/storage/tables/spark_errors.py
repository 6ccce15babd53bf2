"""What Spark and Iceberg's Java library raise about tables, as errors of ours.

Whatever the door itself does is translated where it is done. A DataFrame is only a plan, and what is wrong with its
table may come out when it is made or an hour later, when it is carried out: so the actions are the door's as well
(`read_table`), and `storage.spark.errors` translates whatever a whole task raises.
A connection to the JVM that broke stays what it is here: whether the JVM still lives is known above.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.errors import (
    WAY_BACK,
    AccessRefused,
    Conflict,
    HeadwaterError,
    InternalError,
    InvalidRequest,
    ModelNotLoaded,
    NotFound,
    OutcomeUnknown,
    SnapshotExpired,
    Unavailable,
    describe,
)

SAFE: Final = "What was committed is safe. Run again."
# A worker's error of ours is the same kind here.
_OURS: Final = {
    kind.__name__: kind
    for kind in (
        Unavailable,
        ModelNotLoaded,
        OutcomeUnknown,
        SnapshotExpired,
        AccessRefused,
        InvalidRequest,
        NotFound,
        Conflict,
        InternalError,
    )
}
_OF_WORKER: Final = re.compile(r"^headwater\.errors\.(\w+): (.*)", re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by: |: )?[\w.]*(?:Exception|Error)\b.*", re.MULTILINE)
_FILE_GONE: Final = re.compile(r"\borg\.apache\.iceberg\.exceptions\.NotFoundException: [\w ]+: (\S.*)")
_NO_SNAPSHOT: Final = re.compile(r"\bCannot find snapshot with ID (\d+)")
_NO_TABLE: Final = "[TABLE_OR_VIEW_NOT_FOUND]"
_TRACEBACK: Final = "Traceback (most recent call last)"
# As they stand in a stack trace: followed by what they say, or by nothing; a frame goes on with a method's name.
_ICEBERG: Final = re.compile(r"\borg\.apache\.iceberg\.(?:exceptions|jdbc)\.(\w+)(?=:|\s|$)(?:: (.*))?", re.MULTILINE)
_AWS: Final = re.compile(r"\bsoftware\.amazon\.awssdk\.[\w.]+Exception: (.*)")
# By cancelAllJobs, or by a stream that is stopped while it has a batch in hand.
_CANCELLED: Final = re.compile(r"\bSPARK_JOB_CANCELLED\b|\bJob \d+ cancelled\b|Interrupt(?:ed)?Exception\b")
_FORBIDDEN: Final = re.compile(r"Status Code: 40[13]\b")
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
def translated_java(table: str = "", *, writing: bool = False) -> Iterator[None]:
    """Around what the JVM is asked about a table. What nobody has foreseen is an InternalError; while writing it is
    Unavailable, because nothing of it can have been committed.

    A read that was cancelled says so in Spark's words: whoever stops a run cancels its jobs, which is no error.
    """
    try:
        yield
    except Exception as error:
        ours = java_error(error, table)
        if ours is None or (not writing and _is_cancelled(error)):
            raise
        if writing and type(ours) is InternalError:
            ours = Unavailable(f"{table} cannot be written: {_cause(error)}. Try again.")
        raise ours from error


def java_error(error: Exception, table: str = "") -> HeadwaterError | None:
    """The error of ours that this one of the JVM comes to; None where it is not the JVM's."""
    if not is_of_jvm(error):
        return None
    words, trace = str(error), getattr(error, "_stackTrace", None) or ""
    if (ours := _OF_WORKER.search(words)) and ours[1] in _OURS:
        return _OURS[ours[1]](ours[2])
    if gone := _FILE_GONE.search(words) or _FILE_GONE.search(trace):
        return _expired(gone[1].strip())
    if _TRACEBACK not in words:
        found = _about_table(f"{words}\n{trace}", table) or _passing(words)
        if found is not None:
            return found
    return InternalError(f"Spark broke: {_cause(error)}")


def is_of_jvm(error: Exception) -> bool:
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JJavaError | PySparkException)


def _is_cancelled(error: Exception) -> bool:
    return bool(_CANCELLED.search(str(error)))


def _about_table(text: str, table: str) -> HeadwaterError | None:
    if missing := _NO_SNAPSHOT.search(text):
        return NotFound(
            f"{table or 'A table'} has no snapshot {missing[1]}: it has expired, or never was. "
            "Read the table as it is now, or at another snapshot."
        )
    if _NO_TABLE in text:
        return no_table(table)
    for name, words in _ICEBERG.findall(text):
        if (found := _of_iceberg(name, _detail(words, text), table)) is not None:
            return found
    store = _AWS.search(text)
    return _of_store(store[1]) if store else None


def _of_iceberg(name: str, detail: str, table: str) -> HeadwaterError | None:
    match name:
        case "NoSuchTableException" | "NoSuchNamespaceException" | "NoSuchIcebergTableException":
            return no_table(table)
        case "ValidationException" | "CommitFailedException":
            return Conflict(f"{table or 'A table'} moved meanwhile: {detail}. Try again.")
        case "CommitStateUnknownException":
            return OutcomeUnknown(f"It is unknown whether the commit to {table or 'a table'} landed: {detail}. {SAFE}")
        case "NotAuthorizedException" | "ForbiddenException":
            return AccessRefused(f"The catalog refused us at {table or 'a table'}: {detail}. Check catalog.token.")
        case "RESTException" | "ServiceFailureException" | "ServiceUnavailableException" | "UncheckedSQLException":
            return Unavailable(f"The catalog did not answer: {detail}. Check catalog.uri and its server. {SAFE}")
    return None


def _of_store(detail: str) -> HeadwaterError:
    if _FORBIDDEN.search(detail):
        return AccessRefused(f"The warehouse refused our key: {detail[:300].rstrip('.')}. Check it, then run again.")
    return Unavailable(f"The warehouse did not answer: {detail[:300].rstrip('.')}. Check its server. {SAFE}")


def _passing(words: str) -> Unavailable | None:
    sentence = next((sentence for part, sentence in _PASSING.items() if part in words), None)
    return Unavailable(f"{sentence}. logs/spark.log in the lake has more. {SAFE}") if sentence else None


def no_table(table: str) -> NotFound:
    return NotFound(f"{table or 'A table'} is not in the lake's catalog. {WAY_BACK}")


def _expired(file: str) -> SnapshotExpired:
    """Which of the two it is, the next run finds out: it plans on the table as it is then."""
    return SnapshotExpired(
        f"{file} is gone: most likely its table was rewritten, and its old files expired while Spark read them. "
        f"{SAFE} If the same file is named again it is missing, not expired: bring it back from a copy.",
        file,
    )


def _detail(words: str, text: str) -> str:
    """What it says, and what the last of its causes says, where that is more."""
    causes = _CAUSE.findall(text)
    last = causes[-1].partition(": ")[2] if causes and causes[-1].startswith("Caused by: ") else ""
    last = last.partition(": ")[2] or last
    return ": ".join(dict.fromkeys(part[:300].strip().rstrip(".") for part in (words, last) if part.strip()))


def _cause(error: Exception) -> str:
    causes = _CAUSE.findall(str(error))
    return (causes[-1].removeprefix(": ") if causes else describe(error))[:300].rstrip(".")
