"""The class-data archive: what Spark's JVM loads at every start, kept ready to map into memory.

Writes  <environment>/var/headwater/spark-<key>.jsa, about 200 MB
Key     Java's version and the class path; another Java or another pyspark makes another archive.

A clone's set-up makes it; what was installed from a wheel has none, and makes it beside the first commands, by itself.

A real, small run (a stream from files into a table, by the driver and by Spark; parts to Python workers and back;
rows deleted, a look-up) loads the classes; the JVM writes them down when it exits. Starting with the archive takes
about half of the time.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.domain.tables import TIMESTAMP, Table
from headwater.errors import HeadwaterError, Unavailable
from headwater.settings import Settings, resolve
from headwater.storage.io.java import check_java
from headwater.storage.io.scratch import scratch_directory
from headwater.storage.spark.jars import EMBEDDED, jars_directory, resolve_jars
from headwater.storage.spark.jvm import archive_file
from headwater.storage.spark.session import start_spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.storage.tables.writer import TableWriter

_KEPT: Final = 2
_BESIDE: Final = "beside"
WARM: Final = Table(
    "warm.events",
    pa.schema([("seq", pa.int64()), ("customer", pa.string()), ("day", TIMESTAMP)]),
    key=("seq",),
    day="day",
    order=("customer",),
    purpose="what the recorded run writes",
)


def prepare_spark(*, report: Callable[[str], None] = print) -> Path:
    """Jars and archive, made where they are missing. Twice is once."""
    archive = archive_file(check_java(), resolve_jars(report=report))
    if archive.is_file():
        return archive
    report("Recording the classes that Spark loads (once)")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warm-", dir=scratch_directory()) as scratch:
        recorded = Path(scratch) / archive.name
        _record(Path(scratch) / "lake", recorded)
        if not recorded.is_file():
            raise Unavailable("Java wrote no class-data archive; Spark works without it, but starts more slowly.")
        partial = archive.with_suffix(".partial")
        shutil.move(recorded, partial)
        partial.replace(archive)
    _remove_old(archive)
    return archive


def record_beside(logs: Path) -> "subprocess.Popen[bytes] | None":
    """Have another process make the archive, where Headwater was installed, rather than cloned, and there is none. It
    goes on when this process has ended; what it says is in class-archive.log. None where there is nothing to do."""
    installed = Path(__file__).is_relative_to(sys.prefix)
    if not installed or _archive_here().is_file():
        return None
    try:
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / "class-archive.log").open("ab") as log:
            line = [sys.executable, "-m", "headwater.storage.spark.class_archive", _BESIDE]
            return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    except OSError:  # nothing needs it
        return None


def _archive_here() -> Path:
    """Where it is, or would be; asks for no jar."""
    try:
        return archive_file(check_java(), [jars_directory() / jar.file_name for jar in EMBEDDED])
    except HeadwaterError:
        return Path(sys.executable)  # without Java there is nothing to make


@contextmanager
def _alone(directory: Path) -> Iterator[bool]:
    """Whether nobody else is making one here."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".recording").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _remove_old(archive: Path) -> None:
    """In an environment of its own, where Java or pyspark changed; who changes to and fro keeps both."""
    if archive.is_relative_to(sys.prefix):
        found = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
        for old in found[:-_KEPT]:
            old.unlink(missing_ok=True)


def _record(lake: Path, archive: Path) -> None:
    lake.mkdir()
    settings = resolve(lake, {}, {}, {})
    session = start_spark(settings, record=archive)
    try:
        _work(session, settings, lake)
    finally:
        stop_spark(session)


def _work(session: "SparkSession", settings: Settings, lake: Path) -> None:
    from pyspark.sql import functions as F

    from headwater.storage.tables.catalog import create_tables, open_catalog
    from headwater.storage.tables.read_table import collect, read_table, to_arrow
    from headwater.storage.tables.rewrite_files import remove_rows
    from headwater.storage.tables.writer import TableWriter

    create_tables(open_catalog(settings), [WARM])
    source = lake / "log"
    source.mkdir()
    lines = [json.dumps({"customer": f"c{n % 3}", "day": "2026-01-01T00:00:00Z"}) for n in range(50)]
    (source / "0.jsonl").write_text("\n".join(lines))
    _stream(TableWriter(session, settings), source, lake / "checkpoint")
    session.sparkContext.parallelize([b"part"] * 2, 2).map(_same).collect()
    known = read_table(session, WARM)
    fresh = session.range(100).withColumnRenamed("id", "seq")
    collect(fresh.join(known, "seq", "left_anti").selectExpr("max(seq)", "count(*)"))
    named = session.createDataFrame(pa.table({"customer": ["c1"]}))
    to_arrow(known.join(F.broadcast(named), "customer", "left_semi").where(F.col("seq").between(1, 9)))
    remove_rows(TableWriter(session, settings), WARM, F.col("seq") == 1)


def _stream(writer: "TableWriter", source: Path, checkpoint: Path) -> None:
    """Both ways into a table: rows that the driver writes, and rows that Spark does."""
    from headwater.storage.tables.read_table import to_arrow

    done = threading.Event()

    def append(batch: "DataFrame", _: int) -> None:
        writer.publish(WARM, to_arrow(batch.select("customer", "day")), {"log": 1}, stage="warm")
        writer.publish(WARM, batch.mapInArrow(_all, "customer string, day timestamp"), {"log": 2}, stage="warm")
        done.set()

    events = writer.spark.readStream.schema("customer string, day timestamp").json(str(source))
    query = events.writeStream.foreachBatch(append).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(120)
    if not done.is_set():
        raise Unavailable("The warm-up stream did not deliver its batch within 120 s; try again: make setup")


def _all(batches: Iterable["pa.RecordBatch"]) -> Iterable["pa.RecordBatch"]:
    yield from batches


def _same(part: bytes) -> bytes:
    return part


def _give_way() -> None:
    """The commands that somebody waits for come first: this one, and its JVM, take what they leave."""
    os.nice(10)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    if _BESIDE in sys.argv[1:]:
        _give_way()
    try:
        with _alone(_archive_here().parent) as alone:
            if alone:
                prepare_spark()
    except HeadwaterError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
