"""Migration: a lake's parts moved to the places that other settings name; planned, copied, verified, switched.

Reads   every part of the lake
Writes  the parts of the target, and at the end the lake's `headwater.toml`
Invariant: until the switch the lake is as it was; after it the target is whole. Killed in between, the same command
goes on: what is done is noted in the ledger with the state that it was done for, so a lake that changed meanwhile is
looked at again. Nothing of the source is deleted.
"""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headwater import faults
from headwater.clock import Clock, to_text
from headwater.domain.progress import CONSUMED, Progress
from headwater.domain.tables import EVENTS, TABLES
from headwater.errors import Conflict, DataFault, Unavailable
from headwater.storage import catalog as catalogs
from headwater.storage.holding import holding
from headwater.storage.ledger_copy import CLAIMS, FACTS, Row, read_ledger, write_ledger
from headwater.storage.memo import open_memo
from headwater.storage.object_copy import copy_memo, copy_objects
from headwater.storage.reading import scan
from headwater.storage.relocate import open_warehouse, relocate, survey
from headwater.storage.row_hash import RowHash, hash_refs
from headwater.upkeep.format import MOVED_TO, set_format
from headwater.upkeep.migration_plan import (
    CATALOG,
    CHECKPOINTS,
    LEDGER,
    LOG,
    MEMO,
    RAW,
    WAREHOUSE,
    MigrationPlan,
    Parts,
    count_unread,
    measure_raw,
    plan_migration,
    shown,
)
from headwater.upkeep.new_settings import Document, switch

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NOTE: Final = "migration"
_CAME_AS: Final = "migrated"
_FORMAT: Final = "format"
# What a ledger says about its own place; it does not travel.
_LOG_IDENTITY: Final = "log.identity"
_STAYS: Final = {_NOTE, _CAME_AS, _FORMAT, MOVED_TO}
ATTEMPTS: Final = 6
RETRY_SECONDS: Final = 0.5
Report = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Migrated:
    """`refs` are the rows that were counted and hashed on both sides, by table and branch or tag."""

    plan: MigrationPlan
    refs: Mapping[str, Mapping[str, RowHash]]


def migrate(source: Parts, target: Parts, document: Document, clock: Clock, report: Report) -> Migrated:
    """Move the lake; raises Conflict, and changes nothing of it, where events are unread or the target is taken."""
    faults.arm()
    lost = threading.Event()
    with _alone(source, clock, lost):
        plan = plan_migration(source, target.settings)
        moving = _Migration(source, target, plan, clock, report, lost)
        run = _begin(source, plan, clock)
        refs = moving.apply(document)
        source.ledger.finish_run(run, "done", clock())
    report("switched")
    return Migrated(plan, refs)


@contextmanager
def _alone(source: Parts, clock: Clock, lost: threading.Event) -> Iterator[None]:
    """Neither a run nor maintenance may write meanwhile."""
    owner = "headwater migrate"
    with (
        holding(source.ledger, "run", owner, clock, lost.set),
        holding(source.ledger, "maintain", owner, clock, lost.set),
    ):
        yield


def _begin(source: Parts, plan: MigrationPlan, clock: Clock) -> int:
    """The journal's line: the one that a killed migration left open, or a new one."""
    left = source.ledger.unfinished("migrate")
    return left[0].id if left else source.ledger.start_run("migrate", clock(), plan.to_dict())


