"""Migration: a lake's parts moved to the places that other settings name; planned, copied, verified, switched.

Reads   every part of the lake
Writes  the parts of the target, and at the end the lake's `headwater.toml`
Invariant: until the switch the lake is as it was; after it the target is whole. Killed in between, the same command
goes on: what is done is noted in the ledger with the state that it was done for, so a lake that changed meanwhile is
looked at again. Nothing of the source is deleted.
"""

import shutil
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater import faults
from headwater.clock import Clock, to_text
from headwater.domain.progress import CONSUMED
from headwater.domain.tables import TABLES
from headwater.errors import Conflict, HeadwaterError
from headwater.flow.log.identity import find_unread
from headwater.settings import FILE_NAME
from headwater.storage.ledger.copy import CLAIMS, FACTS, RUNS, read_ledger, seal_claim, write_ledger
from headwater.storage.ledger.database import Row
from headwater.storage.memo.memo import open_memo
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.relocate import open_warehouse, relocate, survey
from headwater.storage.tables.row_hash import RowHash
from headwater.upkeep.exclusion import alone
from headwater.upkeep.format import MOVED_TO, set_format
from headwater.upkeep.journal import DONE
from headwater.upkeep.migration.check import (
    CAME_AS,
    FORMAT,
    ask,
    check_other_places,
    check_target_ledger,
    check_target_table,
    identity_of,
    patiently,
    verify_table,
)
from headwater.upkeep.migration.new_settings import Document, switch, to_toml
from headwater.upkeep.migration.note import (
    LOG_IDENTITY,
    NOTE,
    InPlace,
    forget,
    note_switch,
    position_at,
    positions_at,
    read_note,
    read_offsets,
    take_back,
    was_cut_short,
    write_note,
)
from headwater.upkeep.migration.object_copy import copy_memo
from headwater.upkeep.migration.places import (
    CATALOG,
    CHECKPOINTS,
    INDEX,
    LEDGER,
    LOG,
    MEMO,
    RAW,
    WAREHOUSE,
    Parts,
    place,
    shown_place,
)
from headwater.upkeep.migration.plan import MigrationPlan, plan_migration
from headwater.upkeep.migration.raw_objects import copy_late, copy_raw

if TYPE_CHECKING:
    from pyiceberg.table import Table

_KIND: Final = "migrate"
# What a ledger says about its own place; it does not travel.
_STAYS: Final = {NOTE, CAME_AS, FORMAT, MOVED_TO}
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Migrated:
    """`refs` are the rows that were counted and hashed on both sides, by table and branch or tag."""

    plan: MigrationPlan
    refs: Mapping[str, Mapping[str, RowHash]]


def migrate(source: Parts, target: Parts, document: Document, clock: Clock, report: Report) -> Migrated:
    """Move the lake; raises Conflict, and changes nothing of it, where events are unread or the target is taken."""
    faults.arm()
    lost = threading.Event()
    with alone(source.ledger, _KIND, clock, lost.set):
        take_back(source)
        plan = plan_migration(source, target.settings)
        moving = _Migration(source, target, plan, clock, report, lost)
        moving.check()
        run = _begin(source, plan, clock)
        refs = moving.apply(document)
        source.ledger.finish_run(run, DONE, clock())
    report("switched")
    return Migrated(plan, refs)


def stay(source: Parts, clock: Clock) -> None:
    """Nothing is to move: what a migration that was cut short has changed is taken back."""
    if was_cut_short(source.ledger):
        with alone(source.ledger, _KIND, clock):
            take_back(source)


def _begin(source: Parts, plan: MigrationPlan, clock: Clock) -> int:
    """The journal's line: the one that a killed migration left open, or a new one."""
    left = source.ledger.unfinished(_KIND)
    return left[0].id if left else source.ledger.start_run(_KIND, clock(), plan.to_dict())


