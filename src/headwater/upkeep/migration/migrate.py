"""Migration: a lake's parts moved to the places that other settings name; planned, copied, verified, switched.

Reads   every part of the lake
Writes  the parts of the target, and at the end the lake's `headwater.toml`
Invariant: until the switch the lake is as it was; after it the target is whole. Killed in between, the same command
goes on: what is done is noted in the ledger with the state that it was done for, so a lake that changed meanwhile is
looked at again. Nothing of the source is deleted.
"""

import shutil
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater import faults
from headwater.clock import to_text
from headwater.domain.progress import CONSUMED
from headwater.domain.tables import TABLES
from headwater.errors import Conflict, HeadwaterError
from headwater.flow.log.identity import find_unread
from headwater.settings import FILE_NAME
from headwater.storage.ledger.copy import write_ledger
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.plans import finish_plan, unfinished_plans
from headwater.storage.memo.memo import open_memo
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.relocate import list_table_files, open_warehouse, relocate
from headwater.storage.tables.row_hash import RowHash
from headwater.upkeep.format import MOVED_TO, set_format
from headwater.upkeep.migration.check import (
    ask,
    check_other_places,
    check_target_ledger,
    check_target_table,
    patiently,
    verify_table,
)
from headwater.upkeep.migration.ledger_rows import KIND, travelling_rows
from headwater.upkeep.migration.new_settings import Document, switch, to_toml
from headwater.upkeep.migration.note import (
    LOG_IDENTITY,
    InPlace,
    forget,
    note_switch,
    position_at,
    positions_at,
    read_note,
    read_offsets,
    take_back,
    write_note,
)
from headwater.upkeep.migration.object_copy import copy_memo
from headwater.upkeep.migration.places import (
    CATALOG,
    CHECKPOINTS,
    INDEX,
    LEDGER,
    LOG,
    PLACES,
    RAW,
    WAREHOUSE,
    place,
    shown_place,
)
from headwater.upkeep.migration.plan import (
    STEP_TYPES,
    CheckParts,
    CompareRows,
    CopyLedger,
    CopyMemo,
    CopyRaw,
    MigrationPlan,
    MoveTable,
    SwitchLake,
    plan_migration,
)
from headwater.upkeep.migration.raw_objects import copy_late, copy_raw
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import MOVED, Result, Step, Task, apply

if TYPE_CHECKING:
    from pyiceberg.table import Table

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Migrated:
    """`refs` are the rows that were counted and hashed on both sides, by table and branch or tag."""

    plan: MigrationPlan
    refs: Mapping[str, Mapping[str, RowHash]]

    def to_dict(self) -> dict[str, Any]:
        refs = [
            {"table": table, "ref": ref, **asdict(found)}
            for table, each in self.refs.items()
            for ref, found in each.items()
        ]
        return {**self.plan.to_dict(), "refs": refs, "applied": bool(self.plan)}


def migrate(source: Parts, target: Parts, document: Document, report: Report) -> Migrated:
    """Move the lake; raises Conflict, and changes nothing of it, where events are unread or the target is taken."""
    task = Migrate(source, target, document, report)
    apply(task, source, report=report)
    report("switched")
    return Migrated(task.current, task.refs)


