"""Rows as plain values: what an Arrow table holds, as Python's own types or as JSON can carry it."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headwater.clock import to_text
from headwater.domain.tables import TIMESTAMP

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of plain JSON values: times as ISO 8601 in UTC, bytes as hex."""
    return [{name: to_plain(value) for name, value in row.items()} for row in to_rows(table)]


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """As `to_pylist`, which loads pandas for the sake of times; these are made of their microseconds here."""
    columns = [_values(column) for column in table.columns]
    names = distinct_names(table.column_names)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def distinct_names(names: list[str]) -> list[str]:
    """A name that comes again gets a number, as DuckDB itself gives it in a subquery: `seq`, `seq_1`."""
    found: list[str] = []
    for name in names:
        number, free = 0, name
        while free in found or (number and free in names):
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    if column.type != TIMESTAMP:
        return list(column.to_pylist())
    moments = column.cast(pa.int64()).to_pylist()
    return [None if moment is None else _EPOCH + timedelta(microseconds=moment) for moment in moments]


def to_plain(value: Any) -> Any:
    """A value that JSON can carry."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return to_text(value) if value.tzinfo else value.isoformat()
        case date():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): to_plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [to_plain(inner) for inner in value]
        case _:
            return str(value)
