"""Compaction: many small files of a table become few, without a row changing.

Days that have enough of their own are compacted each by itself. Days that have little are laid out together, sorted by
time, so that a history of fifteen hundred days with a line each becomes one file and not fifteen hundred.
Pure up to `compact`, which carries out one group of the plan.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater.domain.tables import Table

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import DataFrame

    from headwater.storage.tables.writer import TableWriter

FILES_MIN: Final = 5  # fewer small files than this are not worth a rewrite
# Iceberg's own bound: a file of 75 % of the target or more is left as it is.
_SMALL: Final = 0.75
_DENSE: Final = 8  # a day with an eighth of a file or more gets files of its own
# A file so many times larger than all it would be merged with is not written anew for their sake.
_TOO_LARGE: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DataFile:
    """`day` is None for a file of many days; `begin` is its first moment."""

    location: str
    bytes: int
    day: date | None
    begin: datetime | date


@dataclass(frozen=True, slots=True)
class Group:
    """Files to be rewritten as one; `spec` is the partition spec of what comes of them."""

    locations: tuple[str, ...]
    bytes: int
    spec: int
    by_time: bool


def data_files(iceberg: "IcebergTable", table: Table) -> list[DataFile]:
    """From manifests alone."""
    return [_data_file(iceberg, table, task.file) for task in iceberg.scan().plan_files()]


def plan_groups(
    files: Sequence[DataFile], target_bytes: int, *, day_spec: int, together_spec: int | None
) -> tuple[Group, ...]:
    small = [file for file in files if file.bytes < target_bytes * _SMALL]
    by_day: defaultdict[date | None, list[DataFile]] = defaultdict(list)
    for file in small:
        by_day[file.day].append(file)
    strewn = by_day.pop(None, [])
    groups = []
    for day in sorted(day for day in by_day if day is not None):
        own = by_day[day]
        if together_spec is None or sum(file.bytes for file in own) * _DENSE >= target_bytes:
            groups += [_group(own, day_spec, by_time=False)] if len(own) >= FILES_MIN else []
        else:
            strewn += own
    return (*groups, *_together(strewn, target_bytes, day_spec, together_spec))


def compact(writer: "TableWriter", table: Table, group: Group, target_bytes: int) -> int:
    """Carry out one group; how many files it is in then. Conflict where others rewrote some of it."""
    from headwater.storage.tables.rewrite_files import rewrite_files

    order = (table.day, *table.order) if group.by_time else table.order
    count = max(1, math.ceil(group.bytes / target_bytes))

    def arrange(rows: "DataFrame") -> "DataFrame":
        spread = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, *order)
        return spread.sortWithinPartitions(*order)

    return rewrite_files(writer, table, group.locations, arrange, group.spec)


def _together(
    files: Sequence[DataFile], target_bytes: int, day_spec: int, together_spec: int | None
) -> Iterator[Group]:
    for some in _bins(sorted(files, key=lambda file: file.begin.isoformat()), target_bytes):
        largest = max(some, key=lambda file: file.bytes)
        if largest.bytes > _TOO_LARGE * (sum(file.bytes for file in some) - largest.bytes):
            some.remove(largest)
        if len(some) >= FILES_MIN:
            one_day = len({file.day for file in some}) == 1 and some[0].day is not None
            spec = day_spec if one_day or together_spec is None else together_spec
            yield _group(some, spec, by_time=not one_day)


def _bins(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    some, bytes_held = list[DataFile](), 0
    for file in files:
        if some and bytes_held + file.bytes > target_bytes:
            yield some
            some, bytes_held = [], 0
        some.append(file)
        bytes_held += file.bytes
    if some:
        yield some


def _group(files: Sequence[DataFile], spec: int, *, by_time: bool) -> Group:
    return Group(tuple(file.location for file in files), sum(file.bytes for file in files), spec, by_time)


def _data_file(iceberg: "IcebergTable", table: Table, file: Any) -> DataFile:
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import TimestamptzType

    if not iceberg.specs()[file.spec_id].is_unpartitioned():
        day = _EPOCH.date() + timedelta(days=int(file.partition[0]))
        return DataFile(file.file_path, file.file_size_in_bytes, day, day)
    field = iceberg.schema().find_field(table.day).field_id
    bound = (file.lower_bounds or {}).get(field)
    begin = from_bytes(TimestamptzType(), bound) if bound else 0
    return DataFile(file.file_path, file.file_size_in_bytes, None, _EPOCH + timedelta(microseconds=int(begin)))
