"""Rows of the lake's tables for tests: every required column has a value, the test names those it speaks about."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table as IcebergTable

from headwater.domain import tables

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
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
    """One commit, one file a day. By hand, since PyIceberg computes days only with an extension that we do not ship."""
    days = pc.cast(given[day], pa.date32())
    paths = []
    for value in pc.unique(days).to_pylist():
        path = Path(table.location().removeprefix("file://")) / "data" / f"{uuid.uuid4().hex}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(given.filter(pc.equal(days, pa.scalar(value, pa.date32()))), path, compression="zstd")
        paths.append(f"file://{path}")
    table.add_files(paths)