@dataclass(slots=True)
class _Migration:
    source: Parts
    target: Parts
    plan: MigrationPlan
    clock: Clock
    report: Report
    lost: threading.Event

    def apply(self, document: Document) -> dict[str, dict[str, RowHash]]:
        self._check_not_moved()
        self._check_unread()
        if self.plan.moves(LEDGER):
            self._check_target_ledger()
        if self.plan.moves(RAW):
            self._once("raw", f"{self.plan.raw}", self._copy_raw)
        if self.plan.moves(MEMO):
            self._once("memo", f"{self.plan.memo}", self._copy_memo)
        if self.plan.moves(CATALOG):
            self._move_tables()
        if self.plan.moves(LEDGER):
            self._copy_ledger()
        refs = self._verify()
        faults.point("migrate.verified")
        self._switch(document)
        return refs

    def _once(self, name: str, state: str, work: Callable[[], None]) -> None:
        note = self._note()
        if note.get(name) == state:
            self.report(f"{name} was done before")
            return
        work()
        self.source.ledger.set_fact(_NOTE, json.dumps({**note, name: state}))
        self.report(f"{name} done")
        faults.point("migrate.noted")

    def _note(self) -> dict[str, Any]:
        """What is done, for this target; another target starts anew."""
        places = {part.setting: part.after for part in self.plan.parts}
        note: dict[str, Any] = json.loads(self.source.ledger.fact(_NOTE) or "{}")
        return note if note.get("to") == places else {"to": places}

    def _check_not_moved(self) -> None:
        """A switch that was killed is taken back and tried again; a lake that has left is left alone."""
        if moved := self.source.ledger.fact(MOVED_TO):
            if set(self._note()) == {"to"}:
                raise Conflict(f"This lake has moved to {moved}.")
            self.source.ledger.set_fact(MOVED_TO, "")

    def _check_unread(self) -> None:
        if self.plan.moves(LOG) and not self._log_is_begun() and (unread := count_unread(self.source)):
            self.source.ledger.set_fact(MOVED_TO, "")
            raise Conflict(
                f"{unread} events in the log have not been read, and the new log starts empty. "
                "Stop whoever puts, then: headwater run --once, and migrate again."
            )

    def _check_target_ledger(self) -> None:
        """An empty ledger, one that this migration began to fill, or one whose lake has left."""
        there = self.target.ledger
        if there.fact(_FORMAT) is not None and not there.fact(MOVED_TO) and there.fact(_CAME_AS) != self._identity():
            raise Conflict(
                f"{shown(self.target.settings.text(LEDGER))} is the ledger of another lake. Name an empty database."
            )

    def _identity(self) -> str:
        """Which lake: its first table's id, which it keeps wherever it goes."""
        return str(self.source.catalog.load_table(EVENTS.name).metadata.table_uuid)

    def _copy_raw(self) -> None:
        known = _known_objects(self.source)
        stores = self.source.raw_store, self.target.raw_store
        for key in copy_objects(*stores, known, lambda: faults.point("migrate.object")):
            # It was so before: see its rows in quarantine.
            self.report(f"{key} is copied as it is, but does not match its checksum in bronze.events")

    def _copy_memo(self) -> None:
        copy_memo(open_memo(self.source.settings), open_memo(self.target.settings))

    def _move_tables(self) -> None:
        begins = self.target.log.begin() if self.plan.moves(LOG) else None
        for each in TABLES:
            _patiently(lambda name=each.name: self._arrive(name, begins))  # type: ignore[misc]

    def _arrive(self, name: str, begins: Mapping[int, int] | None) -> None:
        table = self.source.catalog.load_table(name)
        self._check_target_table(name, table)
        self._once(name, table.metadata_location, lambda: self._move_table(table))
        if begins is not None:
            self._begin_log_at(name, begins)

    def _check_target_table(self, name: str, table: "Table") -> None:
        catalog = self.target.catalog
        if catalog.table_exists(name) and catalog.load_table(name).metadata.table_uuid != table.metadata.table_uuid:
            raise Conflict(f"The target's catalog has a table {name} of another lake. Name an empty database.")

    def _move_table(self, table: "Table") -> None:
        name, catalog = ".".join(table.name()), self.target.catalog
        metadata = table.metadata_location
        if self.plan.moves(WAREHOUSE):
            settings = self.target.settings
            store, place = open_warehouse(settings), catalogs.warehouse_uri(settings)
            copied = survey(table), store, place, name.replace(".", "/")
            metadata = relocate(table, *copied, lambda _: faults.point("migrate.file"))
        with catalogs.translated(name):
            catalog.create_namespace_if_not_exists(name.partition(".")[0])
            if catalog.table_exists(name):
                catalog.drop_table(name)  # what an earlier attempt registered; files stay
            catalog.register_table(name, metadata)
        faults.point("migrate.registered")

    def _begin_log_at(self, name: str, begins: Mapping[int, int]) -> None:
        """The new log counts from its own beginning."""
        properties = self.target.catalog.load_table(name).properties
        consumed = Progress.from_properties(properties).consumed
        if "log" in consumed:
            offsets = {str(partition): offset for partition, offset in begins.items()}
            changes = {CONSUMED: json.dumps({**consumed, "log": offsets}, sort_keys=True)}
            catalogs.set_properties_if(self.target.catalog, name, {CONSUMED: properties[CONSUMED]}, changes)

    def _copy_ledger(self) -> None:
        renumber = self.plan.moves(LOG)
        rows = ((name, _sealed(row) if renumber and name == CLAIMS else row) for name, row in self._travelling())
        write_ledger(self.target.ledger, rows)
        self.report("ledger done")
        faults.point("migrate.ledger")

    def _travelling(self) -> Iterator[tuple[str, Row]]:
        yield FACTS, (_CAME_AS, self._identity())
        stays = _STAYS | ({_LOG_IDENTITY} if self.plan.moves(LOG) else set())
        for name, row in read_ledger(self.source.ledger):
            if name != FACTS or row[0] not in stays:
                yield name, row

    def _verify(self) -> dict[str, dict[str, RowHash]]:
        if self.plan.moves(RAW) and (there := measure_raw(self.target.raw_store)) != measure_raw(self.source.raw_store):
            raise Conflict(f"The target's raw store has {there.objects} objects, {there.bytes} bytes: not the lake's.")
        if not self.plan.moves(CATALOG):
            return {}
        return {each.name: _patiently(lambda name=each.name: self._verify_table(name)) for each in TABLES}  # type: ignore[misc]

    def _verify_table(self, name: str) -> dict[str, RowHash]:
        before, after = self.source.catalog.load_table(name), self.target.catalog.load_table(name)
        if before.metadata.refs != after.metadata.refs or _history(before) != _history(after):
            raise DataFault("CORRUPT", f"{name} did not arrive with its branches, tags and snapshots.")
        expected, found = hash_refs(before), hash_refs(after)
        if expected != found:
            raise DataFault("CORRUPT", f"{name} did not arrive with its rows: expected={expected} found={found}.")
        self.report(f"{name} verified")
        return found

    def _switch(self, document: Document) -> None:
        if self.lost.is_set():
            raise Conflict("Another process took the lake over meanwhile. Nothing was switched; migrate again.")
        lake = self.source.settings.lake
        if self.plan.moves(LEDGER):
            set_format(self.target.ledger)
            where = f"{shown(self.target.settings.text(LEDGER))} at {to_text(self.clock())}"
            self.source.ledger.set_fact(MOVED_TO, f"{where}; its settings are in {lake}")
        faults.point("migrate.moved")
        # Openers are refused from here on; what slipped in before is seen now.
        self._check_unread()
        if self.plan.moves(LOG):
            self._leave_log()
        switch(lake, document)
        faults.point("migrate.switched")
        self.source.ledger.set_fact(_NOTE, "{}")

    def _leave_log(self) -> None:
        """What speaks of the old log's positions and stays where it is."""
        if not self.plan.moves(LEDGER):
            for partition in self.source.log.end():
                self.source.ledger.seal_claims(partition)
            self.source.ledger.set_fact(_LOG_IDENTITY, self.target.log.identity())
        if not self.plan.moves(CATALOG):
            for each in TABLES:
                self._begin_log_at(each.name, self.target.log.begin())
            self.source.ledger.set_fact(_NOTE, json.dumps({**self._note(), "log": self._log_ends()}))
        self._forget_checkpoints()

    def _log_is_begun(self) -> bool:
        """A killed migration had set the tables' positions to the new log's, and nothing has happened since."""
        offsets = Progress.from_properties(self.source.catalog.load_table(EVENTS.name).properties).offsets
        return self._note().get("log") == self._log_ends() and offsets == self.target.log.begin()

    def _log_ends(self) -> str:
        return json.dumps(self.source.log.end())

    def _forget_checkpoints(self) -> None:
        """They speak of the old log; without them the new one is read from its beginning."""
        checkpoints = self.source.settings.text(CHECKPOINTS)
        if not self.plan.moves(CHECKPOINTS) and "://" not in checkpoints:
            shutil.rmtree(checkpoints, ignore_errors=True)


def _patiently(step: Callable[[], T]) -> T:
    """Every step may be taken again, so a store that failed once is asked again.

    One S3 server (versitygw 1.8) answers some of Arrow's requests with 400, as if it had misread the one before.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return step()
        except (OSError, Unavailable):
            time.sleep(RETRY_SECONDS)
    return step()


def _known_objects(source: Parts) -> dict[str, tuple[str, str]]:
    """Checksum and content type by path, for what bronze has heard of."""
    pointers = scan(source.catalog, EVENTS.name, ["pointer"])["pointer"].to_pylist()
    return {pointer["path"]: (pointer["checksum"], pointer["content_type"]) for pointer in pointers}


def _sealed(claim: Row) -> Row:
    """The new log gives the same positions again, so a claim moves to a partition that no log has; see the ledger."""
    kind, key, content, partition, offset = claim
    return kind, key, content, partition if partition < 0 else -1 - partition, offset


def _history(table: "Table") -> list[tuple[int, int | None, int | None]]:
    return [(each.snapshot_id, each.parent_snapshot_id, each.sequence_number) for each in table.metadata.snapshots]
