"""Rows of a batch, in the driver's hands or spread over Spark's tasks: the same few things done to either.

Small batches meet in the driver, which is quickest; large ones never do. What a step does with rows is the same code.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.storage.spark.packed_environment import is_local
from headwater.storage.tables.read_table import collect, count_rows, is_empty, to_arrow
from headwater.storage.tables.writer import Rows, TableWriter

# What the driver takes in hand by itself: some tens of megabytes, and on a cluster only what is quicker that way.
_IN_DRIVER: Final = {True: 50_000, False: 2_000}
_LIMIT_WORKERS: Final = 4  # that the settings of a batch are for


def driver_rows(writer: TableWriter) -> int:
    """The largest batch that the driver takes in hand."""
    return writer.settings.whole("run.driver_rows") or _IN_DRIVER[is_local(str(writer.spark.sparkContext.master))]


def are_spread(writer: TableWriter, rows: int) -> bool:
    """Whether a batch of so many rows goes from table to table without passing through the driver."""
    return rows > driver_rows(writer)


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """How much one batch may take, so that a thousand screenshots and one film both make a sensible commit."""

    rows: int
    bytes: int
    least: int = 1  # objects that it takes whatever they weigh: so that no worker stands by


def batch_limit(writer: TableWriter) -> BatchLimit:
    """As the settings say for up to four workers, and as much more as there are more: five hundred do not wait.

    Asked before every batch: a cluster's executors come one after the other, and Spark counts two before the first.
    """
    workers = max(_LIMIT_WORKERS, int(writer.spark.sparkContext.defaultParallelism))
    rows, size = (writer.settings.whole(name) for name in ("run.batch_rows", "run.batch_bytes"))
    return BatchLimit(rows * workers // _LIMIT_WORKERS, size * workers // _LIMIT_WORKERS)


def equal(rows: Rows, column: str, value: Any) -> Rows:
    if isinstance(rows, DataFrame):
        return rows.where(F.col(column) == value)
    return rows.filter(pc.equal(rows[column], value))


def among(rows: Rows, column: str, values: Collection[str]) -> Rows:
    """A handful of values."""
    if isinstance(rows, DataFrame):
        return rows.where(F.col(column).isin(list(values)))
    return rows.filter(pc.is_in(rows[column], pa.array(list(values), pa.string())))


def at_least(rows: Rows, column: str, number: int) -> Rows:
    if isinstance(rows, DataFrame):
        return rows.where(F.col(column) >= number)
    return rows.filter(pc.greater_equal(rows[column], number))


def below(rows: Rows, column: str, number: int) -> Rows:
    if isinstance(rows, DataFrame):
        return rows.where(F.col(column) < number)
    return rows.filter(pc.less(rows[column], number))


def with_value(rows: Rows, column: str, *, given: bool) -> Rows:
    if isinstance(rows, DataFrame):
        return rows.where(F.col(column).isNotNull() if given else F.col(column).isNull())
    return rows.filter(pc.is_valid(rows[column]) if given else pc.is_null(rows[column]))


def without(rows: Rows, column: str, gone: DataFrame) -> Rows:
    """Those whose value is in none of the rows of `gone`, which has that column alone."""
    if isinstance(rows, DataFrame):
        return rows.join(gone.distinct(), column, "left_anti")
    return rows.filter(pc.invert(pc.is_in(rows[column], to_arrow(gone)[column].combine_chunks())))


def select(rows: Rows, columns: Sequence[str]) -> Rows:
    return rows.select(*columns) if isinstance(rows, DataFrame) else rows.select(list(columns))


def together(*several: Rows) -> Rows:
    if isinstance(several[0], DataFrame):
        return reduce(DataFrame.unionByName, several)
    return pa.concat_tables(several)


def count(rows: Rows) -> int:
    return count_rows(rows) if isinstance(rows, DataFrame) else len(rows)


def bounds(rows: Rows, column: str) -> tuple[Any, Any] | None:
    """The least and the greatest value; None where there is none."""
    if isinstance(rows, DataFrame):
        (found,) = collect(rows.agg(F.min(column).alias("min"), F.max(column).alias("max")))
        low, high = found["min"], found["max"]
    else:
        extremes = pc.min_max(rows[column])
        low, high = extremes["min"].as_py(), extremes["max"].as_py()
    return None if low is None else (low, high)


def are_none(rows: Rows) -> bool:
    return is_empty(rows) if isinstance(rows, DataFrame) else not len(rows)