@dataclass(slots=True)
class _Migration:
    source: Parts
    target: Parts
    plan: MigrationPlan
    clock: Clock
    report: Report
    lost: threading.Event

    def check(self) -> None:
        """All that can be known before anything is written."""
        self._check_unread()
        ask(self.target)
        check_other_places(self.source, self.target, tuple(part.setting for part in self.plan.parts))
        if self.plan.moves(LEDGER):
            check_target_ledger(self.source, self.target)

    def apply(self, document: Document) -> dict[str, dict[str, RowHash]]:
        if self.plan.moves(RAW):
            self._once("raw", f"{self.plan.raw}", lambda: copy_raw(self.source, self.target, self.report))
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
        write_note(self.source.ledger, {**note, name: state})
        self.report(f"{name} done")
        faults.point("migrate.noted")

    def _note(self) -> dict[str, Any]:
        places = {part.setting: place(self.target.settings, part.setting) for part in self.plan.parts}
        return read_note(self.source.ledger, places)

    def _check_unread(self) -> None:
        if not self.plan.moves(LOG):
            return
        unread = find_unread(self.source.log, self.source.ledger, read_offsets(self.source))
        if unread.events or unread.anew:
            causes = f" ({', '.join(set(unread.anew.values()))})" if unread.anew else ""
            raise Conflict(
                f"{unread.events} events in the log have not been read{causes}, and the new log starts empty. "
                "Stop whoever puts, then: headwater run --once, and migrate again."
            )

    def _copy_memo(self) -> None:
        copy_memo(open_memo(self.source.settings), open_memo(self.target.settings))

    def _move_tables(self) -> None:
        begins = self.target.log.begin() if self.plan.moves(LOG) else None
        for each in TABLES:
            patiently(lambda name=each.name: self._arrive(name, begins))  # type: ignore[misc]

    def _arrive(self, name: str, begins: Mapping[int, int] | None) -> None:
        table = self.source.catalog.load_table(name)
        check_target_table(self.target, name, table)
        self._once(name, table.metadata_location, lambda: self._move_table(table))
        if begins is not None:
            self._begin_log_at(name, begins)

    def _move_table(self, table: "Table") -> None:
        name, catalog = ".".join(table.name()), self.target.catalog
        metadata = table.metadata_location
        if self.plan.moves(WAREHOUSE):
            settings = self.target.settings
            store, there = open_warehouse(settings), catalogs.warehouse_uri(settings)
            copied = survey(table), store, there, name.replace(".", "/")
            metadata = relocate(table, *copied, lambda _: faults.point("migrate.file"))
        with catalogs.translated(name):
            catalog.create_namespace_if_not_exists(name.partition(".")[0])
            if catalog.table_exists(name):
                catalog.drop_table(name)  # what an earlier attempt registered; files stay
            catalog.register_table(name, metadata)
        faults.point("migrate.registered")

    def _begin_log_at(self, name: str, begins: Mapping[int, int]) -> None:
        """The new log counts from its own beginning."""
        if change := position_at(self.target.catalog.load_table(name), begins):
            catalogs.set_properties_if(self.target.catalog, name, {CONSUMED: change[0]}, {CONSUMED: change[1]})

    def _copy_ledger(self) -> None:
        write_ledger(self.target.ledger, self._travelling())
        self.report("ledger done")
        faults.point("migrate.ledger")

    def _travelling(self) -> Iterator[tuple[str, Row]]:
        yield FACTS, (CAME_AS, identity_of(self.source))
        renumber = self.plan.moves(LOG)
        stays = _STAYS | ({LOG_IDENTITY} if renumber else set())
        for name, row in read_ledger(self.source.ledger):
            if name == CLAIMS and renumber:
                yield name, seal_claim(row)
            elif name == RUNS:
                yield name, _finished(row, to_text(self.clock()))
            elif name != FACTS or row[0] not in stays:
                yield name, row

    def _verify(self) -> dict[str, dict[str, RowHash]]:
        self._copy_late()
        if not self.plan.moves(CATALOG):
            return {}
        return {each.name: self._verify_table(each.name) for each in TABLES}

    def _verify_table(self, name: str) -> dict[str, RowHash]:
        found = patiently(lambda: verify_table(self.source, self.target, name))
        self.report(f"{name} verified")
        return found

    def _copy_late(self) -> None:
        if self.plan.moves(RAW):
            copy_late(self.source, self.target, self.report)

    def _switch(self, document: Document) -> None:
        if self.lost.is_set():
            raise Conflict("Another process took the lake over meanwhile. Nothing was switched; migrate again.")
        if self.plan.moves(INDEX):
            # What an earlier lake left there would be found, and its position believed.
            self.target.index.delete(None)
        lake, changes = self.source.settings.lake, self._in_place()
        note_switch(self.source.ledger, self._note(), changes)
        try:
            self._mark_moved()
            # Openers are refused from here on; what slipped in before is seen now.
            self._check_unread()
            self._copy_late()
            self._leave_log(changes)
            switch(lake, document)
        except BaseException:
            if tomllib.loads((lake / FILE_NAME).read_text(encoding="utf-8")) != tomllib.loads(to_toml(document)):
                # The ledger may be what failed; the next migration takes back what this one cannot.
                with suppress(HeadwaterError):
                    take_back(self.source)
            raise
        faults.point("migrate.switched")
        forget(self.source.ledger)

    def _in_place(self) -> InPlace:
        """What speaks of the old log's positions and stays where it is."""
        if not self.plan.moves(LOG):
            return InPlace()
        old, new = self.source, self.target.log
        identity = old.ledger.fact(LOG_IDENTITY) or old.log.identity(), new.identity()
        return InPlace(
            positions={} if self.plan.moves(CATALOG) else positions_at(old, new.begin()),
            identity=None if self.plan.moves(LEDGER) else identity,
        )

    def _mark_moved(self) -> None:
        if self.plan.moves(LEDGER):
            set_format(self.target.ledger)
            where = f"{shown_place(self.target.settings, LEDGER)} at {to_text(self.clock())}"
            self.source.ledger.set_fact(MOVED_TO, f"{where}; its settings are in {self.source.settings.lake}")
        faults.point("migrate.moved")

    def _leave_log(self, changes: InPlace) -> None:
        if self.plan.moves(LOG):
            if not self.plan.moves(LEDGER):
                for partition in self.source.log.end():
                    self.source.ledger.seal_claims(partition)
            changes.do(self.source)
            self._forget_checkpoints()
        faults.point("migrate.moved")

    def _forget_checkpoints(self) -> None:
        """They speak of the old log; without them the new one is read from its beginning."""
        checkpoints = self.source.settings.text(CHECKPOINTS)
        if not self.plan.moves(CHECKPOINTS) and "://" not in checkpoints:
            shutil.rmtree(checkpoints, ignore_errors=True)


def _finished(run: Row, now: str) -> Row:
    """Whoever reads of this migration where it led to, there it is done."""
    kind, started_at, _, outcome, detail = run
    return (kind, started_at, now, DONE, detail) if kind == _KIND and outcome is None else run
