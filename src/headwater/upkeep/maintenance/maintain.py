"""Maintenance: keep a stream's tables, and the memo, from drowning in files.

Compaction rewrites many small files of a table into few, in the table's order; expiry drops snapshots that nobody has
pinned and that are older than the setting. Both work from a plan that can be printed first, and neither changes a row.
What models answered is packed, and what was free leaves when it is old: see `memo_care`. Uploads to S3 that nobody
completed are given up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater import faults, telemetry
from headwater.clock import to_text
from headwater.domain.model_book import ModelBook
from headwater.domain.tables import TABLES, Table
from headwater.errors import Conflict
from headwater.settings import Settings
from headwater.storage.io.s3_uploads import Upload, abandoned_uploads, give_up
from headwater.storage.tables.expire_snapshots import Keep, expirable
from headwater.upkeep.maintenance.compaction import Group, compact, data_files, plan_groups
from headwater.upkeep.maintenance.memo import MemoDone, ShelfCare, apply_memo, plan_memo

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

    from headwater.storage.tables.catalog import Tables
    from headwater.storage.tables.commit import Committer
    from headwater.storage.tables.writer import TableWriter

_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TableCare:
    """What is to be done to one table. `groups` are the files that are to become fewer."""

    table: str
    files: int
    snapshots: int
    groups: tuple[Group, ...]
    expire: int
    older_than: str

    @property
    def compact(self) -> int:
        return sum(len(group.locations) for group in self.groups)

    @property
    def idle(self) -> bool:
        return not self.compact and not self.expire

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "files": self.files,
            "compact": self.compact,
            "expire": self.expire,
            "older_than": self.older_than,
        }


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    tables: tuple[TableCare, ...]
    target_bytes: int
    memo: tuple[ShelfCare, ...] = ()
    uploads: tuple[Upload, ...] = ()

    def __bool__(self) -> bool:
        return any(not care.idle for care in self.tables)

    @property
    def compacts(self) -> bool:
        """Whether Spark is needed."""
        return any(care.compact for care in self.tables)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target_bytes": self.target_bytes,
            "tables": [care.to_dict() for care in self.tables],
            "memo_objects": sum(care.pack for care in self.memo),
            "memo_dropped": sum(care.drop for care in self.memo),
            "uploads": len(self.uploads),
        }


@dataclass(frozen=True, slots=True)
class TableDone:
    """Before → after, for the summary line. `dropped` are free answers of the memo that were too old."""

    table: str
    files_before: int
    files_after: int
    snapshots_before: int
    snapshots_after: int
    dropped: int = 0


def plan_maintenance(catalog: "Tables", settings: Settings, book: ModelBook, *, now: datetime) -> MaintenancePlan:
    """Pure: reads metadata, writes nothing, starts no JVM."""
    target = settings.whole("maintain.file_mb") * _MEGABYTE
    keep = _keep(settings)
    cares = tuple(_care(catalog.load_table(table.name), table, target, keep, now) for table in TABLES)
    stale = now - timedelta(hours=settings.number("maintain.upload_hours"))
    uploads = abandoned_uploads(settings, begun_before=stale)
    return MaintenancePlan(cares, target, plan_memo(catalog, settings, book, now=now), uploads)


def _keep(settings: Settings) -> Keep:
    return Keep(settings.number("maintain.keep_hours"), age=True)


def _care(iceberg: "IcebergTable", table: Table, target: int, keep: Keep, now: datetime) -> TableCare:
    files = data_files(iceberg, table)
    specs = iceberg.specs().values()
    together = next((spec.spec_id for spec in specs if spec.is_unpartitioned()), None)
    groups = plan_groups(files, target, day_spec=iceberg.spec().spec_id, together_spec=together)
    document = iceberg.metadata.model_dump(by_alias=True, mode="json")
    old = expirable(document, keep, int(now.timestamp() * 1000))
    horizon = now - timedelta(hours=keep.hours)
    return TableCare(table.name, len(files), len(iceberg.snapshots()), groups, len(old), to_text(horizon))


def apply_maintenance(
    plan: MaintenancePlan,
    settings: Settings,
    committer: "Committer",
    writer: "Callable[[], TableWriter]",
    report: Callable[[TableDone], None],
) -> list[TableDone]:
    """Table by table; killed half-way, what is done is done and a new plan finds the rest. `writer` starts Spark."""
    done = []
    for care in plan.tables:
        if care.idle:
            continue
        fewer = _compact(writer(), care, plan.target_bytes) if care.compact else 0
        expired = committer.expire(care.table, _keep(settings)) if care.expire else 0
        added = sum(1 for _ in care.groups) if care.compact else 0
        result = TableDone(care.table, care.files, care.files - fewer, care.snapshots, care.snapshots + added - expired)
        done.append(result)
        report(result)
    return done


def _compact(writer: "TableWriter", care: TableCare, target_bytes: int) -> int:
    """How many files fewer. A group that somebody else has rewritten is left to the next plan."""
    table, fewer = next(table for table in TABLES if table.name == care.table), 0
    for group in care.groups:
        try:
            fewer += len(group.locations) - compact(writer, table, group, target_bytes)
        except Conflict as conflict:
            telemetry.note("maintain.skipped", level="warning", table=care.table, detail=str(conflict))
        faults.point("maintain.compacted")
    return fewer


def pack_memo(plan: MaintenancePlan, settings: Settings, report: Callable[[TableDone], None]) -> list[TableDone]:
    """The memo, told as if it were a table."""
    told: list[TableDone] = []

    def tell(done: MemoDone) -> None:
        told.append(TableDone("memo", done.files_before, done.files_after, 0, 0, done.dropped))
        report(told[-1])

    apply_memo(plan.memo, settings, tell)
    return told


def end_uploads(plan: MaintenancePlan, settings: Settings, report: Callable[[TableDone], None]) -> list[TableDone]:
    """Needs no Spark. A writer that is still at work on one of them fails, and says so: see maintain.upload_hours."""
    if not plan.uploads:
        return []
    given_up = give_up(settings, plan.uploads)
    result = TableDone("uploads", len(plan.uploads), len(plan.uploads) - given_up, 0, 0)
    report(result)
    return [result]
