"""Restore: catalog and ledger come back from a backup.

Reads   the backup's file, catalog, warehouse, ledger; bronze.events
Writes  metadata files where those that the backup names are gone; catalog, ledger
A restore brings back what is lost and leaves what is there; setting back what is there takes force. Keys that the
ledger should have, because bronze has their rows, are added: an older ledger lets nothing in twice.
Where the files are gone that a table consisted of at the backup, what is lost comes back as the newest metadata in the
warehouse has it: later than the backup, and told so.
Killed, it is run again: what is ahead is forgotten before the tables are set back, all tables are set at once, and a
ledger gets its format last, so that nobody opens the lake before.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from headwater.clock import parse_time, to_text
from headwater.domain.shown import ShownAsTable
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import Conflict
from headwater.storage.ledger.copy import CLAIMS, FACTS, PLAIN_CLAIMS, count_claims, write_ledger
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables.current_metadata import set_all_locations
from headwater.storage.tables.state import write_state
from headwater.storage.tables.warehouse_files import WarehouseFiles
from headwater.upkeep.backup.file import TABLE, Line, check_backup, read_backup
from headwater.upkeep.backup.restored_tables import TableRestore, plan_tables
from headwater.upkeep.claims import claim_what_bronze_has
from headwater.upkeep.format import FACT, FORMAT, MOVED_TO, read_format
from headwater.upkeep.journal import record
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Result, Step, Task, apply

_CHECKPOINTS: Final = "checkpoints.uri"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAhead(Step):
    """Views and hints that have seen more than the tables will have; both are made again by the next run."""

    action: ClassVar[str] = "forget-ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceLedger(Step):
    action: ClassVar[str] = "replace-ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTables(Step):
    """All at one instant; `tables` are their names."""

    action: ClassVar[str] = "set-tables"
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBronze(Step):
    """Keys that bronze has rows of, and the ledger does not know."""

    action: ClassVar[str] = "claim-bronze"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLake(Step):
    """The line in the journal; and where the ledger was replaced its format, without which nobody opens the lake."""

    action: ClassVar[str] = "open-lake"
    format: str
    started_at: str


@dataclass(frozen=True, slots=True)
class RestorePlan(ShownAsTable):
    """`catalog_lost`: a table is missing in it, or was made anew and is empty. `ledger_lost`: it knows no lake, or a
    restore was killed, or it was made anew and has no keys."""

    made_at: str
    tables: tuple[TableRestore, ...]
    claims: int
    claims_found: int
    catalog_lost: bool
    ledger_lost: bool
    force: bool
    format: str
    planned_at: str

    @property
    def steps(self) -> tuple[Step, ...]:
        setting, replaces = self.to_set(force=self.force), self.ledger_lost or self.force
        return (
            ForgetAhead(about="index and checkpoints"),
            *([ReplaceLedger(about="ledger", cost={"claims": self.claims})] if replaces else []),
            *([SetTables(about="catalog", tables=tuple(each.table for each in setting))] if setting else []),
            ClaimBronze(about="claims"),
            OpenLake(about="lake", format=self.format if replaces else "", started_at=self.planned_at),
        )

    @property
    def same(self) -> bool:
        """Whether the lake has what the backup has, at the same point."""
        return all(each.is_there for each in self.tables) and self.claims <= self.claims_found

    @property
    def lost(self) -> bool:
        return self.catalog_lost or self.ledger_lost

    def to_set(self, *, force: bool) -> tuple[TableRestore, ...]:
        """The tables that are lost, or with `force` all that are not as they were."""
        return tuple(each for each in self.tables if not each.is_there and (force or each.is_lost))

    @property
    def notes(self) -> list[str]:
        """What is not as the backup has it, a sentence each."""
        return [each.note for each in self.tables if each.note]

    def to_dict(self) -> dict[str, Any]:
        names = ("made_at", "claims", "claims_found", "catalog_lost", "ledger_lost", "notes")
        shown = {name: getattr(self, name) for name in names}
        steps = [step.to_dict() for step in self.steps]
        return {"tables": [each.to_dict() for each in self.tables], **shown, "steps": steps}


@dataclass(frozen=True, slots=True)
class Restored:
    tables: int
    claims: int
    claims_from_bronze: int
    index_emptied: bool


def plan_restore(parts: Parts, file: Path, *, force: bool = False) -> RestorePlan:
    """Pure: compares, and writes nothing but the empty databases of a lake that has none.

    NotFound where the files of a table are gone and nothing newer is there to take their place.
    """
    head = check_backup(file)
    claims = sum(1 for name, _ in read_backup(file) if name in {CLAIMS, PLAIN_CLAIMS})
    tables = plan_tables(parts, file, force=force)
    found = count_claims(parts.ledger)
    return RestorePlan(
        made_at=head["made_at"],
        tables=tables,
        claims=claims,
        claims_found=found,
        catalog_lost=any(each.is_lost for each in tables),
        ledger_lost=parts.ledger.fact(FACT) is None or (claims > 0 and found == 0),
        force=force,
        format=_format_in(file),
        planned_at=to_text(parts.clock()),
    )


def restore(parts: Parts, file: Path, *, force: bool, report: Callable[[str], None]) -> Restored:
    """Bring back what is lost, or with `force` everything; Conflict where rows would be lost that are there.

    Killed at any moment, it is finished by being run again. Twice is once.
    """
    if moved := parts.ledger.fact(MOVED_TO):
        raise Conflict(f"This lake has moved to {moved}. Restore it there.")
    task = Restore(parts, file, force=force, report=report)
    apply(task, parts, report=report)
    return task.restored


class Restore(Task[RestorePlan]):
    """From one file. What a killed one had left is planned anew from what is there then: every step looks."""

    kind = "restore"
    step_types = (ForgetAhead, ReplaceLedger, SetTables, ClaimBronze, OpenLake)
    any_format = True
    ends_with_resume = True
    keeps_journal = False

    def __init__(self, parts: Parts, file: Path, *, force: bool, report: Callable[[str], None]) -> None:
        self._parts = parts
        self._file = file
        self._force = force
        self._report = report
        self._planned: RestorePlan | None = None
        self.restored = Restored(0, 0, 0, index_emptied=False)

    @property
    def about(self) -> dict[str, Any]:
        return {"file": str(self._file.absolute()), "force": self._force}

    def plan(self) -> RestorePlan:
        plan = self._plan_now()
        _check_format(self._file)
        if not self._force:
            _refuse_to_lose(plan)
        for note in (each.note for each in plan.to_set(force=self._force) if each.note):
            self._report(note)
        self._report("Restoring. If this is stopped half-way, run it again before anything else.")
        self._planned = plan
        return plan

    def _plan_now(self) -> RestorePlan:
        return plan_restore(self._parts, self._file, force=self._force)

    def do(self, step: Step, held: Held) -> Result:
        plan = self._planned = self._planned or self._plan_now()
        match step:
            case ForgetAhead():
                emptied = _forget_what_is_ahead(self._parts, plan, plan.to_set(force=self._force))
                self.restored = replace(self.restored, index_emptied=emptied)
            case ReplaceLedger():
                lines = (line for line in read_backup(self._file) if line[0] != TABLE and not _is_format(line))
                write_ledger(held.ledger, lines)
                self._report("ledger restored")
            case SetTables():
                files = WarehouseFiles(self._parts.settings)
                setting = [each for each in plan.tables if each.table in step.tables]
                written = {each.table: write_state(files, each.target) for each in setting}
                set_all_locations(self._parts.catalog, written)
                self.restored = replace(self.restored, tables=len(setting))
                self._report(f"{', '.join(step.tables)} restored")
            case ClaimBronze():
                version = int(plan.format if plan.ledger_lost or plan.force else read_format(held.ledger))
                added = claim_what_bronze_has(self._parts.catalog, held.ledger, version)
                self.restored = replace(self.restored, claims=count_claims(held.ledger), claims_from_bronze=added)
            case OpenLake():
                self._open(step, plan, held.ledger)
        return {}

    def _open(self, step: OpenLake, plan: RestorePlan, ledger: Ledger) -> None:
        detail = {"from": plan.made_at, "force": plan.force, "notes": plan.notes, "done": asdict(self.restored)}
        if not any(to_text(run.started_at) == step.started_at for run in ledger.runs(1)):
            record(ledger, self.kind, parse_time(step.started_at), self._parts.clock(), detail)
        if step.format:
            ledger.set_fact(FACT, step.format)


def _refuse_to_lose(plan: RestorePlan) -> None:
    if not (plan.lost or plan.same):
        raise Conflict(
            f"The lake is there and has moved on since this backup of {plan.made_at}. "
            "--force sets it back; what came later is then lost, or read again from the log."
        )
    there = {each.table: each.progress_found for each in plan.tables if not each.is_lost}
    for each in plan.to_set(force=False):
        restored = each.progress.next_seq
        for reader, progress in there.items():
            if progress.seq_of(each.table) > restored:
                raise Conflict(
                    f"{each.table} is missing, and {reader} has read more of it than this backup of {plan.made_at} "
                    "has: rows to come would be skipped. Use a newer backup, or set all tables back with --force; "
                    "what came later is then lost, or read again from the log."
                )


def _forget_what_is_ahead(parts: Parts, plan: RestorePlan, setting: tuple[TableRestore, ...]) -> bool:
    """Views and hints that have seen more than the tables will have; both are made again by the next run."""
    checkpoints = parts.settings.text(_CHECKPOINTS)
    if "://" not in checkpoints:
        shutil.rmtree(checkpoints, ignore_errors=True)
    stands = {each.table: each.progress_found for each in plan.tables if not each.is_lost}
    stands |= {each.table: each.progress for each in setting}
    if parts.index.position() <= stands[EMBEDDINGS.name].next_seq:
        return False
    parts.index.delete(None)
    return True


def _is_format(line: Line) -> bool:
    return line[0] == FACTS and line[1][0] == FACT


def _format_in(file: Path) -> str:
    found: Iterator[str] = (str(line[1][1]) for line in read_backup(file) if _is_format(line))
    return next(found)


def _check_format(file: Path) -> None:
    if (found := int(_format_in(file))) > FORMAT:
        raise Conflict(
            f"{file} is of a lake of format {found}; this Headwater knows up to {FORMAT}. Install a newer one."
        )
