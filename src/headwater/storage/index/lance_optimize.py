"""Organising a LanceDB table: indexes trained, small files merged, old versions dropped.

Answers are right without it and fast with it. How far a table has to grow before the work is worth its price is
decided here.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater.storage.index.allocator import give_back

if TYPE_CHECKING:
    from lancedb.table import Table

# Below this, reading every vector takes some tens of milliseconds and is exact.
ANN_ROWS: Final = 20_000
# Few, large partitions: half the training time of the usual square root, and better recall.
PARTITION_ROWS: Final = 12_500
OUTGROWN: Final = 4
# Fewer than LanceDB's 50 train faster; what the codes lose, re-ranking more of them wins back.
TRAINING_ROUNDS: Final = 20
# A reader holds a version for milliseconds; one that a slow search still reads must not go.
KEEP_VERSIONS: Final = timedelta(minutes=10)
# Organising rewrites every vector of a table below a million rows, so a stream must not ask for it at every batch:
# only when the uncovered tail, or the number of small files, has grown with the table.
TAIL_ROWS: Final = 2_000
TAIL_SHARE: Final = 40
SMALL_FILES: Final = 32
ROWS_PER_SMALL_FILE: Final = 2_000


def organise(table: "Table") -> None:
    from lancedb.index import Bitmap, BTree

    rows = table.count_rows()
    indices = {index.columns[0]: index for index in table.list_indices()}
    if rows == 0:
        return
    if "chunk_id" not in indices:
        table.create_index("chunk_id", config=BTree())
        table.create_index("customer", config=Bitmap())
    if rows >= ANN_ROWS:
        _train(table, rows, indices["vector"].name if "vector" in indices else None)
    tail = max(index.num_unindexed_rows or 0 for index in table.list_indices())
    crowded = _small_files(table) > SMALL_FILES + rows // ROWS_PER_SMALL_FILE
    if tail > max(TAIL_ROWS, rows // TAIL_SHARE) or crowded:
        table.optimize(cleanup_older_than=KEEP_VERSIONS)
        give_back()  # now, and not whenever a stream finds nothing to organise: it looks at all that is held


def _train(table: "Table", rows: int, trained: str | None) -> None:
    """The name says for how many partitions it was trained; a table that has outgrown them is trained again."""
    from lancedb.index import IvfPq, IvfRq

    partitions = max(1, rows // PARTITION_ROWS)
    if trained is not None and partitions < OUTGROWN * int(trained.rpartition("_")[2]):
        return
    # A bit for each number is trained in a thirtieth of the time that codes take, found faster, and recalled better.
    by_bits = table.schema.field("vector").type.list_size % 8 == 0
    config = (IvfRq if by_bits else IvfPq)(
        distance_type="cosine", num_partitions=partitions, max_iterations=TRAINING_ROUNDS
    )
    table.create_index("vector", config=config, name=f"vector_{partitions}")
    if trained is not None and trained != f"vector_{partitions}":
        table.drop_index(trained)


def _small_files(table: "Table") -> int:
    stats: Any = table.stats()
    return int(stats["fragment_stats"]["num_small_fragments"])
