"""Data files: an Arrow table in the driver's hands, as Parquet files of an Iceberg table that nobody sees yet.

For rows that are in the driver anyway: Arrow writes Parquet at a third of the CPU that Spark's tasks need for it. On
another machine's store the bytes go out through the table's own Java FileIO, so that a warehouse is reached in one way
only. `table_writer` adds the files to the table; a file that is never added is an orphan, as of a task that was killed.

A day of its own gets a file of its own, where a batch has a few; what is strewn over many days goes into one file
together, sorted by time, under the table's spec without partitions. Bounds tell readers which of them to open.
"""

import json
import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.java_gateway import JavaObject

from headwater.domain.tables import Table
from headwater.storage.io.local_path import local_path
from headwater.storage.io.s3 import is_s3
from headwater.storage.io.scratch import scratch_directory
from headwater.storage.tables.warehouse_files import WarehouseFiles

_FIELD_ID: Final = b"PARQUET:field_id"
DAYS_APART: Final = 4  # a stream's batch spans today, and yesterday for those who come late
DENSE_BYTES: Final = 8 << 20
_WRITERS: Final = 4
Day = str | None


def write_files(jvm: Any, java: JavaObject, table: Table, rows: pa.Table, files: WarehouseFiles) -> list[JavaObject]:
    """Iceberg's descriptions of the files, which last when this returns."""
    schema = _with_ids(table.schema, json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(java.schema()))["fields"])
    together = unpartitioned_spec(java)
    pieces = [(day, piece.cast(schema)) for day, piece in split_by_day(table, rows, apart=together is None)]
    with ThreadPoolExecutor(min(_WRITERS, len(pieces)), "data files") as pool:
        places = list(pool.map(lambda pair: _write(jvm, java, table, *pair), pieces))
    files.sync(places)
    return [_data_file(jvm, java, table, day, place, together) for (day, _), place in zip(pieces, places, strict=True)]


def unpartitioned_spec(java: JavaObject) -> JavaObject | None:
    """The table's spec without partitions; lakes of an older format have none."""
    return next((spec for spec in java.specs().values() if spec.isUnpartitioned()), None)


def split_by_day(table: Table, rows: pa.Table, *, apart: bool = False) -> list[tuple[Day, pa.Table]]:
    """Pure: rows by the file they go into; None is that of days which have none of their own. `apart`: all have."""
    days = pc.cast(pc.floor_temporal(rows[table.day], unit="day"), pa.date32())
    counted = days.value_counts()
    counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    if len(counts) == 1:
        return [(_name(next(iter(counts))), rows)]
    each = max(1, rows.nbytes // len(rows))
    dense = {day for day, count in counts.items() if apart or len(counts) <= DAYS_APART or count * each >= DENSE_BYTES}
    pieces: list[tuple[Day, pa.Table]] = [(_name(day), rows.filter(pc.equal(days, day))) for day in sorted(dense)]
    if strewn := [day for day in counts if day not in dense]:
        left = rows.filter(pc.is_in(days, pa.array(strewn, pa.date32())))
        pieces.append((None, left.sort_by(table.day)))
    return pieces


def _name(day: Any) -> Day:
    return str(day.isoformat())


def _write(jvm: Any, java: JavaObject, table: Table, day: Day, rows: pa.Table) -> str:
    name = f"{uuid.uuid4().hex}.parquet"
    location = str(java.locationProvider().newDataLocation(f"{_partition(table, day)}/{name}" if day else name))
    if not is_s3(location):
        path = local_path(location)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pq.write_table(rows, path, compression="zstd", store_schema=False)
        return location
    with tempfile.TemporaryDirectory(prefix="rows-", dir=scratch_directory()) as scratch:
        file = Path(scratch) / "rows.parquet"
        pq.write_table(rows, file, compression="zstd", store_schema=False)
        _copy(jvm, file, java.io().newOutputFile(location))
    return location


def _partition(table: Table, day: Day) -> str:
    return f"{table.day}_day={day}"


def _data_file(
    jvm: Any, java: JavaObject, table: Table, day: Day, location: str, together: JavaObject | None
) -> JavaObject:
    written = java.io().newInputFile(location)
    config = jvm.org.apache.iceberg.MetricsConfig.forTable(java)
    builder = (
        jvm.org.apache.iceberg.DataFiles.builder(java.spec() if day else together)
        .withInputFile(written)
        .withFormat("parquet")
        .withMetrics(jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(written, config))
    )
    if day:  # what is strewn over days is sorted by time instead
        builder = builder.withPartitionPath(_partition(table, day)).withSortOrder(java.sortOrder())
    return builder.build()


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
