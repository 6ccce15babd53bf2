"""Batch: the next events to derive, in the order of arrival, as many as may be taken at once."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.domain.modality import Modality
from headwater.domain.tables import EVENTS
from headwater.flow.rows import BatchLimit, are_spread
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import collect, iterate, read_table, to_arrow
from headwater.storage.tables.writer import Rows, TableWriter

INPUT: Final = (
    "event_id", "object_id", "customer", "modality", "occurred_at", "pointer", "text", "meta", "thread",
    "log_partition", "log_offset",
)  # fmt: skip
# What comes of a batch is brought together in the driver. What is said in media is small beside them; text is text.
_TEXTUAL: Final = tuple(modality.value for modality in Modality if modality.is_text)
_TEXT_BYTES: Final = 64 << 20
# Messages up to here are read before it is known whether they still belong to the batch.
_SMALL_BYTES: Final = 8 << 10
_SPANS: Final = 1_000  # of a batch that the driver does not read


@dataclass(frozen=True, slots=True)
class Batch:
    """Events up to `end`; `pending` are those of them that tell of a new object, none of which was tried before.

    `repeats` says that some may have been: a rollback of bronze took them away, and they came again.
    """

    events: int
    end: int
    pending: Rows
    repeats: bool = False


def next_batch(writer: TableWriter, begin: int, limit: BatchLimit, until: int | None = None) -> Batch | None:
    """What comes from `begin` on; None where nothing is there."""
    bronze = read_progress(writer.tables, EVENTS)
    there = bronze.next_seq
    end = min(begin + limit.rows, there if until is None else min(there, until))
    if end <= begin:
        return None
    if are_spread(writer, end - begin):
        return _spread(writer, begin, end, limit, repeats=bronze.repeats_from(begin))
    small = F.coalesce(F.octet_length("text") <= _SMALL_BYTES, F.lit(True))
    ahead = read_table(writer.spark, EVENTS).where(F.col("seq").between(begin, end - 1))
    replaced = {"text": F.when(small, F.col("text")).alias("text")}
    columns = [replaced.get(name, F.col(name)) for name in INPUT]
    weighed = (small.alias("small"), _weight().alias("weight"))
    rows = to_arrow(ahead.select("seq", *columns, "first_of_object", *weighed)).sort_by("seq")
    fitting = _fitting(rows, limit)
    if fitting < len(rows):
        end = rows["seq"][fitting].as_py()
        rows = rows.slice(0, fitting)
    if not pc.all(rows["small"], min_count=0).as_py():
        rows = _with_long_texts(rows, ahead.where(~small & (F.col("seq") < end)))
    firsts = rows.filter(rows["first_of_object"]).select(["seq", *INPUT])
    never = pa.repeat(pa.scalar(0, pa.int32()), len(firsts))
    return Batch(
        end - begin,
        end,
        firsts.append_column("attempts", never).append_column("only", pa.nulls(len(firsts), pa.string())),
        repeats=bronze.repeats_from(begin),
    )


def _spread(writer: TableWriter, begin: int, end: int, limit: BatchLimit, *, repeats: bool) -> Batch:
    """The same, of which the driver sees no row: how far it goes is told by sums over spans of equal length."""
    ahead = read_table(writer.spark, EVENTS).where(F.col("seq").between(begin, end - 1))
    span = max(1, -(-(end - begin) // _SPANS))
    weight = F.least(_weight(), F.lit(limit.bytes + 1))
    sums = ahead.groupBy(F.floor((F.col("seq") - begin) / span).alias("span")).agg(F.sum(weight).alias("bytes"))
    total = 0
    for row in sorted(collect(sums)):
        total += row["bytes"]
        if total > limit.bytes:
            # At least one span: an object that is too large by itself is taken all the same.
            end = min(end, begin + max(1, row["span"]) * span)
            break
    firsts = ahead.where((F.col("seq") < end) & F.col("first_of_object"))
    never = F.lit(0).alias("attempts"), F.lit(None).cast("string").alias("only")
    return Batch(end - begin, end, firsts.select("seq", *INPUT, *never), repeats=repeats)


def _weight() -> Column:
    """What an event says of its size is somebody else's word."""
    return F.greatest("pointer.size", F.coalesce(F.octet_length("text").cast("long"), F.lit(0)))


def _fitting(rows: pa.Table, limit: BatchLimit) -> int:
    """How many of them, in their order; at least as many as must be taken."""
    sizes = pc.min_element_wise(rows["weight"], limit.bytes + 1)
    textual = pc.is_in(rows["modality"], pa.array(_TEXTUAL))
    over = pc.or_(
        pc.greater(pc.cumulative_sum(sizes), limit.bytes),
        pc.greater(pc.cumulative_sum(pc.if_else(textual, sizes, 0)), _TEXT_BYTES),
    )
    first = pc.index(over, True).as_py()
    return min(len(rows), max(1, limit.least, first)) if first >= 0 else len(rows)


def _with_long_texts(rows: pa.Table, long: DataFrame) -> pa.Table:
    texts_of = {row["seq"]: row["text"] for row in iterate(long.select("seq", "text"))}
    texts = [
        texts_of.get(seq, text) for seq, text in zip(rows["seq"].to_pylist(), rows["text"].to_pylist(), strict=True)
    ]
    return rows.set_column(rows.schema.get_field_index("text"), "text", pa.array(texts, pa.string()))
