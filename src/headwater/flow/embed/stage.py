"""Embed: a vector for every chunk of text.

Reads   silver.transcripts, silver.captions, silver.messages
Writes  silver.embeddings
Key     object × chunk × model (and the model that made the text)
Invariant: how far each source was read is committed with the vectors. Live and replay differ only in where they begin:
an embedder that was brought in later has a position of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.clock import Clock
from headwater.domain.model_book import KnownModel
from headwater.domain.progress import Progress
from headwater.domain.tables import EMBEDDINGS, QUARANTINE, TEXT_TABLES
from headwater.errors import Unavailable
from headwater.flow import rows as row_ops
from headwater.flow.embed.budget import cut_back, in_order
from headwater.flow.embed.texts import Spans, next_texts, texts_of
from headwater.flow.embed.worker import OUTPUT, STEP, EmbedWork, embed_batches
from headwater.flow.models.choice import require_same, with_own_models
from headwater.flow.models.port import ModelCard
from headwater.flow.models.registry import load_model
from headwater.flow.partitions import (
    balanced_partitions,
    map_partitions,
    persisted_on_disk,
    picklable_errors,
    repartition_balanced,
)
from headwater.flow.spent import Spent, rows_by_tag, spent_by_tag
from headwater.settings import Settings
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import to_arrow
from headwater.storage.tables.writer import Rows, TableWriter

# The vectors of a batch come together in the driver, by all embedders: 20,000 of the usual length.
_VECTOR_BYTES: Final = 80 << 20
# Texts do not tell where their events stand.
_UNKNOWN: Final = ("event_seq", "log_partition", "log_offset")
_DIMENSION: Final = 1024  # where a model does not tell


class EmbedderDown(Unavailable):
    """An embedder does not answer, or cannot be loaded: its texts wait, and nobody else need."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    texts: int
    vectors: int
    quarantined: int = 0
    efforts: Mapping[str, Spent] = field(default_factory=dict)
    over: bool = False  # whether it ended where the money did


def embed_next(
    writer: TableWriter, embedders: Sequence[KnownModel], *, batch_rows: int, clock: Clock
) -> Embeddings | None:
    """Embed one batch of what is pending by every embedder that is kept; None when there was no text to read."""
    progress = read_progress(writer.tables, EMBEDDINGS)
    frontier = {table.name: progress.seq_of(table.name) for table in TEXT_TABLES}
    live = [
        known
        for known in embedders
        if all(progress.seq_of(known.position_in(name)) >= reached for name, reached in frontier.items())
    ]
    if behind := next((known for known in embedders if known not in live), None):
        # The catalog was restored from before it was brought in: what it lacks comes first, or would never come.
        made = replay_embed_next(writer, behind, batch_rows=batch_rows, clock=clock)
        if made is not None:
            return made
    if not live:
        return None  # nobody to embed: a frontier that moved on would leave texts behind
    sources = {table.name: read_progress(writer.tables, table) for table in TEXT_TABLES}
    spans = _spans(frontier, {name: source.next_seq for name, source in sources.items()}, batch_rows)
    if not spans:
        return None
    again = any(sources[table.name].repeats_from(begin) for table, (begin, _) in spans.items())
    return _embed_next(writer, progress, live, spans, [*live, None], clock, again=again, of_any_time=again)


def replay_embed_next(
    writer: TableWriter, embedder: KnownModel, *, batch_rows: int, clock: Clock, purse: float | None = None
) -> Embeddings | None:
    """One batch for an embedder that is behind, up to where the others are; None when it is there.

    What it has already, from a retry, is left alone. With a `purse` one worker takes the texts in their order, as far
    as the money goes, and that is how far the embedder has come.
    """
    progress = read_progress(writer.tables, EMBEDDINGS)
    begins = {table.name: progress.seq_of(embedder.position_in(table.name)) for table in TEXT_TABLES}
    ends = {table.name: progress.seq_of(table.name) for table in TEXT_TABLES}
    spans = _spans(begins, ends, batch_rows)
    if not spans:
        return None
    # A retry may have brought it some already, at their own time; and a rollback may have left it some.
    redo = bool(progress.redo)
    again = redo or bool(progress.aside.get(f"{STEP}/{embedder.fingerprint}"))
    marks = {"again": again, "of_any_time": redo}
    return _embed_next(writer, progress, [embedder], spans, [embedder], clock, **marks, purse=purse)


def embed_again(
    writer: TableWriter,
    embedders: Sequence[KnownModel],
    objects: Mapping[str, datetime],
    clock: Clock,
    reload: str = "",
) -> Embeddings:
    """All that was embedded of these objects, each with its time, again; chunks that have their vector are left alone.

    What the stage has yet to reach is its own to embed.
    """
    _cards(writer.settings, embedders)
    reached = read_progress(writer.tables, EMBEDDINGS)
    texts = texts_of(writer.spark, objects, {table: reached.seq_of(table.name) for table in TEXT_TABLES})
    with _embedded(writer, embedders, texts, clock, reload) as made:
        # The rows of the first try are taken out by who tries again.
        quarantined = writer.publish(QUARANTINE, _set_aside(made, clock), {}, stage="embed")
        new = writer.not_yet_in(EMBEDDINGS, _good(made), EMBEDDINGS.key)
        vectors = writer.publish(EMBEDDINGS, new, {}, stage="embed", aside=rows_by_tag(new))
        return Embeddings(len(texts), vectors, quarantined, spent_by_tag(made))


