"""Index: the vector index follows silver.embeddings.

Reads   silver.embeddings
Writes  index
Key     chunk_id; twice is once.
Invariant: the index is a view. It notes how far it has followed beside its own entries, so a wiped index starts again
from the first vector.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater import faults
from headwater.domain.tables import EMBEDDINGS
from headwater.settings import Settings
from headwater.storage.publish import progress_of
from headwater.storage.vector_index import VectorIndex, open_index

# A vector weighs 4 kB, and the index writes a fragment for each call.
_ROWS_AT_ONCE: Final = 5_000


def index_next(spark: SparkSession, settings: Settings, index: VectorIndex, *, batch_rows: int) -> int | None:
    """Bring one batch of pending vectors into the index; how many, or None when it has them all."""
    begin = index.position()
    end = min(progress_of(spark, EMBEDDINGS).next_seq, begin + batch_rows)
    if end <= begin:
        return None
    rows = spark.table(f"lake.{EMBEDDINGS.name}").where(F.col("seq").between(begin, end - 1))
    tasks = max(1, (end - begin) // _ROWS_AT_ONCE)
    counts = rows.coalesce(tasks).mapInArrow(_upsert_batches(settings), "count long").collect()
    faults.point("index.upserted")
    index.set_position(end)
    return sum(int(row["count"]) for row in counts)


def _upsert_batches(settings: Settings) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = open_index(settings)
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(part.num_rows for part in held) >= _ROWS_AT_ONCE:
                yield _upsert(index, held)
                held = []
        if held:
            yield _upsert(index, held)

    return run


def _upsert(index: VectorIndex, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.Table.from_batches(batches)
    index.upsert(rows)
    return pa.RecordBatch.from_pydict({"count": [rows.num_rows]})
