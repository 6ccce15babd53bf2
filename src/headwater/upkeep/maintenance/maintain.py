"""Maintenance: keep a stream's tables, and the memo, from drowning in files.

Compaction rewrites many small files of a table into few, in the table's order; expiry drops snapshots that nobody has
pinned and that are older than the setting. Both work from a plan that can be printed first, and neither changes a row.
What models answered is packed, and what was free leaves when it is old: see `memo_care`. Uploads to S3 that nobody
completed are given up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headwater import faults, telemetry
from headwater.clock import to_text
from headwater.domain.model_book import ModelBook
from headwater.domain.shown import ShownAsTable
from headwater.domain.tables import TABLES, Table
from headwater.errors import Conflict
from headwater.settings import Settings
from headwater.storage.io.s3_uploads import Upload, abandoned_uploads, give_up
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import Keep, expirable
from headwater.upkeep.maintenance.compaction import Group, compact, data_files, plan_groups
from headwater.upkeep.maintenance.memo import ShelfCare, pack_shelf, plan_memo
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Applied, Result, Step, Task, apply

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

    from headwater.storage.tables.catalog import Tables
    from headwater.storage.tables.writer import TableWriter

_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactFiles(Step):
    """Files of a table that become fewer. Expects the very table, by its id; that its files are still there is seen
    when it commits."""

    action: ClassVar[str] = "compact-files"
    files: tuple[str, ...]
    bytes: int
    spec: int
    by_time: bool
    target_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSnapshots(Step):
    """Expects the very table, by its id. Which snapshots go is decided by the commit: a run goes on meanwhile."""

    action: ClassVar[str] = "expire-snapshots"
    older_than: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackMemo(Step):
    """One shelf of the memo: its files become few, its free answers of days before `drop_before` go."""

    action: ClassVar[str] = "pack-memo"
    step: str
    fingerprint: str
    drop_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortUploads(Step):
    """(bucket, key, id) of each."""

    action: ClassVar[str] = "abort-uploads"
    uploads: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeIndex(Step):
    action: ClassVar[str] = "optimize-index"


@dataclass(frozen=True, slots=True)
class TableCare:
    """What is to be done to one table, known by its `uuid`. `groups` are the files that are to become fewer."""

    table: str
    uuid: str
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

    def steps(self, target_bytes: int) -> Iterator[Step]:
        for group in self.groups:
            yield CompactFiles(
                about=self.table,
                expects=self.uuid,
                files=group.locations,
                bytes=group.bytes,
                spec=group.spec,
                by_time=group.by_time,
                target_bytes=target_bytes,
                cost={"files": len(group.locations), "bytes_rewritten": group.bytes},
            )
        if self.expire:
            cost = {"snapshots": self.expire}
            yield ExpireSnapshots(about=self.table, expects=self.uuid, older_than=self.older_than, cost=cost)

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "files": self.files,
            "compact": self.compact,
            "expire": self.expire,
            "older_than": self.older_than,
        }


@dataclass(frozen=True, slots=True)
class MaintenancePlan(ShownAsTable):
    tables: tuple[TableCare, ...]
    target_bytes: int
    memo: tuple[ShelfCare, ...] = ()
    uploads: tuple[Upload, ...] = ()

    def __bool__(self) -> bool:
        return any(not care.idle for care in self.tables)

    @property
    def steps(self) -> tuple[Step, ...]:
        return (
            *(step for care in self.tables for step in care.steps(self.target_bytes)),
            *(_pack(care) for care in self.memo if care.pack),
            OptimizeIndex(about="index"),
            *([_abort(self.uploads)] if self.uploads else []),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "target_bytes": self.target_bytes,
            "tables": [care.to_dict() for care in self.tables],
            "memo_objects": sum(care.pack for care in self.memo),
            "memo_dropped": sum(care.drop for care in self.memo),
            "uploads": len(self.uploads),
            "steps": [step.to_dict() for step in self.steps],
        }


def _pack(care: ShelfCare) -> PackMemo:
    cost = {"files": care.pack, "answers_dropped": care.drop}
    about = f"memo of {care.step} by {care.fingerprint}"
    return PackMemo(about=about, step=care.step, fingerprint=care.fingerprint, drop_before=care.drop_before, cost=cost)


def _abort(uploads: tuple[Upload, ...]) -> AbortUploads:
    named = tuple((upload.bucket, upload.key, upload.id) for upload in uploads)
    return AbortUploads(about="uploads", uploads=named, cost={"uploads": len(uploads)})


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
    uuid = str(iceberg.metadata.table_uuid)
    return TableCare(table.name, uuid, len(files), len(iceberg.snapshots()), groups, len(old), to_text(horizon))


class Maintain(Task[MaintenancePlan]):
    """Killed half-way, what is done is done. `now` decides how old is old; without it, the clock does."""

    kind = "maintain"
    step_types = (CompactFiles, ExpireSnapshots, PackMemo, OptimizeIndex, AbortUploads)

    def __init__(self, parts: Parts, *, now: datetime | None = None) -> None:
        self._parts = parts
        self._at = now
        self._writer: TableWriter | None = None

    def plan(self) -> MaintenancePlan:
        parts = self._parts
        return plan_maintenance(parts.reader, parts.settings, parts.book(), now=self._at or parts.clock())

    def state(self, step: Step) -> str:
        return str(self._parts.reader.load_table(step.about).metadata.table_uuid)

    def do(self, step: Step, held: Held) -> Result:
        settings = self._parts.settings
        match step:
            case CompactFiles():
                return self._compact(step)
            case ExpireSnapshots():
                return {"snapshots": -self._committer().expire(step.about, _keep(settings))}
            case PackMemo():
                return asdict(pack_shelf(settings, step.step, step.fingerprint, step.drop_before))
            case AbortUploads():
                # A writer that is still at work on one of them fails, and says so: see maintain.upload_hours.
                return {"uploads": give_up(settings, [Upload(*upload) for upload in step.uploads])}
            case _:
                self._parts.index.optimise()
                return {}

    def _committer(self) -> Committer:
        at, settings = self._at, self._parts.settings
        return Committer(settings, lambda: int(at.timestamp() * 1000)) if at else Committer(settings)

    def _compact(self, step: CompactFiles) -> Result:
        """A group that somebody else has rewritten is left to the next plan."""
        self._writer = self._writer or self._parts.table_writer()
        table = next(table for table in TABLES if table.name == step.about)
        group = Group(step.files, step.bytes, step.spec, step.by_time)
        try:
            after = compact(self._writer, table, group, step.target_bytes)
        except Conflict as conflict:
            telemetry.note("maintain.skipped", level="warning", table=step.about, detail=str(conflict))
            return {"skipped": str(conflict)}
        faults.point("maintain.compacted")
        return {"files": after - len(step.files), "snapshots": 1}


def maintain(parts: Parts, report: Callable[[str], None]) -> list[TableDone]:
    def report_step(step: Step, _: Result) -> None:
        report(f"{step.about}: {step.action} done")

    return summarise(apply(Maintain(parts), parts, report=report, stepped=report_step))


def summarise(applied: Applied[MaintenancePlan]) -> list[TableDone]:
    """By table, the memo and uploads told as if they were some."""
    done = []
    for care in applied.plan.tables if applied.plan is not None else ():
        before, after = _of_table(applied.resumed, care.table), _of_table(applied.results, care.table)
        if before or after:
            done.append(_table_done(care, before or [], after or []))
    everything = (*applied.resumed, *applied.results)
    packed = [result for step, result in everything if isinstance(step, PackMemo) and result["files_before"]]
    if packed:
        before, after, dropped = (sum(r[name] for r in packed) for name in ("files_before", "files_after", "dropped"))
        done.append(TableDone("memo", before, after, 0, 0, dropped))
    for step, result in everything:
        if isinstance(step, AbortUploads):
            count = len(step.uploads)
            done.append(TableDone(step.about, count, count - result["uploads"], 0, 0))
    return done


def _of_table(results: Sequence[tuple[Step, Result]], table: str) -> list[Result]:
    return [result for step, result in results if step.about == table]


def _table_done(care: TableCare, resumed: Sequence[Result], done: Sequence[Result]) -> TableDone:
    """The plan counted what was there when the steps that an earlier one had left were done."""
    files, snapshots = care.files - _sum(resumed, "files"), care.snapshots - _sum(resumed, "snapshots")
    after = care.files + _sum(done, "files"), care.snapshots + _sum(done, "snapshots")
    return TableDone(care.table, files, after[0], snapshots, after[1])


def _sum(results: Sequence[Result], name: str) -> int:
    return sum(result.get(name, 0) for result in results)
