"""Derive: what models make of each object.

Reads   bronze.events, the raw store
Writes  silver.quarantine, silver.metadata, silver.transcripts, silver.captions, silver.messages
Key     object × step × model
Invariant: pointers travel, and the worker that needs bytes fetches them; a result is memoised before any table is
committed; every table remembers by itself how far into bronze.events it has come. Live, retry and replay differ only
in the set of objects that they pass in.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headwater import faults
from headwater.domain.tables import EVENTS, QUARANTINE, Table
from headwater.flow.derive.outcome import SCHEMA, TABLES, columns_of
from headwater.flow.derive.worker import Work, derive_batches
from headwater.storage.publish import progress_of, publish

_INPUT: Final = ("event_id", "object_id", "customer", "modality", "occurred_at", "pointer", "text")


@dataclass(frozen=True, slots=True)
class Cut:
    """How much one batch may take, so that a thousand screenshots and one film both make a sensible commit."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Derived:
    """What a batch came to, by table."""

    events: int
    rows: Mapping[str, int]

    @property
    def quarantined(self) -> int:
        return self.rows.get(QUARANTINE.name, 0)


def derive_next(spark: SparkSession, work: Work, cut: Cut, tasks: int) -> Derived | None:
    """One batch of what is pending, in the order of arrival; None when there is nothing."""
    reached = {table.name: progress_of(spark, table).seq_of(EVENTS.name) for table in TABLES}
    begin = min(reached.values())
    end = _end_of_batch(spark, begin, cut)
    if end == begin:
        return None
    events = spark.table(f"lake.{EVENTS.name}").where(F.col("seq").between(begin, end - 1) & F.col("first_of_object"))
    pending = events.select("seq", *_INPUT, F.lit(0).alias("attempts"), F.lit(None).cast("string").alias("only"))

    def publish_live(table: Table, rows: DataFrame | None) -> int:
        unseen = rows.where(F.col("event_seq") >= reached[table.name]) if rows is not None else None
        picked = unseen.select(*columns_of(table)) if unseen is not None else None
        position = {EVENTS.name: max(end, reached[table.name])}
        return publish(spark, table, picked, position, stage="derive").rows

    return Derived(end - begin, _derive(spark, pending, work, tasks, publish_live))


def derive_again(spark: SparkSession, pending: DataFrame, work: Work, tasks: int) -> Derived:
    """The same for any other set of objects: rows that a table has already are left alone.

    `pending` has seq (any number), the columns of an event, `attempts` so far and `only` (a step, or null for all).
    """

    def publish_missing(table: Table, rows: DataFrame | None) -> int:
        if rows is None:
            return 0
        key = list(table.key) if table is not QUARANTINE else ["event_id", "step", "attempts"]
        objects = pending.select("object_id").distinct()
        there = spark.table(f"lake.{table.name}").join(F.broadcast(objects), "object_id", "left_semi").select(*key)
        missing = rows.join(there, key, "left_anti").select(*columns_of(table))
        return publish(spark, table, missing, {}, stage="derive").rows

    return Derived(pending.count(), _derive(spark, pending, work, tasks, publish_missing))


def _end_of_batch(spark: SparkSession, begin: int, cut: Cut) -> int:
    ahead = spark.table(f"lake.{EVENTS.name}").where(F.col("seq").between(begin, begin + cut.rows - 1))
    end, total = begin, 0
    for seq, size in ahead.select("seq", "pointer.size").orderBy("seq").collect():
        total += size
        if end > begin and total > cut.bytes:
            break
        end = seq + 1
    return end


def _derive(
    spark: SparkSession,
    pending: DataFrame,
    work: Work,
    tasks: int,
    publish_rows: Callable[[Table, DataFrame | None], int],
) -> dict[str, int]:
    # By content, so that equal bytes meet in one task and the second finds the first one's memo.
    spread = pending.repartition(tasks, F.col("pointer.checksum"))
    # On a cluster a second copy: were an executor's rows derived again for one table, they could differ from another's.
    alone = str(spark.sparkContext.master).startswith("local")
    level = StorageLevel.MEMORY_AND_DISK if alone else StorageLevel.MEMORY_AND_DISK_2
    outcome = spread.mapInArrow(derive_batches(work), from_arrow_schema(SCHEMA)).persist(level)
    try:
        counts = {row["table"]: row["count"] for row in outcome.groupBy("table").count().collect()}
        published = {}
        for table in TABLES:
            rows = outcome.where(F.col("table") == table.name) if counts.get(table.name) else None
            published[table.name] = publish_rows(table, rows)
            if table is QUARANTINE:
                faults.point("derive.quarantined")
        return published
    finally:
        outcome.unpersist()
