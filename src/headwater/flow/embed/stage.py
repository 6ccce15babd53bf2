"""Embed: a vector for every chunk of text.

Reads   silver.transcripts, silver.captions, silver.messages
Writes  silver.embeddings
Key     object × chunk × model (and the model that made the text)
Invariant: how far each source was read is committed with the vectors. Live and replay differ only in where they begin:
an embedder that was brought in later has a position of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.domain.model_book import KnownModel
from headwater.domain.tables import EMBEDDINGS, QUARANTINE, SAID
from headwater.errors import Unavailable
from headwater.flow.embed.texts import Spans, next_texts, texts_of
from headwater.flow.embed.worker import OUTPUT, STEP, EmbedWork, embed_batches
from headwater.flow.models.choice import require_same
from headwater.flow.models.port import ModelCard
from headwater.flow.models.registry import load_model
from headwater.flow.parts import deal, run_parts
from headwater.flow.spent import Spent, spent_by_tag
from headwater.settings import Settings
from headwater.storage.peek import peek_progress
from headwater.storage.publish import not_yet_in, publish

# The vectors of a batch come together in the driver, by all embedders: 20,000 of the usual length.
_VECTOR_BYTES: Final = 80 << 20
_DIMENSION: Final = 1024  # where a model does not tell


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
    progress = peek_progress(settings, EMBEDDINGS)
    frontier = {table.name: progress.seq_of(table.name) for table in SAID}
    live = [
        known
        for known in embedders
        if all(progress.seq_of(known.position_in(name)) >= reached for name, reached in frontier.items())
    ]
    ends = {table.name: peek_progress(settings, table).next_seq for table in SAID}
    spans = _spans(frontier, ends, batch_rows)
    return _embed_next(spark, settings, live, spans, [*live, None], clock, again=False) if spans else None


def replay_embed_next(
    spark: SparkSession, settings: Settings, embedder: KnownModel, *, batch_rows: int, clock: Clock
) -> Embeddings | None:
    """One batch for an embedder that is behind, up to where the others are; None when it is there.

    What it has already, from a retry, is left alone.
    """
    progress = peek_progress(settings, EMBEDDINGS)
    begins = {table.name: progress.seq_of(embedder.position_in(table.name)) for table in SAID}
    ends = {table.name: progress.seq_of(table.name) for table in SAID}
    spans = _spans(begins, ends, batch_rows)
    return _embed_next(spark, settings, [embedder], spans, [embedder], clock, again=True) if spans else None


def embed_again(
    spark: SparkSession,
    settings: Settings,
    embedders: Sequence[KnownModel],
    objects: Sequence[str],
    clock: Clock,
    afresh: str = "",
) -> Embeddings:
    """All that was embedded of these objects, again; chunks that have their vector are left alone.

    What the stage has yet to reach is its own to embed.
    """
    _cards(settings, embedders)
    reached = peek_progress(settings, EMBEDDINGS)
    texts = texts_of(spark, objects, {table: reached.seq_of(table.name) for table in SAID})
    good, bad = _embed(spark, settings, embedders, texts, clock, afresh)
    # The rows of the first try are taken out by who tries again.
    quarantined = publish(spark, QUARANTINE, _set_aside(bad, clock), {}, stage=STEP)
    new = not_yet_in(spark, EMBEDDINGS, good.select(EMBEDDINGS.columns), EMBEDDINGS.key)
    vectors = publish(spark, EMBEDDINGS, new, {}, stage=STEP)
    return Embeddings(len(texts), vectors, quarantined, _efforts(good, bad))


def _spans(begins: Mapping[str, int], ends: Mapping[str, int], batch_rows: int) -> Spans:
    spans = {table: (begins[table.name], min(ends[table.name], begins[table.name] + batch_rows)) for table in SAID}
    return {table: (begin, end) for table, (begin, end) in spans.items() if end > begin}


def _embed_next(
    spark: SparkSession,
    settings: Settings,
    embedders: Sequence[KnownModel],
    spans: Spans,
    positions: Sequence[KnownModel | None],
    clock: Clock,
    *,
    again: bool,
) -> Embeddings:
    """Embed what stands between, as far as it fits, and move these positions on to where it ends.

    `again` where some of it may have its vectors.
    """
    dimensions = [card.dimension or _DIMENSION for card in _cards(settings, embedders)]
    texts, ends = next_texts(spark, spans, _VECTOR_BYTES // (4 * max(1, sum(dimensions))))
    consumed = {
        known.position_in(table.name) if known else table.name: end
        for table, end in ends.items()
        for known in positions
    }
    good, bad = _embed(spark, settings, embedders, texts, clock)
    # A run that was killed between the two tables has set these aside already.
    aside = not_yet_in(spark, QUARANTINE, _set_aside(bad, clock), ("event_id", "step", "fingerprint"))
    quarantined = publish(spark, QUARANTINE, aside, {}, stage=STEP)
    new = good.select(EMBEDDINGS.columns)
    new = not_yet_in(spark, EMBEDDINGS, new, EMBEDDINGS.key) if again else new
    vectors = publish(spark, EMBEDDINGS, new, consumed, stage=STEP)
    return Embeddings(len(texts), vectors, quarantined, _efforts(good, bad))


def _cards(settings: Settings, embedders: Sequence[KnownModel]) -> list[ModelCard]:
    """Refuses a name that now stands for another model, before anything is read."""
    cards = [load_model(known.name, settings.models).card for known in embedders]
    for known, card in zip(embedders, cards, strict=True):
        require_same(known, card)
    return cards


def _embed(
    spark: SparkSession,
    settings: Settings,
    embedders: Sequence[KnownModel],
    texts: pa.Table,
    clock: Clock,
    afresh: str = "",
) -> tuple[pa.Table, pa.Table]:
    """Rows with vectors, and rows with the reason why there is none."""
    says = pc.fill_null(texts["text"], "")
    workers = spark.sparkContext.defaultParallelism
    # By what they say, so that equal texts meet in one task.
    parts = deal(texts, says, texts["source_table"], pc.binary_length(says), workers)
    works = [EmbedWork(known.name, settings, clock(), afresh) for known in embedders]
    made = [run_parts(spark, parts, embed_batches(work), OUTPUT) for work in works]
    rows = pa.concat_tables([OUTPUT.empty_table(), *made])
    bad = rows.filter(pc.is_valid(rows["reason"]))
    for reason, detail in zip(bad["reason"].to_pylist(), bad["detail"].to_pylist(), strict=True):
        if reason == "MODEL_DOWN":
            raise Unavailable(f"The embedder does not answer, so texts wait: {detail}")
    return rows.filter(pc.is_null(rows["reason"])), bad


def _efforts(good: pa.Table, bad: pa.Table) -> dict[str, Spent]:
    return spent_by_tag(pa.concat_tables([good, bad]))


def _set_aside(bad: pa.Table, clock: Clock) -> pa.Table:
    """One row an event and embedder, however many of its chunks are no good."""
    firsts = {(row["event_id"], row["fingerprint"]): row for row in reversed(bad.to_pylist())}
    known = {"attempts": 1, "quarantined_at": clock(), "payload": None}
    columns = QUARANTINE.columns
    rows = [{name: known[name] if name in known else row[name] for name in columns} for row in firsts.values()]
    return pa.Table.from_pylist(rows, pa.schema([QUARANTINE.schema.field(name) for name in columns]))
