"""Data files: an Arrow table in the driver's hands, as Parquet files of an Iceberg table that nobody sees yet.

For rows that are in the driver anyway: Arrow writes Parquet at a third of the CPU that Spark's tasks need for it. The
bytes go out through the table's own Java FileIO, so that a warehouse is reached in one way only. `publish` adds the
files to the table; a file that is never added is an orphan, as of a task that was killed.
"""

import json
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.java_gateway import JavaObject

from headwater.domain.tables import Table

_FIELD_ID: Final = b"PARQUET:field_id"


def write_files(jvm: Any, java: JavaObject, table: Table, rows: pa.Table) -> list[JavaObject]:
    """One file for each day, in the table's order; returns Iceberg's descriptions of them."""
    schema = _with_ids(table.schema, json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(java.schema()))["fields"])
    return [_write(jvm, java, f"{table.day}_day={day}", part.cast(schema)) for day, part in _by_day(table, rows)]


def _by_day(table: Table, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    days = pc.cast(pc.floor_temporal(rows[table.day], unit="day"), pa.date32())
    for day in pc.unique(days).sort():
        yield day.as_py().isoformat(), rows.filter(pc.equal(days, day))


def _write(jvm: Any, java: JavaObject, partition: str, rows: pa.Table) -> JavaObject:
    location = java.locationProvider().newDataLocation(f"{partition}/{uuid.uuid4().hex}.parquet")
    with tempfile.TemporaryDirectory(prefix="headwater-rows-") as scratch:
        file = Path(scratch) / "rows.parquet"
        pq.write_table(rows, file, compression="zstd", store_schema=False)
        _copy(jvm, file, java.io().newOutputFile(location))
    written = java.io().newInputFile(location)
    config = jvm.org.apache.iceberg.MetricsConfig.forTable(java)
    return (
        jvm.org.apache.iceberg.DataFiles.builder(java.spec())
        .withInputFile(written)
        .withFormat("parquet")
        .withPartitionPath(partition)
        .withMetrics(jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(written, config))
        .withSortOrder(java.sortOrder())
        .build()
    )


def _copy(jvm: Any, file: Path, output: JavaObject) -> None:
    stream = output.create()
    try:
        jvm.java.nio.file.Files.copy(jvm.java.io.File(str(file)).toPath(), stream)
    finally:
        stream.close()


def _with_ids(schema: pa.Schema, described: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Iceberg finds columns by number, also in files."""
    by_name = {field["name"]: field for field in described}
    return pa.schema([_numbered(field, by_name[field.name]) for field in schema])


def _numbered(field: pa.Field, described: Mapping[str, Any]) -> pa.Field:
    kind = _kind(field.type, described["type"])
    return pa.field(field.name, kind, field.nullable, metadata={_FIELD_ID: str(described["id"])})


def _kind(kind: pa.DataType, described: Any) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(list(_with_ids(pa.schema(list(kind)), described["fields"])))
    if pa.types.is_list(kind):
        element = {"id": described["element-id"], "type": described["element"]}
        return pa.list_(_numbered(kind.value_field.with_name("element"), element))
    if pa.types.is_nested(kind):
        raise NotImplementedError(f"No table has a column of {kind} yet.")
    return kind
