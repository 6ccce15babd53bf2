"""Derive: what models make of each object.

Reads   bronze.events, the raw store
Writes  silver.quarantine, silver.metadata, silver.transcripts, silver.captions, silver.messages, and silver.embeddings
        where a model for pictures is kept
Key     object × step × model
Invariant: pointers travel, and the worker that needs bytes fetches them; a result is memoised before any table is
committed; every table remembers by itself how far into bronze.events it has come. Live, retry and replay differ only
in the set of objects that they pass in.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headwater import faults
from headwater.domain.tables import EMBEDDINGS, EVENTS, METADATA, QUARANTINE, Table
from headwater.flow.derive.child import WHOLE_OBJECT
from headwater.flow.derive.outcome import SCHEMA, TABLES, columns_of
from headwater.flow.derive.worker import Work, derive_batches
from headwater.flow.spent import Spent, spent_by_tag, sums
from headwater.storage.publish import progress_of, publish

# More would even out long calls better, but each costs Spark 0.06 CPU seconds by itself.
_TASKS_A_WORKER: Final = 2
_INPUT: Final = ("event_id", "object_id", "customer", "modality", "occurred_at", "pointer", "text")


@dataclass(frozen=True, slots=True)
class Cut:
    """How much one batch may take, so that a thousand screenshots and one film both make a sensible commit."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Derived:
    """What a batch came to, by table, and what each model had to do for it, by tag."""

    events: int
    rows: Mapping[str, int]
    efforts: Mapping[str, Spent] = field(default_factory=dict)

    @property
    def quarantined(self) -> int:
        return self.rows.get(QUARANTINE.name, 0)


def derive_next(spark: SparkSession, work: Work, cut: Cut, workers: int) -> Derived | None:
    """One batch of what is pending, in the order of arrival; None when there is nothing."""
    planned = work.planned()
    progress = {table.name: progress_of(spark, table) for table in TABLES if _in_use(table, work)}
    reached = {name: told.seq_of(EVENTS.name) for name, told in progress.items()}
    begin = min(reached.values())
    end = _end_of_batch(spark, begin, begin + cut.rows, cut)
    if end == begin:
        return None
    # A model that a replay has yet to bring up to here waits for that replay.
    live = {tag for tag, step in planned.items() if progress[step.table].seq_of(step.position) >= reached[step.table]}
    events = spark.table(f"lake.{EVENTS.name}").where(F.col("seq").between(begin, end - 1) & F.col("first_of_object"))

    def publish_live(table: Table, rows: DataFrame | None) -> int:
        if table.name not in reached:
            return 0
        unseen = rows.where(F.col("event_seq") >= reached[table.name]) if rows is not None else None
        picked = unseen.select(*columns_of(table)) if unseen is not None else None
        names = {planned[tag].position for tag in live if planned[tag].table == table.name} | {EVENTS.name}
        position = dict.fromkeys(names, max(end, reached[table.name]))
        return publish(spark, table, picked, position, stage="derive").rows

    rows, efforts = _derive(spark, _pending(events), work.only(live), workers, publish_live)
    return Derived(end - begin, rows, efforts)


