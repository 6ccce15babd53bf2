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
from headwater.storage.tables.java_tables import load_java, name_in_spark
from headwater.storage.tables.metadata import read_metadata
from headwater.storage.tables.resolve_ref import resolve
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
    """In the metadata that was just read, by the rule of who reads without a JVM."""
    document = jvm.org.apache.iceberg.TableMetadataParser.toJson(java.operations().current())
    return resolve(read_metadata(str(document).encode()), ref, table.name).snapshot_id