class Migrate(Task[MigrationPlan]):
    """To one set of places. Gone on with, every step is taken again and looks what it has done: each copy is noted with
    what it was made of, so that a part which changed meanwhile is copied once more."""

    kind = KIND
    step_types = STEP_TYPES
    any_format = True
    ends_with_resume = True

    def __init__(self, source: Parts, target: Parts, document: Document, report: Report) -> None:
        self.source = source
        self.target = target
        self.document = document
        self.report = report
        self.refs: dict[str, dict[str, RowHash]] = {}
        self._current: MigrationPlan | None = None

    @property
    def about(self) -> dict[str, Any]:
        """A place holds no password."""
        return {"to": {name: place(self.target.settings, name) for name in PLACES}}

    @property
    def current(self) -> MigrationPlan:
        """How much there is to move, as of the beginning of this try."""
        self._current = self._current or plan_migration(self.source, self.target.settings)
        return self._current

    def plan(self) -> MigrationPlan:
        """All that can be known before anything is written."""
        self._check()
        return self.current

    def stands(self, step: Step) -> bool:
        return False

    def _check(self) -> None:
        self._check_unread()
        ask(self.target)
        check_other_places(self.source, self.target, tuple(part.setting for part in self.current.parts))
        if self.current.moves(LEDGER):
            check_target_ledger(self.source, self.target)

    def do(self, step: Step, held: Held) -> Result:
        match step:
            case CheckParts():
                take_back(self.source)
                self._current = None  # its positions were another log's
                self._check()
            case CopyRaw():
                self._once("raw", f"{self.current.raw}", lambda: copy_raw(self.source, self.target, self.report))
            case CopyMemo():
                self._once("memo", f"{self.current.memo}", self._copy_memo)
            case MoveTable():
                begins = self.target.log.begin() if self.current.moves(LOG) else None
                patiently(lambda: self._arrive(step.about, begins))
            case CopyLedger():
                self._copy_ledger()
            case CompareRows():
                self._compare()
            case SwitchLake():
                self._switch(held.ledger)
        return {}

    def _once(self, name: str, state: str, copy: Callable[[], None]) -> None:
        note = self._note()
        if note.get(name) == state:
            self.report(f"{name} was done before")
            return
        copy()
        write_note(self.source.ledger, {**note, name: state})
        self.report(f"{name} done")
        faults.point("migrate.noted")

    def _note(self) -> dict[str, Any]:
        places = {part.setting: place(self.target.settings, part.setting) for part in self.current.parts}
        return read_note(self.source.ledger, places)

    def _check_unread(self) -> None:
        if not self.current.moves(LOG):
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

    def _arrive(self, name: str, begins: Mapping[int, int] | None) -> None:
        table = self.source.catalog.load_table(name)
        check_target_table(self.target, name, table)
        self._once(name, table.metadata_location, lambda: self._move_table(table))
        if begins is not None:
            self._begin_log_at(name, begins)

    def _move_table(self, table: "Table") -> None:
        name, catalog = ".".join(table.name()), self.target.catalog
        metadata = table.metadata_location
        if self.current.moves(WAREHOUSE):
            settings = self.target.settings
            store, there = open_warehouse(settings), catalogs.warehouse_uri(settings)
            copied = list_table_files(table), store, there, name.replace(".", "/")
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
        write_ledger(self.target.ledger, travelling_rows(self.source, renumber=self.current.moves(LOG)))
        self.report("ledger done")
        faults.point("migrate.ledger")

    def _compare(self) -> None:
        self._copy_late()
        if self.current.moves(CATALOG):
            self.refs = {each.name: self._verify_table(each.name) for each in TABLES}
        faults.point("migrate.verified")

    def _verify_table(self, name: str) -> dict[str, RowHash]:
        found = patiently(lambda: verify_table(self.source, self.target, name))
        self.report(f"{name} verified")
        return found

    def _copy_late(self) -> None:
        if self.current.moves(RAW):
            copy_late(self.source, self.target, self.report)

    def _switch(self, ledger: Ledger) -> None:
        """`ledger` refuses who slept and lost the lake meanwhile."""
        document = self.document
        if self.current.moves(INDEX):
            # What an earlier lake left there would be found, and its position believed.
            self.target.index.delete(None)
        lake, changes = self.source.settings.lake, self._in_place()
        note_switch(ledger, self._note(), changes)
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
        if not self.current.moves(LOG):
            return InPlace()
        old, new = self.source, self.target.log
        identity = old.ledger.fact(LOG_IDENTITY) or old.log.identity(), new.identity()
        return InPlace(
            positions={} if self.current.moves(CATALOG) else positions_at(old, new.begin()),
            identity=None if self.current.moves(LEDGER) else identity,
        )

    def _mark_moved(self) -> None:
        if self.current.moves(LEDGER):
            set_format(self.target.ledger)
            for plan in unfinished_plans(self.target.ledger):  # of the lake that was here before, and left
                finish_plan(self.target.ledger, plan.id, MOVED, self.source.clock())
            where = f"{shown_place(self.target.settings, LEDGER)} at {to_text(self.source.clock())}"
            self.source.ledger.set_fact(MOVED_TO, f"{where}; its settings are in {self.source.settings.lake}")
        faults.point("migrate.moved")

    def _leave_log(self, changes: InPlace) -> None:
        if self.current.moves(LOG):
            if not self.current.moves(LEDGER):
                for partition in self.source.log.end():
                    self.source.ledger.seal_claims(partition)
            changes.do(self.source)
            self._forget_checkpoints()
        faults.point("migrate.moved")

    def _forget_checkpoints(self) -> None:
        """They speak of the old log; without them the new one is read from its beginning."""
        checkpoints = self.source.settings.text(CHECKPOINTS)
        if not self.current.moves(CHECKPOINTS) and "://" not in checkpoints:
            shutil.rmtree(checkpoints, ignore_errors=True)
