"""Restore: catalog and ledger come back from a backup.

Reads   the backup's file, catalog, warehouse, ledger; bronze.events
Writes  metadata files where those that the backup names are gone; catalog, ledger
A restore brings back what is lost and leaves what is there; setting back what is there takes force. Keys that the
ledger should have, because bronze has their rows, are added: an older ledger lets nothing in twice.
Where the files are gone that a table consisted of at the backup, what is lost comes back as the newest metadata in the
warehouse has it: later than the backup, and told so.
Killed, it is run again: what is ahead is forgotten before the tables are set back, all pointers are set at once, and a
ledger gets its format last, so that nobody opens the lake before.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from headwater.clock import Clock
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import Conflict
from headwater.storage.ledger.copy import CLAIMS, FACTS, PLAIN_CLAIMS, count_claims, write_ledger
from headwater.storage.tables.current_metadata import set_pointers
from headwater.storage.tables.state import lay_down
from headwater.storage.tables.warehouse_files import WarehouseFiles
from headwater.upkeep.backup.backup import Parts
from headwater.upkeep.backup.file import TABLE, Line, check_backup, read_backup
from headwater.upkeep.backup.restored_tables import TableRestore, plan_tables
from headwater.upkeep.claims import claim_what_bronze_has
from headwater.upkeep.exclusion import alone
from headwater.upkeep.format import FORMAT, MOVED_TO
from headwater.upkeep.journal import record

_CHECKPOINTS: Final = "checkpoints.uri"
_FORMAT: Final = "format"  # a ledger without this fact is a lake that nobody opens
_KIND: Final = "restore"


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """`catalog_lost`: a table is missing in it, or was made anew and is empty. `ledger_lost`: it knows no lake, or a
    restore was killed, or it was made anew and has no keys."""

    made_at: str
    tables: tuple[TableRestore, ...]
    claims: int
    claims_found: int
    catalog_lost: bool
    ledger_lost: bool

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
        return {"tables": [each.to_dict() for each in self.tables], **{name: getattr(self, name) for name in names}}


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
        ledger_lost=parts.ledger.fact(_FORMAT) is None or (claims > 0 and found == 0),
    )


def restore(parts: Parts, file: Path, *, force: bool, clock: Clock, report: Callable[[str], None]) -> Restored:
    """Bring back what is lost, or with `force` everything; Conflict where rows would be lost that are there.

    Killed at any moment, it is finished by being run again. Twice is once.
    """
    if moved := parts.ledger.fact(MOVED_TO):
        raise Conflict(f"This lake has moved to {moved}. Restore it there.")
    with alone(parts.ledger, _KIND, clock) as held:
        started_at, ledger = clock(), held.ledger
        plan = plan_restore(parts, file, force=force)
        _check_format(file)
        if not force:
            _refuse_to_lose(plan)
        setting, replace_ledger = plan.to_set(force=force), plan.ledger_lost or force
        for note in (each.note for each in setting if each.note):
            report(note)
        report("Restoring. If this is stopped half-way, run it again before anything else.")
        emptied = _forget_what_is_ahead(parts, plan, setting)
        if replace_ledger:
            write_ledger(ledger, (line for line in read_backup(file) if line[0] != TABLE and not _is_format(line)))
            report("ledger restored")
        if setting:
            files = WarehouseFiles(parts.settings)
            set_pointers(parts.catalog, {each.table: lay_down(files, each.target) for each in setting})
            report(f"{', '.join(each.table for each in setting)} restored")
        added = claim_what_bronze_has(parts.catalog, ledger)
        if replace_ledger:
            ledger.set_fact(_FORMAT, _format_in(file))
        done = Restored(len(setting), count_claims(ledger), added, emptied)
        told = {"from": plan.made_at, "force": force, "notes": plan.notes, "done": asdict(done)}
        record(ledger, _KIND, started_at, clock(), told)
    return done


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
    return line[0] == FACTS and line[1][0] == _FORMAT


def _format_in(file: Path) -> str:
    found: Iterator[str] = (str(line[1][1]) for line in read_backup(file) if _is_format(line))
    return next(found)


def _check_format(file: Path) -> None:
    if (found := int(_format_in(file))) > FORMAT:
        raise Conflict(
            f"{file} is of a lake of format {found}; this Headwater knows up to {FORMAT}. Install a newer one."
        )
