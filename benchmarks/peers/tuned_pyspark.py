"""PySpark as an expert writes it: pointers travel and workers fetch (`mapInArrow`), what is done is anti-joined first,
rows are appended to Iceberg; a changed step replaces the calls' table."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from peers import iceberg, job

rows = iceberg.rows
BATCH = 100
TASKS = 8  # several a core, so that both end together
ARROW = pa.schema([("id", pa.string()), ("text", pa.string()), *((name, pa.int64()) for name in job.FIELDS[1:])])
Derive = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def derive(changed: bool) -> Derive:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            found = []
            for row in batch.to_pylist():
                facts = job.facts(row["id"], Path(row["pointer"]).read_bytes(), changed)
                found.append({"id": row["id"], **facts})
            yield pa.RecordBatch.from_pylist(found, ARROW)

    return run


def messages(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist([job.message(line) for line in batch["pointer"].to_pylist()], ARROW)


def update(inbox: Path, state: Path) -> None:
    spark = _session(state)
    spark.sql("create namespace if not exists lake.peers")
    for kind in ("calls", "pictures"):
        _append(spark, kind, _pointers(spark, inbox / kind), derive(changed=False))
    lines = spark.read.text(f"file://{inbox.absolute()}/chat")
    lines = lines.selectExpr("concat('chat-', split(value, ' ')[0]) id", "value pointer")
    _append(spark, "chat", lines, messages)
    spark.stop()


def change(inbox: Path, state: Path) -> None:
    spark = _session(state)
    made = _pointers(spark, inbox / "calls").repartition(TASKS).mapInArrow(derive(changed=True), iceberg.ROW)
    made.writeTo("lake.peers.calls").using("iceberg").replace()
    spark.stop()


def _append(spark: SparkSession, kind: str, new: DataFrame, run: Derive) -> None:
    spark.sql(f"create table if not exists lake.peers.{kind} ({iceberg.ROW}) using iceberg")
    done = spark.table(f"lake.peers.{kind}").select("id")
    # Counted first, so that nothing new writes no snapshot and starts no worker.
    left = new.join(done, "id", "left_anti").cache()
    if left.count():
        left.repartition(TASKS).mapInArrow(run, iceberg.ROW).writeTo(f"lake.peers.{kind}").append()


def _pointers(spark: SparkSession, directory: Path) -> DataFrame:
    files = sorted(directory.absolute().iterdir())
    return spark.createDataFrame([(file.name, str(file)) for file in files], "id string, pointer string")


def _session(state: Path) -> SparkSession:
    spark = iceberg.session(state)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
    return spark
