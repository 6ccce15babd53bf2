"""Embed: a vector for every chunk of text.

Reads   silver.transcripts, silver.captions, silver.messages
Writes  silver.embeddings
Key     object × chunk × model (and the model that made the text)
Invariant: how far each source was read is committed with the vectors.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.clock import Clock
from headwater.domain.chunks import chunks_of
from headwater.domain.tables import EMBEDDINGS, SAID, Table
from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model
from headwater.storage.publish import progress_of, publish

_OUTPUT: Final = pa.schema([field for field in EMBEDDINGS.schema if field.name != "seq"])
_SOURCE: Final = (
    "object_id", "customer", "modality", "event_id", "occurred_at", "pointer", "step", "model", "fingerprint", "text",
    "segments",
)  # fmt: skip
# Texts of this many rows are in a worker's memory at a time; a vector weighs 4 kB.
_ROWS_AT_ONCE: Final = 512


def embed_next(spark: SparkSession, model: str, *, batch_rows: int, clock: Clock) -> int | None:
    """Embed one batch of what is pending; the number of vectors, or None when there was no text to read."""
    progress = progress_of(spark, EMBEDDINGS)
    parts, reached = [], {}
    for table in SAID:
        begin = progress.seq_of(table.name)
        end = min(progress_of(spark, table).next_seq, begin + batch_rows)
        if end > begin:
            parts.append(_pending(spark, table, begin, end))
            reached[table.name] = end
    if not parts:
        return None
    texts = reduce(DataFrame.unionByName, parts)
    rows = texts.mapInArrow(_embed_batches(model, clock()), from_arrow_schema(_OUTPUT))
    return publish(spark, EMBEDDINGS, rows, reached, stage="embed").rows


def _pending(spark: SparkSession, table: Table, begin: int, end: int) -> DataFrame:
    rows = spark.table(f"lake.{table.name}").where(F.col("seq").between(begin, end - 1))
    return rows.select(*_SOURCE, F.lit(table.name).alias("source_table"))


def _embed_batches(model: str, now: datetime) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        embedder = _embedder(model)
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                rows = batch.slice(start, _ROWS_AT_ONCE).to_pylist()
                yield _embed_rows([chunk for row in rows for chunk in _chunk_rows(row)], embedder, now)

    return run


@cache
def _embedder(name: str) -> Model:
    """Loaded once per Python worker."""
    model = load_model(name)
    model.load()
    return model


def _chunk_rows(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for number, chunk in enumerate(chunks_of(row["text"] or "", row["segments"] or [])):
        yield {
            **{name: row[name] for name in ("object_id", "customer", "modality", "event_id", "occurred_at", "pointer")},
            "chunk": number,
            "source_table": row["source_table"],
            "source_fingerprint": row["fingerprint"],
            "source_model": row["model"],
            "text": chunk.text,
            "locator": chunk.locator.to_dict(),
        }


def _embed_rows(rows: list[dict[str, Any]], embedder: Model, now: datetime) -> pa.RecordBatch:
    card = embedder.card
    vectors = embedder.run([row["text"] for row in rows]) if rows else []
    made = {"step": "embed", "model": card.label, "fingerprint": card.fingerprint, "derived_at": now}
    for row, vector in zip(rows, vectors, strict=True):
        row.update(made, vector=vector, chunk_id=_chunk_id(row, card.fingerprint))
    return pa.RecordBatch.from_pylist(rows, schema=_OUTPUT)


def _chunk_id(row: Mapping[str, Any], fingerprint: str) -> str:
    """Short, and the same for the same chunk in every run."""
    parts = (row["object_id"], row["source_table"], row["source_fingerprint"], str(row["chunk"]), fingerprint)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
