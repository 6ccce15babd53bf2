"""What a migration would move: a value, made from the lake and two settings. Reads metadata and listings, writes
nothing, opens nothing of the target."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headwater.domain.shown import ShownAsTable
from headwater.domain.tables import TABLES
from headwater.errors import InvalidRequest
from headwater.flow.log.identity import find_unread
from headwater.settings import OPEN_SECTIONS, Settings
from headwater.storage.ledger.copy import count_claims
from headwater.storage.memo.memo import open_memo
from headwater.storage.raw.store import RawStore
from headwater.storage.tables.relocate import list_table_files
from headwater.upkeep.migration.note import check_here, read_offsets
from headwater.upkeep.migration.places import (
    CATALOG,
    CHECKPOINTS,
    INDEX,
    LEDGER,
    LOG,
    MEMO,
    PLACES,
    RAW,
    WAREHOUSE,
    check_not_overridden,
    moving,
    shown,
    shown_place,
)
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Step

if TYPE_CHECKING:
    from pyiceberg.table import Table

HOW: Final = {
    RAW: "objects are copied with their checksums",
    LOG: "starts empty; the old one must be read to its end first",
    CATALOG: "tables are registered with their snapshots, branches and tags",
    WAREHOUSE: "files are copied, metadata rewritten",
    LEDGER: "facts, keys and the journal are copied",
    INDEX: "emptied; rebuilt from silver.embeddings by the next run",
    MEMO: "results are copied",
    CHECKPOINTS: "left behind; they are hints",
}


@dataclass(frozen=True, slots=True)
class PartMove:
    setting: str
    before: str
    after: str
    how: str


@dataclass(frozen=True, slots=True)
class TableMove:
    table: str
    rows: int
    snapshots: int
    refs: tuple[str, ...]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Amount:
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckParts(Step):
    """What a migration that was cut short changed is taken back; the target answers, and nobody else is there."""

    action: ClassVar[str] = "check-parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRaw(Step):
    action: ClassVar[str] = "copy-raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyMemo(Step):
    action: ClassVar[str] = "copy-memo"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTable(Step):
    """Its files are copied where the warehouse moves, and it is registered; one that went on meanwhile, once more."""

    action: ClassVar[str] = "move-table"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLedger(Step):
    action: ClassVar[str] = "copy-ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRows(Step):
    """Every branch and tag has the same rows on both sides; raw objects that came meanwhile are copied."""

    action: ClassVar[str] = "compare-rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLake(Step):
    """From here on the lake is where its settings say. Whole, or taken back."""

    action: ClassVar[str] = "switch-lake"


STEP_TYPES: Final = (CheckParts, CopyRaw, CopyMemo, MoveTable, CopyLedger, CompareRows, SwitchLake)


@dataclass(frozen=True, slots=True)
class MigrationPlan(ShownAsTable):
    """`unread` events stand in a log that is to be left behind: the migration is refused until they are read."""

    parts: tuple[PartMove, ...]
    raw: Amount
    memo: Amount
    tables: tuple[TableMove, ...]
    claims: int
    unread: int
    changed: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.parts or self.changed)

    def moves(self, *settings: str) -> bool:
        return any(part.setting in settings for part in self.parts)

    @property
    def steps(self) -> tuple[Step, ...]:
        if not self:
            return ()
        copies: list[Step] = []
        if self.moves(RAW):
            copies.append(CopyRaw(about=RAW, cost=asdict(self.raw)))
        if self.moves(MEMO):
            copies.append(CopyMemo(about=MEMO, cost=asdict(self.memo)))
        copies += [MoveTable(about=t.table, cost={"files": t.files, "bytes": t.bytes}) for t in self.tables]
        if self.moves(LEDGER):
            copies.append(CopyLedger(about=LEDGER, cost={"claims": self.claims}))
        return (CheckParts(about="lake"), *copies, CompareRows(about="lake"), SwitchLake(about="lake"))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "steps": [step.to_dict() for step in self.steps]}


def plan_migration(source: Parts, target: Settings) -> MigrationPlan:
    """Pure: what differs, and how much there is of it. Conflict where the lake is not here, or not of this format."""
    check_here(source)
    check_not_overridden(target)
    before = source.settings
    differing = moving(before, target)
    if WAREHOUSE in differing and CATALOG not in differing:
        raise InvalidRequest(
            "catalog.warehouse would move but catalog.uri would not, and one catalog cannot hold a table twice. "
            "Name a new catalog.uri too; or, if it is the same S3 server by another name, edit s3.endpoint by hand."
        )
    parts = tuple(PartMove(name, shown_place(before, name), shown_place(target, name), HOW[name]) for name in differing)
    moves_tables = CATALOG in differing
    return MigrationPlan(
        parts=parts,
        raw=measure_raw(source.raw_store) if RAW in differing else Amount(0, 0),
        memo=_measure_memo(before) if MEMO in differing else Amount(0, 0),
        tables=tuple(_table_move(source.catalog.load_table(each.name), each.name) for each in TABLES)
        if moves_tables
        else (),
        claims=count_claims(source.ledger) if LEDGER in differing else 0,
        unread=count_unread(source) if LOG in differing else 0,
        changed=_changed(before, target, differing),
    )


def count_unread(source: Parts) -> int:
    """All that it holds, where it is not the log that was read."""
    return find_unread(source.log, source.ledger, read_offsets(source)).events


def measure_raw(store: RawStore) -> Amount:
    return _amount(found.size for found in store.list())


def _measure_memo(settings: Settings) -> Amount:
    return _amount(found["size"] for page in open_memo(settings).store.list() for found in page)


def _amount(sizes: Iterable[int]) -> Amount:
    """One pass: a listing may be longer than memory."""
    count = total = 0
    for size in sizes:
        count, total = count + 1, total + size
    return Amount(count, total)


def _table_move(table: "Table", name: str) -> TableMove:
    files = list_table_files(table)
    current: Any = table.current_snapshot()
    rows = int(current.summary["total-records"]) if current else 0
    refs = tuple(sorted(table.metadata.refs))
    return TableMove(name, rows, len(table.metadata.snapshots), refs, files.count, sum(files.copied.values()))


def _changed(before: Settings, after: Settings, differing: list[str]) -> dict[str, str]:
    """Settings that would be different and move nothing; secrets are named, not shown."""
    shown_after = {each["name"]: each["value"] for each in after.shown()}
    changed = {
        each["name"]: _change(each["name"], each["value"], shown_after[each["name"]])
        for each in before.shown()
        if each["name"] not in differing and before[each["name"]] != after[each["name"]]
    }
    # Some hold passwords, and which do is their reader's knowledge.
    for section in OPEN_SECTIONS:
        one, other = before.section(section), after.section(section)
        changed |= {f"{section}.{key}": "other" for key in _different(one, other)}
    return changed | {f"model.{name}": "other" for name in _different(before.models, after.models)}


def _change(name: str, before: Any, after: Any) -> str:
    if name in PLACES:
        return f"{shown(after)}, the same place, reached in another way"
    return f"{shown(str(before))} → {shown(str(after))}"


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
