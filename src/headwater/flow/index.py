"""Index: the vector index follows silver.embeddings.

Reads   silver.embeddings
Writes  index
Key     chunk_id; twice is once.
Invariant: the index is a view. It notes how far it has followed beside its own entries, so a wiped index starts again
from the first vector.
"""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater import faults
from headwater.domain.tables import EMBEDDINGS
from headwater.settings import Settings
from headwater.storage.peek import peek_progress
from headwater.storage.vector_index import VectorIndex


def index_next(spark: SparkSession, settings: Settings, index: VectorIndex, *, batch_rows: int) -> int | None:
    """Bring one batch of pending vectors into the index; how many, or None when it has them all."""
    begin, next_seq = index.position(), peek_progress(settings, EMBEDDINGS).next_seq
    rows, end = pa.table({}), begin
    # A model that was retired leaves gaps, and an index without entries notes no position.
    while not len(rows) and end < next_seq:
        first, end = end, min(next_seq, end + batch_rows)
        rows = spark.table(f"lake.{EMBEDDINGS.name}").where(F.col("seq").between(first, end - 1)).toArrow()
    if not len(rows):
        if end > begin:
            index.set_position(end)
        return None
    index.upsert(rows)  # by this one writer: the index uses all cores by itself, and each call makes a fragment
    faults.point("index.upserted")
    index.set_position(end)
    return len(rows)
