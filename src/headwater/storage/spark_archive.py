"""The class-data archive: what Spark's JVM loads at every start, kept ready to map into memory.

Writes  <environment>/var/headwater/spark-<key>.jsa, about 200 MB
Key     Java's version and the class path; another Java or another pyspark makes another archive.

A real, small run (a stream from files through Python workers into a table, a transaction, a merge, a look-up) loads
the classes; the JVM writes them down when it exits. Starting with the archive takes about half of the time.
"""

import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.errors import HeadwaterError, Unavailable
from headwater.settings import resolve
from headwater.storage.jars import resolve_jars
from headwater.storage.java import check_java
from headwater.storage.spark import CATALOG, start_spark, stop_spark
from headwater.storage.spark_process import archive_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TABLE: Final = f"{CATALOG}.warm.events"
SCHEMA: Final = "id bigint, customer string, day timestamp"


def prepare_spark(*, report: Callable[[str], None] = print) -> Path:
    """Jars and archive, made where they are missing. Twice is once."""
    archive = archive_file(check_java(), resolve_jars(report=report))
    if archive.is_file():
        return archive
    report("Recording the classes that Spark loads (once)")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headwater-warm-") as scratch:
        recorded = Path(scratch) / archive.name
        _record(Path(scratch) / "lake", recorded)
        if not recorded.is_file():
            raise Unavailable("Java wrote no class-data archive; Spark works without it, but starts more slowly.")
        partial = archive.with_suffix(".partial")
        shutil.move(recorded, partial)
        partial.replace(archive)
    return archive


def _record(lake: Path, archive: Path) -> None:
    lake.mkdir()
    session = start_spark(resolve(lake, {}, {}, {}), record=archive)
    try:
        _work(session, lake)
    finally:
        stop_spark(session)


def _work(session: "SparkSession", lake: Path) -> None:
    session.sql(f"create namespace {CATALOG}.warm")
    session.sql(f"create table {TABLE} ({SCHEMA}) using iceberg partitioned by (days(day)) tblproperties ('a' = 'b')")
    session.sql(f"alter table {TABLE} write ordered by customer, id")
    source = lake / "log"
    source.mkdir()
    lines = [json.dumps({"id": n, "customer": f"c{n % 3}", "day": "2026-01-01T00:00:00Z"}) for n in range(50)]
    (source / "0.jsonl").write_text("\n".join(lines))
    _stream(session, source, lake / "checkpoint")
    _transaction(session)
    known = session.table(TABLE)
    fresh = session.range(100)
    fresh.join(known, "id", "left_anti").selectExpr("max(id)", "count(*)").collect()
    known.groupBy("customer").count().orderBy("count").toArrow()
    session.sql(f"merge into {TABLE} t using (select 1L id) s on t.id = s.id when matched then delete")
    session.sql(f"call {CATALOG}.system.rewrite_data_files('warm.events')")
    session.sql(f"call {CATALOG}.system.expire_snapshots('warm.events')")


def _stream(session: "SparkSession", source: Path, checkpoint: Path) -> None:
    done = threading.Event()

    def append(batch: "DataFrame", _: int) -> None:
        rows = batch.repartition(2, "customer").mapInArrow(_same, SCHEMA)
        rows.selectExpr("row_number() over (order by customer) id", "customer", "day").writeTo(TABLE).append()
        done.set()

    events = session.readStream.schema(SCHEMA).json(str(source))
    query = events.writeStream.foreachBatch(append).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(120)
    if not done.is_set():
        raise Unavailable("The warm-up stream did not deliver its batch within 120 s; try again: make setup")


def _same(batches: Iterable["pa.RecordBatch"]) -> Iterable["pa.RecordBatch"]:
    yield from batches


def _transaction(session: "SparkSession") -> None:
    """Two changes in one commit, through Iceberg's Java API."""
    jvm = session._jvm
    assert jvm is not None
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, TABLE)
    transaction = table.newTransaction()
    transaction.newOverwrite().validateFromSnapshot(table.currentSnapshot().snapshotId()).commit()
    transaction.updateProperties().set("a", "c").commit()
    transaction.commitTransaction()


if __name__ == "__main__":
    try:
        prepare_spark()
    except HeadwaterError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
