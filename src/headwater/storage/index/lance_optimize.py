"""Organising a LanceDB table: indexes trained, small files merged, old versions dropped.

Answers are right without it and fast with it. How far a table has to grow before the work is worth its price is
decided here.
"""

from collections.abc import Mapping
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
# Of each number of a vector. With three, re-ranking twice as many as are asked for is enough; with one, eight times.
BITS: Final = 3
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
_FINE: Final = f"vector_of_{BITS}_bits_"
_COARSE: Final = "vector_"


def organise(table: "Table") -> None:
    from lancedb.index import Bitmap, BTree, LabelList

    rows = table.count_rows()
    if rows == 0:
        return
    _index_by(table, {"chunk_id": BTree(), "customer": Bitmap()})
    if rows >= ANN_ROWS:
        few = {"modality": Bitmap(), "speaker": Bitmap()}
        _index_by(table, {**few, "occurred_at": BTree(), "thread": BTree(), "facts": LabelList()})
        _train(table, rows)
    tail = max(index.num_unindexed_rows or 0 for index in table.list_indices())
    crowded = _small_files(table) > SMALL_FILES + rows // ROWS_PER_SMALL_FILE
    if tail > max(TAIL_ROWS, rows // TAIL_SHARE) or crowded:
        table.optimize(cleanup_older_than=KEEP_VERSIONS)
        give_back()  # now, and not whenever a stream finds nothing to organise: it looks at all that is held


def _index_by(table: "Table", configs: Mapping[str, Any]) -> None:
    """By what entries are chosen. Where there is none, every question reads the whole column."""
    indexed = {index.columns[0] for index in table.list_indices()}
    for column, config in configs.items():
        if column not in indexed:
            table.create_index(column, config=config)


def is_fine(table: "Table") -> bool:
    """Whether the nearest by its codes are nearly those by the vectors; a table searched whole has no codes."""
    return any(index.name.startswith(_FINE) for index in table.list_indices())


def _train(table: "Table", rows: int) -> None:
    """The name says of what kind it is and for how many partitions it was trained; one of another kind, or one that has
    been outgrown, is trained anew."""
    from lancedb.index import IvfPq, IvfRq

    partitions = max(1, rows // PARTITION_ROWS)
    # Some bits for each number are trained in a tenth of the time that product codes take, and recalled better.
    by_bits = table.schema.field("vector").type.list_size % 8 == 0
    kind = _FINE if by_bits else _COARSE
    known = [index.name for index in table.list_indices() if index.columns == ["vector"]]
    sizes = [int(name.removeprefix(kind)) for name in known if name.startswith(kind)]
    if sizes and partitions < OUTGROWN * max(sizes):
        return
    same: dict[str, Any] = {"distance_type": "cosine", "num_partitions": partitions, "max_iterations": TRAINING_ROUNDS}
    config = IvfRq(num_bits=BITS, **same) if by_bits else IvfPq(**same)
    table.create_index("vector", config=config, name=f"{kind}{partitions}")
    for name in known:
        if name != f"{kind}{partitions}":
            table.drop_index(name)


def _small_files(table: "Table") -> int:
    stats: Any = table.stats()
    return int(stats["fragment_stats"]["num_small_fragments"])