def _spans(begins: Mapping[str, int], ends: Mapping[str, int], batch_rows: int) -> Spans:
    spans = {
        table: (begins[table.name], min(ends[table.name], begins[table.name] + batch_rows)) for table in TEXT_TABLES
    }
    return {table: (begin, end) for table, (begin, end) in spans.items() if end > begin}


def _embed_next(
    writer: TableWriter,
    since: Progress,
    embedders: Sequence[KnownModel],
    spans: Spans,
    positions: Sequence[KnownModel | None],
    clock: Clock,
    *,
    again: bool,
    of_any_time: bool,
    purse: float | None = None,
) -> Embeddings:
    """Embed what stands between, as far as it fits, and move these positions on to where it ends.

    `again` where some of it may have its vectors; `of_any_time` where these may have another time than their texts,
    which reads all of the table.
    """
    dimensions = [card.dimension or _DIMENSION for card in _cards(writer.settings, embedders)]
    vectors_most = _VECTOR_BYTES // (4 * max(1, sum(dimensions)))
    texts, ends = next_texts(writer, spans, vectors_most, in_driver=purse is not None)
    with _embedded(writer, embedders, texts, clock, purse=purse) as answers:
        efforts, made, over = spent_by_tag(answers), answers, False
        if purse is not None:
            texts, made, ends, over = cut_back(texts, answers, ends)
        consumed = {
            known.position_in(table.name) if known else table.name: end
            for table, end in ends.items()
            for known in positions
        }
        # A run that was killed between the two tables has set these aside already.
        aside = writer.not_yet_in(QUARANTINE, _set_aside(made, clock), ("event_id", "object_id", "step", "fingerprint"))
        quarantined = writer.publish(QUARANTINE, aside, {}, stage="embed")
        new = _good(made)
        if again:
            new = writer.not_yet_in(EMBEDDINGS, new, EMBEDDINGS.key, of_any_time=of_any_time)
        vectors = writer.publish(EMBEDDINGS, new, consumed, since=since, stage="embed")
    # Of texts that the driver has not seen, as many as the numbers between say.
    between = sum(ends[table] - begin for table, (begin, _) in spans.items())
    seen = len(texts) if isinstance(texts, pa.Table) else between
    return Embeddings(seen, vectors, quarantined, efforts, over)


@contextmanager
def _embedded(
    writer: TableWriter,
    embedders: Sequence[KnownModel],
    texts: Rows,
    clock: Clock,
    reload: str = "",
    purse: float | None = None,
) -> Iterator[Rows]:
    """Rows with vectors, and rows with the reason why there is none. Equal texts meet in one task."""
    workers = writer.spark.sparkContext.defaultParallelism
    settings = with_own_models(writer.settings, embedders)
    works = [EmbedWork(known.name, settings, clock(), reload, purse) for known in embedders]
    if isinstance(texts, pa.Table):
        says = pc.fill_null(texts["text"], "")
        if purse is None:
            parts = balanced_partitions(texts, says, texts["source_table"], pc.binary_length(says), workers)
        else:
            parts = [in_order(texts)]
        made = [map_partitions(writer.spark, parts, embed_batches(work), OUTPUT) for work in works]
        yield _require_answers(pa.concat_tables([OUTPUT.empty_table(), *made]))
        return
    kinds, size = [table.name for table in TEXT_TABLES], "coalesce(octet_length(text), 0)"
    dealt = repartition_balanced(texts, "text", "source_table", kinds, size, workers)
    frames = [dealt.mapInArrow(picklable_errors(embed_batches(work)), from_arrow_schema(OUTPUT)) for work in works]
    with persisted_on_disk(reduce(DataFrame.unionByName, frames)) as rows:
        yield _require_answers(rows)


def _require_answers(rows: Rows) -> Rows:
    """A model that did not answer lets its texts wait, all of them."""
    down = row_ops.select(row_ops.equal(rows, "reason", "MODEL_DOWN"), ["detail"])
    details = to_arrow(down.limit(1)) if isinstance(down, DataFrame) else down
    if len(details):
        raise EmbedderDown(f"The embedder does not answer, so texts wait: {details['detail'][0].as_py()}")
    return rows


def _good(made: Rows) -> Rows:
    return row_ops.select(row_ops.with_value(made, "reason", given=False), EMBEDDINGS.columns)


def _set_aside(made: Rows, clock: Clock) -> pa.Table:
    """One row an event and embedder, however many of its chunks are no good. They are few, and the driver's to tell."""
    bad = row_ops.with_value(made, "reason", given=True)
    if isinstance(bad, DataFrame):
        bad = to_arrow(bad.drop("vector").dropDuplicates(["object_id", "event_id", "fingerprint"]))
    firsts = {(row["object_id"], row["event_id"], row["fingerprint"]): row for row in reversed(bad.to_pylist())}
    known = {"attempts": 1, "quarantined_at": clock(), "payload": None, **dict.fromkeys(_UNKNOWN)}
    columns = QUARANTINE.columns
    rows = [{name: known[name] if name in known else row[name] for name in columns} for row in firsts.values()]
    return pa.Table.from_pylist(rows, pa.schema([QUARANTINE.schema.field(name) for name in columns]))


def _cards(settings: Settings, embedders: Sequence[KnownModel]) -> list[ModelCard]:
    """Refuses a name that now stands for another model, before anything is read."""
    sections = with_own_models(settings, embedders).models
    cards = [load_model(known.name, sections).card for known in embedders]
    for known, card in zip(embedders, cards, strict=True):
        require_same(known, card)
    return cards
