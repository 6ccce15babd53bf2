"""Reading a table with Spark: as it is now, or as it was at a ref.

A DataFrame is a plan, and reads when an action carries it out. The few actions that we use stand here, so that what is
wrong with a table is an error of ours where it comes out: files that expired meanwhile, a table that was dropped, a
catalog or a warehouse that does not answer.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, Row, SparkSession

from headwater.domain.ref import Ref
from headwater.domain.tables import Table
from headwater.errors import NotFound
from headwater.storage.tables.java_tables import load_java, name_in_spark
from headwater.storage.tables.spark_errors import translated_java


def read_table(spark: SparkSession, table: Table, ref: Ref | None = None) -> DataFrame:
    """The table's rows, with `ref` those of one snapshot, which it names from here on whatever becomes of a tag.

    NotFound where the catalog has no such table, or the table nothing that the ref names.
    """
    name = name_in_spark(table.name)
    with translated_java(table.name):
        if ref is None:
            return spark.table(name)
        snapshot = _snapshot_id(spark._jvm, load_java(spark, table.name), table, ref)
        return spark.read.option("snapshot-id", str(snapshot)).table(name)


def to_arrow(rows: DataFrame) -> pa.Table:
    """All of them, in the driver's memory."""
    with translated_java():
        return rows.toArrow()


def collect(rows: DataFrame) -> list[Row]:
    """All of them, as rows: for a handful."""
    with translated_java():
        return rows.collect()


def iterate(rows: DataFrame) -> Iterator[Row]:
    """One partition after the other: for more than the driver holds."""
    with translated_java():
        yield from rows.toLocalIterator()


def count_rows(rows: DataFrame) -> int:
    with translated_java():
        return rows.count()


def is_empty(rows: DataFrame) -> bool:
    with translated_java():
        return rows.isEmpty()


def _snapshot_id(jvm: Any, java: JavaObject, table: Table, ref: Ref) -> int:
    """As Iceberg finds it, in the metadata that was just read."""
    if ref.snapshot_id is not None:
        if java.snapshot(ref.snapshot_id) is None:
            raise NotFound(
                f"{table.name} has no snapshot {ref}: it has expired, or never was. "
                "Read the table as it is now, or at another snapshot."
            )
        return ref.snapshot_id
    if ref.name is not None:
        named = java.refs().get(ref.name)
        if named is None:
            known = ", ".join(sorted(java.refs().keySet())) or "none yet"
            raise NotFound(f"{table.name} has no tag or branch {ref.name}. It has: {known}.")
        return int(named.snapshotId())
    found = jvm.org.apache.iceberg.util.SnapshotUtil.nullableSnapshotIdAsOfTime(java, ref.at_ms)
    if found is None:
        raise NotFound(
            f"{table.name} keeps no snapshot from {ref} or before: it has expired, or the table is younger. "
            "Ask for a later time."
        )
    return int(found)
