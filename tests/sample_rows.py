"""Rows of the lake's tables for tests: every required column has a value, the test names those it speaks about."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Record

from headwater.domain import tables

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
_EPOCH: Final = date(1970, 1, 1)
_BY_TYPE: Final[Mapping[pa.DataType, Any]] = {pa.string(): "", pa.int64(): 0, pa.int32(): 0, pa.bool_(): True}


def rows(table: tables.Table, given: Sequence[Mapping[str, Any]], first_seq: int = 0) -> pa.Table:
    """Fills what was not given: seq counts up, times are noon, the pointer follows the object."""
    full = [{**_defaults(table, row), "seq": first_seq + number, **row} for number, row in enumerate(given)]
    return pa.Table.from_pylist(full, schema=table.schema)


def _defaults(table: tables.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    values = {field.name: _default(field) for field in table.schema if not field.nullable}
    if "pointer" in table.schema.names:
        path = row.get("object_id", "audio/acme/2026-03-01/call.wav")
        values["pointer"] = {"path": path, "offset": 0, "size": 3, "content_type": "audio/wav", "checksum": "ab" * 32}
    return values


def _default(field: pa.Field) -> Any:
    if pa.types.is_timestamp(field.type):
        return NOON
    return [0.0] if pa.types.is_list(field.type) else _BY_TYPE.get(field.type)


def append(table: IcebergTable, given: pa.Table, day: str = "occurred_at") -> None:
    """One commit, one file a day, on a disk or on S3, as the flow would write them: with Iceberg's field numbers."""
    days = pc.cast(given[day], pa.date32())
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as commit:
        for value in pc.unique(days).to_pylist():
            rows_of_day = given.filter(pc.equal(days, pa.scalar(value, pa.date32())))
            commit.append_data_file(data_file(table, rows_of_day, value))


def data_file(table: IcebergTable, given: pa.Table, day: date) -> DataFile:
    """Written, and not yet of the table."""
    location = f"{table.location()}/data/{uuid.uuid4().hex}.parquet"
    schema = schema_to_pyarrow(table.schema())
    numbered = pa.schema([schema.field(name) for name in given.column_names])
    with table.io.new_output(location).create() as stream:
        pq.write_table(given.cast(numbered), stream, compression="zstd", store_schema=False)
    written = table.io.new_input(location)
    with written.open() as stream:
        footer = pq.read_metadata(stream)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=location, file_format=FileFormat.PARQUET,
        partition=Record((day - _EPOCH).days),
        file_size_in_bytes=len(written), sort_order_id=None, spec_id=0, equality_ids=None, key_metadata=None,
        **statistics.to_serialized_dict(),
    )  # fmt: skip


def take_in(table: IcebergTable, given: pa.Table) -> None:
    """A file that somebody else wrote, without numbers: its columns are found by the table's name mapping."""
    path = Path(table.location().removeprefix("file://")) / "data" / f"{uuid.uuid4().hex}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(given, path, compression="zstd")
    table.add_files([f"file://{path}"])
