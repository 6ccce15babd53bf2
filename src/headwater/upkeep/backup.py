"""Backup and restore of what is small and cannot be rebuilt: the catalog's pointers and the ledger.

Reads   catalog, ledger; to restore also bronze.events
Writes  one file; to restore the catalog, the ledger
Safe beside a run: the pointers are read first and at one instant, the ledger afterwards. What it claimed in between is
what a run claims that is killed before its commit, and the next run forgets it.
A restore brings back what is lost and leaves what is there; setting back what is there takes force. Keys that the
ledger should have, because bronze has their rows, are added: an older ledger lets nothing in twice.
Killed, it is run again: what is ahead is forgotten before the tables are set back, all pointers are set at once, and a
ledger gets its format last, so that nobody opens the lake before.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from headwater.clock import Clock, to_text
from headwater.domain.tables import EMBEDDINGS, EVENTS
from headwater.errors import Conflict, NotFound
from headwater.settings import Settings
from headwater.storage.holding import holding
from headwater.storage.ledger import Ledger
from headwater.storage.ledger_copy import CLAIMS, FACTS, count_claims, read_ledger, write_ledger
from headwater.storage.pointers import is_there, progress_at, read_pointers, set_pointers
from headwater.storage.reading import scan
from headwater.storage.vector_index import VectorIndex
from headwater.upkeep.backup_file import POINTER, Line, check_backup, read_backup, write_backup
from headwater.upkeep.format import MOVED_TO

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_CHECKPOINTS: Final = "checkpoints.uri"
_FORMAT: Final = "format"  # a ledger without this fact is a lake that nobody opens


class Parts(Protocol):
    """The live parts of a lake that are backed up or restored, as `components` builds them."""

    @property
    def settings(self) -> Settings: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def catalog(self) -> "Catalog": ...
    @property
    def index(self) -> VectorIndex: ...


@dataclass(frozen=True, slots=True)
class TablePointer:
    """`found` is where the catalog points now; None where it knows no such table."""

    table: str
    metadata: str
    found: str | None


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """`catalog_lost`: a table is missing in it. `ledger_lost`: it knows no lake, or a restore was killed."""

    made_at: str
    tables: tuple[TablePointer, ...]
    claims: int
    claims_found: int
    catalog_lost: bool
    ledger_lost: bool

    @property
    def same(self) -> bool:
        """Whether the lake has what the backup has, at the same point."""
        return all(each.metadata == each.found for each in self.tables) and self.claims <= self.claims_found

    @property
    def lost(self) -> bool:
        return self.catalog_lost or self.ledger_lost

    def pointers(self, *, force: bool) -> dict[str, str]:
        """Those to set: of tables that are missing, or with `force` of all."""
        return {each.table: each.metadata for each in self.tables if force or each.found is None}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Restored:
    tables: int
    claims: int
    claims_from_bronze: int
    index_emptied: bool


def back_up(parts: Parts, file: Path, clock: Clock) -> dict[str, Any]:
    """Write the file; returns what is in it."""
    pointers = read_pointers(parts.catalog)
    head = {"made_at": to_text(clock()), "lake": str(parts.settings.lake)}

    def lines() -> Iterator[Line]:
        yield from ((POINTER, pointer) for pointer in sorted(pointers.items()))
        yield from read_ledger(parts.ledger)

    count = write_backup(file, head, lines())
    return {"file": str(file), "made_at": head["made_at"], "tables": pointers, "ledger_rows": count - len(pointers)}


def plan_restore(parts: Parts, file: Path) -> RestorePlan:
    """Pure: compares, and writes nothing but the empty databases of a lake that has none.

    Raises NotFound where a metadata file that the backup names is gone: what it described was expired since.
    """
    head = check_backup(file)
    found, claims, pointers = read_pointers(parts.catalog), 0, []
    for name, row in read_backup(file):
        claims += name == CLAIMS
        if name == POINTER:
            pointers.append(TablePointer(row[0], row[1], found.get(row[0])))
    _check_metadata(parts, pointers)
    return RestorePlan(
        made_at=head["made_at"],
        tables=tuple(pointers),
        claims=claims,
        claims_found=count_claims(parts.ledger),
        catalog_lost=any(each.found is None for each in pointers),
        ledger_lost=parts.ledger.fact(_FORMAT) is None,
    )


def _check_metadata(parts: Parts, pointers: list[TablePointer]) -> None:
    gone = [each for each in pointers if each.found != each.metadata and not is_there(parts.catalog, each.metadata)]
    if gone:
        raise NotFound(
            f"{gone[0].table} was at {gone[0].metadata}, which is gone: its snapshots were expired since this backup. "
            "Use a newer one."
        )


def restore(parts: Parts, file: Path, *, force: bool, clock: Clock, report: Callable[[str], None]) -> Restored:
    """Bring back what is lost, or with `force` everything; Conflict where rows would be lost that are there.

    Killed at any moment, it is finished by being run again. Twice is once.
    """
    if moved := parts.ledger.fact(MOVED_TO):
        raise Conflict(f"This lake has moved to {moved}. Restore it there.")
    with holding(parts.ledger, "run", "headwater restore", clock, _nothing):
        plan = plan_restore(parts, file)
        if not force:
            _refuse_to_lose(parts, plan)
        pointers, replace_ledger = plan.pointers(force=force), plan.ledger_lost or force
        report("Restoring. If this is stopped half-way, run it again before anything else.")
        emptied = _forget_what_is_ahead(parts, plan, pointers)
        if replace_ledger:
            write_ledger(
                parts.ledger, (line for line in read_backup(file) if line[0] != POINTER and not _is_format(line))
            )
            report("ledger restored")
        if pointers:
            set_pointers(parts.catalog, pointers)
            report(f"{', '.join(pointers)} restored")
        added = _claim_what_bronze_has(parts)
        if replace_ledger:
            parts.ledger.set_fact(_FORMAT, next(line[1][1] for line in read_backup(file) if _is_format(line)))
    return Restored(len(pointers), count_claims(parts.ledger), added, emptied)


def _refuse_to_lose(parts: Parts, plan: RestorePlan) -> None:
    if not (plan.lost or plan.same):
        raise Conflict(
            f"The lake is there and has moved on since this backup of {plan.made_at}. "
            "--force sets it back; what came later is then lost, or read again from the log."
        )
    there = {each.table: progress_at(parts.catalog, each.found) for each in plan.tables if each.found is not None}
    for table, metadata in plan.pointers(force=False).items():
        restored = progress_at(parts.catalog, metadata).next_seq if there else 0
        for reader, progress in there.items():
            if progress.seq_of(table) > restored:
                raise Conflict(
                    f"{table} is missing, and {reader} has read more of it than this backup of {plan.made_at} has: "
                    "rows to come would be skipped. Use a newer backup, or set all tables back with --force; "
                    "what came later is then lost, or read again from the log."
                )


def _is_format(line: Line) -> bool:
    return line[0] == FACTS and line[1][0] == _FORMAT


def _claim_what_bronze_has(parts: Parts) -> int:
    """Sealed, as the ledger calls it: a row that is committed is never read from the log again."""
    before = count_claims(parts.ledger)
    columns = ["event_id", "content_hash", "object_id", "pointer", "first_of_object", "log_partition", "log_offset"]
    for batch in scan(parts.catalog, EVENTS.name, columns).to_batches(max_chunksize=10_000):
        rows = batch.to_pylist()
        at = [(-1 - row["log_partition"], row["log_offset"]) for row in rows]
        events = [(row["event_id"], row["content_hash"], *where) for row, where in zip(rows, at, strict=True)]
        objects = [
            (row["object_id"], row["pointer"]["checksum"], *where)
            for row, where in zip(rows, at, strict=True)
            if row["first_of_object"]
        ]
        parts.ledger.claim_first("event", events)
        parts.ledger.claim_first("object", objects)
    return count_claims(parts.ledger) - before


def _forget_what_is_ahead(parts: Parts, plan: RestorePlan, pointers: dict[str, str]) -> bool:
    """Views and hints that have seen more than the tables will have; both are made again by the next run."""
    checkpoints = parts.settings.text(_CHECKPOINTS)
    if "://" not in checkpoints:
        shutil.rmtree(checkpoints, ignore_errors=True)
    stands = {each.table: each.found or each.metadata for each in plan.tables} | pointers
    if parts.index.position() <= progress_at(parts.catalog, stands[EMBEDDINGS.name]).next_seq:
        return False
    parts.index.delete(None)
    return True


def _nothing() -> None:
    """A restore is short; what took the lease over is told at its end."""
