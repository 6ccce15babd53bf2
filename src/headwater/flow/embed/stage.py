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

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.clock import Clock
from headwater.domain.model_book import KnownModel
from headwater.domain.tables import EMBEDDINGS, QUARANTINE, SAID, Table
from headwater.errors import Unavailable
from headwater.flow.embed.worker import OUTPUT, STEP, EmbedWork, embed_batches
from headwater.flow.models.choice import require_same
from headwater.flow.models.registry import load_model
from headwater.flow.parts import deal, run_parts
from headwater.flow.spent import Spent, spent_by_tag
from headwater.settings import Settings
from headwater.storage.publish import not_yet_in, progress_of, publish

_SOURCE: Final = (
    "object_id", "customer", "modality", "event_id", "occurred_at", "pointer", "step", "model", "fingerprint", "text",
    "segments",
)  # fmt: skip
# The vectors of a batch come together in the driver, and each takes more room than the text that it is made of.
_TEXT_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows of the sources to embed, and the positions that are reached with them."""

    rows: pa.Table | None
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
    spark: SparkSession,
    settings: Settings,
    embedders: Sequence[KnownModel],
    objects: Sequence[str],
    clock: Clock,
    afresh: str = "",
) -> Embeddings:
    """All that is said of these objects, again; chunks that have their vector are left alone."""
    chosen = dict.fromkeys(SAID, F.col("object_id").isin(list(objects)))
    return _embed(
        spark, settings, embedders, Texts(_read(spark, chosen, _SOURCE), {}), clock, again=True, afresh=afresh
    )


def _texts(
    spark: SparkSession,
    begins: Mapping[str, int],
    ends: Mapping[str, int],
    batch_rows: int,
    positions: Sequence[KnownModel | None],
) -> Texts:
    """As many as may be taken at once of what stands between `begins` and `ends`; of every source at least one."""
    spans = {table: (begins[table.name], min(ends[table.name], begins[table.name] + batch_rows)) for table in SAID}
    spans = {table: (begin, end) for table, (begin, end) in spans.items() if end > begin}
    if not spans:
        return Texts(None, {})
    reached = _ends_of_batch(spark, spans)
    names = {
        known.position_in(table.name) if known else table.name: end
        for table, end in reached.items()
        for known in positions
    }
    chosen = {table: F.col("seq").between(begin, reached[table] - 1) for table, (begin, _) in spans.items()}
    return Texts(_read(spark, chosen, _SOURCE), names)


def _ends_of_batch(spark: SparkSession, spans: Mapping[Table, tuple[int, int]]) -> dict[Table, int]:
    """Where each source's share of the text that fits ends."""
    chosen = {table: F.col("seq").between(begin, end - 1) for table, (begin, end) in spans.items()}
    sized = _read(spark, chosen, ("seq", "octet_length(text) AS size")).sort_by("seq")
    ends = {}
    for table, (begin, end) in spans.items():
        rows = sized.filter(pc.equal(sized["source_table"], table.name))
        before = pc.cumulative_sum(pc.fill_null(rows["size"], 0).cast(pa.int64()))
        over = rows.filter(pc.and_(pc.greater(before, _TEXT_BYTES // len(spans)), pc.greater(rows["seq"], begin)))
        ends[table] = over["seq"][0].as_py() if len(over) else end
    return ends


def _read(spark: SparkSession, chosen: Mapping[Table, Column], columns: Sequence[str]) -> pa.Table:
    parts = [
        spark.table(f"lake.{table.name}").where(rows).selectExpr(*columns, f"'{table.name}' AS source_table")
        for table, rows in chosen.items()
    ]
    return reduce(DataFrame.unionByName, parts).toArrow()


def _embed(
    spark: SparkSession,
    settings: Settings,
    embedders: Sequence[KnownModel],
    texts: Texts,
    clock: Clock,
    *,
    again: bool = False,
    afresh: str = "",
) -> Embeddings:
    if texts.rows is None or not embedders:
        publish(spark, EMBEDDINGS, None, texts.reached, stage=STEP)
        return Embeddings(len(texts.rows) if texts.rows is not None else 0, 0)
    for known in embedders:
        require_same(known, load_model(known.name, settings.models).card)
    text = pc.fill_null(texts.rows["text"], "")
    # By what they say, so that equal texts meet in one task.
    parts = deal(
        texts.rows, text, texts.rows["source_table"], pc.binary_length(text), spark.sparkContext.defaultParallelism
    )
    works = [EmbedWork(known.name, settings, clock(), afresh) for known in embedders]
    rows = pa.concat_tables([run_parts(spark, parts, embed_batches(work), OUTPUT) for work in works])
    bad = rows.filter(pc.is_valid(rows["reason"]))
    for reason, detail in zip(bad["reason"].to_pylist(), bad["detail"].to_pylist(), strict=True):
        if reason == "MODEL_DOWN":
            raise Unavailable(f"The embedder does not answer, so texts wait: {detail}")
    quarantined = _set_aside(spark, bad, clock, again=again) if len(bad) else 0
    good = rows.filter(pc.is_null(rows["reason"])).select(_columns(EMBEDDINGS))
    good = not_yet_in(spark, EMBEDDINGS, good, EMBEDDINGS.key) if again else good
    published = publish(spark, EMBEDDINGS, good if len(good) else None, texts.reached, stage=STEP)
    return Embeddings(len(texts.rows), published.rows, quarantined, spent_by_tag(rows))


def _set_aside(spark: SparkSession, bad: pa.Table, clock: Clock, *, again: bool) -> int:
    """One row an event and embedder, however many of its chunks are no good."""
    firsts = {(row["event_id"], row["fingerprint"]): row for row in reversed(bad.to_pylist())}
    known = {"attempts": 1, "quarantined_at": clock(), "payload": None}
    columns = _columns(QUARANTINE)
    rows = [{name: known[name] if name in known else row[name] for name in columns} for row in firsts.values()]
    picked = pa.Table.from_pylist(rows, pa.schema([QUARANTINE.schema.field(name) for name in columns]))
    if not again:  # after a retry the old rows are taken out
        picked = not_yet_in(spark, QUARANTINE, picked, ("event_id", "step", "fingerprint"))
    return publish(spark, QUARANTINE, picked if len(picked) else None, {}, stage=STEP).rows


def _columns(table: Table) -> list[str]:
    return [name for name in table.schema.names if name != "seq"]
