"""Index: the vector index follows silver.embeddings.

Reads   silver.embeddings
Writes  index
Key     chunk_id; twice is once.
Invariant: the index is a view. It notes how far it has followed beside its own entries, so a wiped index starts again
from the first vector.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater import faults
from headwater.domain.tables import EMBEDDINGS
from headwater.storage.publish import progress_of
from headwater.storage.vector_index import VectorIndex


def index_next(spark: SparkSession, index: VectorIndex, *, batch_rows: int) -> int | None:
    """Bring one batch of pending vectors into the index; how many, or None when it has them all."""
    begin = index.position()
    end = min(progress_of(spark, EMBEDDINGS).next_seq, begin + batch_rows)
    if end <= begin:
        return None
    rows = spark.table(f"lake.{EMBEDDINGS.name}").where(F.col("seq").between(begin, end - 1)).toArrow()
    index.upsert(rows)  # by this one writer: the index uses all cores by itself, and each call makes a fragment
    faults.point("index.upserted")
    index.set_position(end)
    return len(rows)
