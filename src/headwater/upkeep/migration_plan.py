"""What a migration would move: a value, made from the lake and two settings. Reads metadata and listings, writes
nothing, opens nothing of the target."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from headwater.domain.progress import Progress
from headwater.domain.tables import EVENTS, TABLES
from headwater.errors import InvalidRequest
from headwater.settings import Settings
from headwater.storage.ledger import Ledger
from headwater.storage.ledger_copy import count_claims
from headwater.storage.memo import open_memo
from headwater.storage.pointer_log import PointerLog
from headwater.storage.raw_store import RawStore
from headwater.storage.relocate import survey

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

RAW, LOG, CATALOG, WAREHOUSE = "raw.uri", "log.uri", "catalog.uri", "catalog.warehouse"
LEDGER, INDEX, MEMO, CHECKPOINTS = "ledger.uri", "index.uri", "memo.uri", "checkpoints.uri"
HOW: Final = {
    RAW: "objects are copied with their checksums",
    LOG: "starts empty; the old one must be read to its end first",
    CATALOG: "tables are registered with their snapshots, branches and tags",
    WAREHOUSE: "files are copied, metadata rewritten",
    LEDGER: "facts, keys and the journal are copied",
    INDEX: "rebuilt from silver.embeddings by the next run",
    MEMO: "results are copied",
    CHECKPOINTS: "left behind; they are hints",
}


class Parts(Protocol):
    """The live parts of a lake that a migration needs, as `components` builds them."""

    @property
    def settings(self) -> Settings: ...
    @property
    def raw_store(self) -> RawStore: ...
    @property
    def log(self) -> PointerLog: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def catalog(self) -> "Catalog": ...


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


@dataclass(frozen=True, slots=True)
class MigrationPlan:
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_migration(source: Parts, target: Settings) -> MigrationPlan:
    """Pure: what differs, and how much there is of it."""
    before = source.settings
    differing = [name for name in HOW if _place(before.text(name)) != _place(target.text(name))]
    if WAREHOUSE in differing and CATALOG not in differing:
        raise InvalidRequest(
            "catalog.warehouse would move but catalog.uri would not, and one catalog cannot hold a table twice. "
            "Name a new catalog.uri too."
        )
    parts = tuple(PartMove(name, shown(before.text(name)), shown(target.text(name)), HOW[name]) for name in differing)
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
        changed=_changed(before, target),
    )


def count_unread(source: Parts) -> int:
    read = Progress.from_properties(source.catalog.load_table(EVENTS.name).properties).offsets
    return sum(max(0, end - read.get(partition, 0)) for partition, end in source.log.end().items())


def measure_raw(store: RawStore) -> Amount:
    sizes = [found.size for found in store.list()]
    return Amount(len(sizes), sum(sizes))


def shown(uri: str) -> str:
    """Without whoever's name and password."""
    return re.sub("//[^@/]*@", "//", uri)


def _place(uri: str) -> str:
    plain = re.sub("^s3[an]://", "s3://", uri)
    return re.sub("^file:(//)?", "", plain).rstrip("/")


def _measure_memo(settings: Settings) -> Amount:
    sizes = [found["size"] for page in open_memo(settings).store.list() for found in page]
    return Amount(len(sizes), sum(sizes))


def _table_move(table: "Table", name: str) -> TableMove:
    files = survey(table)
    current: Any = table.current_snapshot()
    rows = int(current.summary["total-records"]) if current else 0
    refs = tuple(sorted(table.metadata.refs))
    return TableMove(name, rows, len(table.metadata.snapshots), refs, files.count, sum(files.copied.values()))


def _changed(before: Settings, after: Settings) -> dict[str, str]:
    """Settings other than places that would be different; secrets are named, not shown."""
    shown_after = {each["name"]: each for each in after.shown()}
    return {
        each["name"]: f"{each['value']} → {shown_after[each['name']]['value']}"
        for each in before.shown()
        if each["name"] not in HOW and before[each["name"]] != after[each["name"]]
    }
