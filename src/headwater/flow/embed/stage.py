"""Embed: a vector for every chunk of text.

Reads   silver.transcripts, silver.captions, silver.messages
Writes  silver.embeddings
Key     object × chunk × model (and the model that made the text)
Invariant: how far each source was read is committed with the vectors. Live and replay differ only in where they begin:
an embedder that was brought in later has a position of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.clock import Clock
from headwater.domain.model_book import KnownModel
from headwater.domain.tables import EMBEDDINGS, QUARANTINE, SAID, Table
from headwater.errors import Unavailable
from headwater.flow.embed.worker import OUTPUT, STEP, EmbedWork, embed_batches
from headwater.flow.models.choice import require_same
from headwater.flow.models.registry import load_model
from headwater.flow.spent import Spent, spent_by_tag, sums
from headwater.settings import Settings
from headwater.storage.publish import progress_of, publish

_SOURCE: Final = (
    "object_id", "customer", "modality", "event_id", "occurred_at", "pointer", "step", "model", "fingerprint", "text",
    "segments",
)  # fmt: skip
_ROWS: Final = [name for name in EMBEDDINGS.schema.names if name != "seq"]


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows of the sources to embed, and the positions that are reached with them."""

    rows: DataFrame | None
    count: int
    reached: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Embeddings:
    texts: int
    vectors: int
    quarantined: int = 0
    efforts: Mapping[str, Spent] = field(default_factory=dict)


def embed_next(
    spark: SparkSession, settings: Settings, embedders: Sequence[KnownModel], *, batch_rows: int, clock: Clock
) -> Embeddings | None:
    """Embed one batch of what is pending by every embedder that is kept; None when there was no text to read."""
    progress = progress_of(spark, EMBEDDINGS)
    frontier = {table.name: progress.seq_of(table.name) for table in SAID}
    live = [
        known
        for known in embedders
        if all(progress.seq_of(known.position_in(name)) >= reached for name, reached in frontier.items())
    ]
    ends = {table.name: progress_of(spark, table).next_seq for table in SAID}
    texts = _texts(spark, frontier, ends, batch_rows, [*live, None])
    return _embed(spark, settings, live, texts, clock) if texts.reached else None


def replay_embed_next(
    spark: SparkSession, settings: Settings, embedder: KnownModel, *, batch_rows: int, clock: Clock
) -> Embeddings | None:
    """One batch for an embedder that is behind, up to where the others are; None when it is there."""
    progress = progress_of(spark, EMBEDDINGS)
    begins = {table.name: progress.seq_of(embedder.position_in(table.name)) for table in SAID}
    ends = {table.name: progress.seq_of(table.name) for table in SAID}
    texts = _texts(spark, begins, ends, batch_rows, [embedder])
    return _embed(spark, settings, [embedder], texts, clock) if texts.reached else None


def embed_again(
    spark: SparkSession, settings: Settings, embedders: Sequence[KnownModel], objects: DataFrame, clock: Clock
) -> Embeddings:
    """All that is said of these objects (`object_id`), again; chunks that have their vector are left alone."""
    parts = [
        spark.table(f"lake.{table.name}")
        .join(F.broadcast(objects.select("object_id").distinct()), "object_id", "left_semi")
        .select(*_SOURCE, F.lit(table.name).alias("source_table"))
        for table in SAID
    ]
    rows = reduce(DataFrame.unionByName, parts)
    return _embed(spark, settings, embedders, Texts(rows, rows.count(), {}), clock, again=True)


def _texts(
    spark: SparkSession,
    begins: Mapping[str, int],
    ends: Mapping[str, int],
    batch_rows: int,
    positions: Sequence[KnownModel | None],
) -> Texts:
    parts, reached, count = [], {}, 0
    for table in SAID:
        begin, end = begins[table.name], min(ends[table.name], begins[table.name] + batch_rows)
        if end > begin:
            parts.append(_between(spark, table, begin, end))
            count += end - begin
            for known in positions:
                reached[known.position_in(table.name) if known else table.name] = end
    return Texts(reduce(DataFrame.unionByName, parts) if parts else None, count, reached)


def _between(spark: SparkSession, table: Table, begin: int, end: int) -> DataFrame:
    rows = spark.table(f"lake.{table.name}").where(F.col("seq").between(begin, end - 1))
    return rows.select(*_SOURCE, F.lit(table.name).alias("source_table"))


def _embed(
    spark: SparkSession,
    settings: Settings,
    embedders: Sequence[KnownModel],
    texts: Texts,
    clock: Clock,
    *,
    again: bool = False,
) -> Embeddings:
    if texts.rows is None or not embedders:
        publish(spark, EMBEDDINGS, None, texts.reached, stage=STEP)
        return Embeddings(texts.count, 0)
    cards = [load_model(known.name, settings.models).card for known in embedders]
    for known, card in zip(embedders, cards, strict=True):
        require_same(known, card)
    works = [EmbedWork(known.name, settings, clock()) for known in embedders]
    made = [texts.rows.mapInArrow(embed_batches(work), from_arrow_schema(OUTPUT)) for work in works]
    rows = reduce(DataFrame.unionByName, made)
    if all(card.instant for card in cards) and not again:
        published = publish(spark, EMBEDDINGS, rows.select(*_ROWS), texts.reached, stage=STEP)
        return Embeddings(texts.count, published.rows)
    return _checked(spark, rows, texts, clock, again=again)


def _checked(spark: SparkSession, rows: DataFrame, texts: Texts, clock: Clock, *, again: bool) -> Embeddings:
    """Kept, so that no model sits under a plan that is evaluated twice; then what is no good is set aside."""
    rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        totals = rows.groupBy("reason", "step", "fingerprint").agg(*sums(), F.first("detail").alias("detail")).collect()
        if down := [row["detail"] for row in totals if row["reason"] == "MODEL_DOWN"]:
            raise Unavailable(f"The embedder does not answer, so texts wait: {down[0]}")
        bad = any(row["reason"] for row in totals)
        quarantined = _set_aside(spark, rows, clock, again=again) if bad else 0
        good = rows.where(F.col("reason").isNull()).select(*_ROWS)
        if again:
            there = spark.table(f"lake.{EMBEDDINGS.name}").select("chunk_id")
            good = good.join(there, "chunk_id", "left_anti").select(*_ROWS)
        published = publish(spark, EMBEDDINGS, good, texts.reached, stage=STEP)
        spent = spent_by_tag([{**row.asDict(), "table": EMBEDDINGS.name} for row in totals if not row["reason"]])
        return Embeddings(texts.count, published.rows, quarantined, spent)
    finally:
        rows.unpersist()


def _set_aside(spark: SparkSession, rows: DataFrame, clock: Clock, *, again: bool) -> int:
    """One row an event and embedder, however many of its chunks are no good."""
    bad = rows.where(F.col("reason").isNotNull()).dropDuplicates(["event_id", "fingerprint"])
    known = {
        "attempts": F.lit(1),
        "quarantined_at": F.lit(clock()),
        "payload": F.lit(None).cast("string"),
    }
    columns = [name for name in QUARANTINE.schema.names if name != "seq"]
    picked = bad.select(*(known[name].alias(name) if name in known else F.col(name) for name in columns))
    if not again:  # after a retry the old rows are taken out
        there = spark.table(f"lake.{QUARANTINE.name}").where(F.col("step") == STEP).select("event_id", "fingerprint")
        picked = picked.join(F.broadcast(there), ["event_id", "fingerprint"], "left_anti").select(*columns)
    return publish(spark, QUARANTINE, picked, {}, stage=STEP).rows
