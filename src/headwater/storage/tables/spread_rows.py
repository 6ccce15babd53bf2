"""Rows that are spread over Spark's tasks, numbered and laid out for a table without meeting in one place.

Each task's rows get the numbers that follow those of the task before; how many that is was counted first. Both are done
with what is on the workers' disks, because Spark lays rows out anew each time it makes them: it joins partitions of a
shuffle by how much there is in them, and a count has fewer columns. Where a machine was lost in between and its rows
came out otherwise, the count does not fit and the write fails.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.domain.tables import Table
from headwater.storage.tables.read_table import collect

# Every task writes its own files, one for each day that it has rows of; no rows are sent to other tasks for that.
TASK_OPTIONS: Final = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "true"}
_ROWS_A_FILE: Final = 50_000  # vectors of the usual length are then 200 MB
# Spark's own numbers: the task in the upper bits, the row in the lower.
_ROW_BITS: Final = 33


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """How many rows each of Spark's partitions has, and how many days they span at most."""

    counts: dict[int, int]
    days: int

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    @property
    def files(self) -> int:
        return max(1, min(len(self.counts), round(self.rows / _ROWS_A_FILE)))

    def firsts(self) -> list[tuple[int, int, int]]:
        """Of each partition its number, the rows before it, and its own."""
        found, before = [], 0
        for part, count in sorted(self.counts.items()):
            found.append((part, before, count))
            before += count
        return found


@contextmanager
def persisted(rows: DataFrame, level: StorageLevel = StorageLevel.DISK_ONLY) -> Iterator[DataFrame]:
    """The rows on the disks of the machines that make them, from the first look on. What a lost machine had is made
    again in the same partitions. What somebody else persisted stays his."""
    if rows.storageLevel != StorageLevel.NONE:
        yield rows
        return
    held = rows.persist(level)
    try:
        yield held
    finally:
        held.unpersist()


def count_partitions(table: Table, rows: DataFrame) -> PartitionRows:
    day = F.to_date(table.day)
    sizes = rows.groupBy(F.spark_partition_id().alias("part")).agg(
        F.count(F.lit(1)).alias("rows"), F.min(day).alias("low"), F.max(day).alias("high")
    )
    parts = collect(sizes)
    if not parts:
        return PartitionRows({}, 0)
    span = max(part["high"] for part in parts) - min(part["low"] for part in parts)
    return PartitionRows({part["part"]: part["rows"] for part in parts}, span.days + 1)


def assign_seqs(table: Table, rows: DataFrame, parts: PartitionRows, first: int, *, by_time: bool) -> DataFrame:
    """With their seq, dense from `first` on, each partition in the table's order or in that of time."""
    order = (table.day, *table.order) if by_time else table.order
    numbered = rows.sortWithinPartitions(*order).select(
        "*", F.spark_partition_id().alias("_part"), F.monotonically_increasing_id().alias("_number")
    )
    firsts = rows.sparkSession.createDataFrame(parts.firsts(), "_part int, _before long, _count long")
    row = F.col("_number").bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    seq = F.when(row < F.col("_count"), F.lit(first) + F.col("_before") + row)
    known = seq.otherwise(F.raise_error(F.lit("a task has more rows than it had when they were counted")).cast("long"))
    return numbered.join(F.broadcast(firsts), "_part").withColumn("seq", known).select(*table.schema.names)