def replay_next(spark: SparkSession, work: Work, tag: str, cut: Cut, workers: int, until: int) -> Derived | None:
    """One batch for a model that is behind, up to where its step's others are or to `until`; None when it is there.

    What it has already, from a retry or from a replay that was killed, is left alone.
    """
    step = work.planned()[tag]
    table = next(table for table in TABLES if table.name == step.table)
    progress = progress_of(spark, table)
    reached = progress_of(spark, METADATA if table is EMBEDDINGS else table).seq_of(EVENTS.name)
    begin, goal = progress.seq_of(step.position), min(until, reached)
    end = min(goal, _end_of_batch(spark, begin, min(begin + cut.rows, goal), cut))
    if end <= begin:
        return None
    modalities = [modality for modality, steps in work.steps.items() if tag in {step.tag for step in steps}]
    chosen = F.col("seq").between(begin, end - 1) & F.col("first_of_object") & F.col("modality").isin(modalities)
    # An object that was no good as a whole is no better for another model.
    hopeless = spark.table(f"lake.{QUARANTINE.name}").where(F.col("step") == WHOLE_OBJECT).select("event_id")
    events = spark.table(f"lake.{EVENTS.name}").where(chosen).join(F.broadcast(hopeless), "event_id", "left_anti")
    pending = _pending(events).persist()

    def publish_missing(target: Table, rows: DataFrame | None) -> int:
        position = {step.position: end} if target is table else {}
        if position and table is EMBEDDINGS:  # nobody else moves it on before a first model for pictures is complete
            position[EVENTS.name] = max(end, progress.seq_of(EVENTS.name))
        if rows is None and not position:
            return 0
        picked = _missing(spark, target, pending, rows) if rows is not None else None
        return publish(spark, target, picked, position, stage="derive").rows

    try:
        return Derived(end - begin, *_derive(spark, pending, work.only({tag}), workers, publish_missing))
    finally:
        pending.unpersist()


def derive_again(spark: SparkSession, pending: DataFrame, work: Work, workers: int) -> Derived:
    """The same for any other set of objects: rows that a table has already are left alone.

    `pending` has seq (any number), the columns of an event, `attempts` so far and `only` (a step, a step's tag, or null
    for all).
    """

    def publish_missing(table: Table, rows: DataFrame | None) -> int:
        if rows is None:
            return 0
        return publish(spark, table, _missing(spark, table, pending, rows), {}, stage="derive").rows

    return Derived(pending.count(), *_derive(spark, pending, work, workers, publish_missing))


def _in_use(table: Table, work: Work) -> bool:
    return table is not EMBEDDINGS or any(step.table == table.name for step in work.planned().values())


def _pending(events: DataFrame) -> DataFrame:
    return events.select("seq", *_INPUT, F.lit(0).alias("attempts"), F.lit(None).cast("string").alias("only"))


def _missing(spark: SparkSession, table: Table, pending: DataFrame, rows: DataFrame) -> DataFrame:
    key = list(table.key) if table is not QUARANTINE else ["event_id", "step", "fingerprint", "attempts"]
    objects = pending.select("object_id").distinct()
    there = spark.table(f"lake.{table.name}").join(F.broadcast(objects), "object_id", "left_semi").select(*key)
    return rows.join(there, key, "left_anti").select(*columns_of(table))


def _end_of_batch(spark: SparkSession, begin: int, most: int, cut: Cut) -> int:
    ahead = spark.table(f"lake.{EVENTS.name}").where(F.col("seq").between(begin, most - 1))
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
    workers: int,
    publish_rows: Callable[[Table, DataFrame | None], int],
) -> tuple[dict[str, int], dict[str, Spent]]:
    # By content, so that equal bytes meet in one task and the second finds the first one's memo.
    spread = pending.repartition(workers * _TASKS_A_WORKER, F.col("pointer.checksum"))
    # On a cluster a second copy: were an executor's rows derived again for one table, they could differ from another's.
    alone = str(spark.sparkContext.master).startswith("local")
    level = StorageLevel.MEMORY_AND_DISK if alone else StorageLevel.MEMORY_AND_DISK_2
    outcome = spread.mapInArrow(derive_batches(work), from_arrow_schema(SCHEMA)).persist(level)
    try:
        totals = outcome.groupBy("table", "step", "fingerprint").agg(*sums()).collect()
        counts: Counter[str] = Counter()
        for row in totals:
            counts[row["table"]] += row["rows"]
        published = {}
        for table in TABLES:
            rows = outcome.where(F.col("table") == table.name) if counts.get(table.name) else None
            published[table.name] = publish_rows(table, rows)
            if table is QUARANTINE:
                faults.point("derive.quarantined")
        return published, spent_by_tag(totals)
    finally:
        outcome.unpersist()
