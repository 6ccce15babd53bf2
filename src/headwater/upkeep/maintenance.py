"""Maintenance: keep a stream's tables, and the memo, from drowning in files.

Compaction rewrites many small files of a table into few, in the table's order; expiry drops snapshots that nobody has
pinned and that are older than the setting. Both work from a plan that can be printed first, and neither changes a row.
What models answered is packed, a file a shelf; no answer is lost.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater import faults
from headwater.clock import to_text
from headwater.domain.tables import TABLES
from headwater.settings import Settings
from headwater.storage.memo import open_memo

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from headwater.storage.catalog import Tables

# Fewer small files than this in a table are not worth a rewrite.
_FILES_MIN: Final = 5
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TableCare:
    """What is to be done to one table. `compact` counts the files that are too small."""

    table: str
    files: int
    compact: int
    expire: int
    older_than: str

    @property
    def idle(self) -> bool:
        return not self.compact and not self.expire


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    tables: tuple[TableCare, ...]
    target_bytes: int
    memo_objects: int = 0

    def __bool__(self) -> bool:
        return any(not care.idle for care in self.tables)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target_bytes": self.target_bytes,
            "tables": [asdict(care) for care in self.tables],
            "memo_objects": self.memo_objects,
        }


@dataclass(frozen=True, slots=True)
class TableDone:
    """Before → after, for the summary line."""

    table: str
    files_before: int
    files_after: int
    snapshots_before: int
    snapshots_after: int


def plan_maintenance(catalog: "Tables", settings: Settings, *, now: datetime) -> MaintenancePlan:
    """Pure: reads metadata, writes nothing, starts no JVM."""
    target = settings.whole("maintain.file_mb") * _MEGABYTE
    horizon = now - timedelta(hours=settings.number("maintain.keep_hours"))
    cares = tuple(_care(catalog.load_table(table.name), table.name, target, horizon) for table in TABLES)
    loose = sum(size.objects for size in open_memo(settings).sizes() if size.objects > 1)
    return MaintenancePlan(cares, target, loose)


def _care(table: "Table", name: str, target: int, horizon: datetime) -> TableCare:
    sizes = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
    # Iceberg's own bounds: a file between 75 % and 180 % of the target is left as it is.
    small = sum(size < target * 0.75 for size in sizes)
    pinned = {ref.snapshot_id for ref in table.refs().values()}
    cutoff_ms = int(horizon.timestamp() * 1000)
    # Equal timestamps are kept: expiry removes strictly older snapshots.
    old = [s for s in table.snapshots() if s.timestamp_ms < cutoff_ms and s.snapshot_id not in pinned]
    return TableCare(name, len(sizes), small if small >= _FILES_MIN else 0, len(old), to_text(horizon))


def apply_maintenance(
    spark: "SparkSession", plan: MaintenancePlan, report: Callable[[TableDone], None]
) -> list[TableDone]:
    """Table by table; killed half-way, what is done is done and a new plan finds the rest."""
    done = []
    for care in plan.tables:
        if care.idle:
            continue
        files, snapshots = _counts(spark, care.table)
        if care.compact:
            _compact(spark, care.table, plan.target_bytes)
            faults.point("maintain.compacted")
        if care.expire:
            _expire(spark, care)
        files_after, snapshots_after = _counts(spark, care.table)
        result = TableDone(care.table, files, files_after, snapshots, snapshots_after)
        done.append(result)
        report(result)
    return done


def pack_memo(settings: Settings, report: Callable[[TableDone], None]) -> list[TableDone]:
    """Needs no Spark; safe while workers put and look."""
    memo = open_memo(settings)
    before = sum(size.objects for size in memo.sizes())
    fewer = memo.pack()
    if not fewer:
        return []
    result = TableDone("memo", before, before - fewer, 0, 0)
    report(result)
    return [result]


def _compact(spark: "SparkSession", table: str, target_bytes: int) -> None:
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{table}', strategy => 'sort', options => map("
        f"'target-file-size-bytes', '{target_bytes}', 'min-input-files', '{_FILES_MIN}', "
        "'partial-progress.enabled', 'true'))"
    ).collect()


def _expire(spark: "SparkSession", care: TableCare) -> None:
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{care.table}', older_than => TIMESTAMP '{care.older_than}', "
        "retain_last => 1)"
    ).collect()


def _counts(spark: "SparkSession", table: str) -> tuple[int, int]:
    return spark.table(f"lake.{table}.files").count(), spark.table(f"lake.{table}.snapshots").count()
