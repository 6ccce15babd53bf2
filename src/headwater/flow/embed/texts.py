"""Texts: what is said in the tables that embed reads, as much as may be taken at once."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.domain.tables import Table
from headwater.flow.rows import are_spread
from headwater.storage.tables.read_table import read_table, to_arrow
from headwater.storage.tables.writer import Rows, TableWriter

_ABOUT: Final = (
    "object_id", "customer", "modality", "event_id", "occurred_at", "pointer", "meta", "thread", "step", "model",
    "fingerprint",
)  # fmt: skip
_SAYS: Final = ("text", "segments")
_CHUNK_BYTES: Final = 800  # of text, about, for a vector
# Rows with less are read before it is known whether they still belong to the batch; a segment counts as 64 bytes.
_SMALL: Final = "coalesce(octet_length(text), 0) + 64 * greatest(size(segments), 0) <= 2048"

Spans = Mapping[Table, tuple[int, int]]


def next_texts(
    writer: TableWriter, spans: Spans, vectors: int, *, in_driver: bool = False
) -> tuple[Rows, dict[Table, int]]:
    """What stands between the first and the second number of each table, and where that ends.

    As much as about so many vectors are made of; of every table at least one row. What is too much for the driver is
    given whole, as rows that Spark's tasks will read, unless it must be in the driver.
    """
    spark = writer.spark
    if not in_driver and are_spread(writer, sum(end - begin for begin, end in spans.values())):
        ends = {table: end for table, (_, end) in spans.items()}
        return _frame(spark, _between(spans), (*_ABOUT, *_SAYS)), ends
    share = max(1, vectors // len(spans))
    spans = {table: (begin, min(end, begin + share)) for table, (begin, end) in spans.items()}
    says = [f"CASE WHEN {_SMALL} THEN {name} END AS {name}" for name in _SAYS]
    sized = ("seq", "octet_length(text) AS size", f"{_SMALL} AS small")
    rows = _read(spark, _between(spans), (*_ABOUT, *says, *sized))
    ends = {table: _end(rows, table, span, share * _CHUNK_BYTES) for table, span in spans.items()}
    within = [
        pc.and_(pc.equal(rows["source_table"], table.name), pc.less(rows["seq"], end)) for table, end in ends.items()
    ]
    rows = rows.filter(reduce(pc.or_, within))
    if not pc.all(rows["small"], min_count=0).as_py():
        between = _between({table: (spans[table][0], end) for table, end in ends.items()})
        rows = _read(spark, between, (*_ABOUT, *_SAYS, "seq"))
    return rows, ends


def texts_of(spark: SparkSession, objects: Mapping[str, datetime], until: Mapping[Table, int]) -> pa.Table:
    """All that is said of these objects before the given number of each table; looked for at their time alone."""
    near = F.col("occurred_at").between(min(objects.values()), max(objects.values()))
    theirs = near & F.col("object_id").isin(list(objects))
    chosen = {table: theirs & (F.col("seq") < end) for table, end in until.items()}
    return _read(spark, chosen, (*_ABOUT, *_SAYS))


def _between(spans: Spans) -> dict[Table, Column]:
    return {table: F.col("seq").between(begin, end - 1) for table, (begin, end) in spans.items()}


def _read(spark: SparkSession, chosen: Mapping[Table, Column], columns: Sequence[str]) -> pa.Table:
    return to_arrow(_frame(spark, chosen, columns))


def _frame(spark: SparkSession, chosen: Mapping[Table, Column], columns: Sequence[str]) -> DataFrame:
    parts = [
        read_table(spark, table).where(rows).selectExpr(*columns, f"'{table.name}' AS source_table")
        for table, rows in chosen.items()
    ]
    return reduce(DataFrame.unionByName, parts)


def _end(rows: pa.Table, table: Table, span: tuple[int, int], most: int) -> int:
    begin, end = span
    own = rows.filter(pc.equal(rows["source_table"], table.name)).select(["seq", "size"]).sort_by("seq")
    total = pc.cumulative_sum(pc.fill_null(own["size"], 0).cast(pa.int64()))
    over = own.filter(pc.and_(pc.greater(total, most), pc.greater(own["seq"], begin)))
    return int(over["seq"][0].as_py()) if len(over) else end
