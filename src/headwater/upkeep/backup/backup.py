"""Backup of what is small and cannot be rebuilt: the tables' metadata documents and the ledger.

Reads   catalog, metadata files, ledger
Writes  one file; a tag on each table, so that its snapshot is kept for `backup.keep_days`
Safe beside a run: which documents are current is read first and at one instant, the ledger afterwards. What it claimed
in between is what a run claims that is killed before its commit, and the next run forgets it.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

from headwater import faults
from headwater.clock import to_text
from headwater.domain.shown import ShownAsTable
from headwater.errors import Conflict, Unavailable
from headwater.storage.ledger.copy import RUNS, read_ledger
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.current_metadata import read_all_locations
from headwater.storage.tables.state import TableState, read_state, tag_state
from headwater.upkeep.backup.file import TABLE, Line, check_backup, check_new, read_backup, read_states, write_backup
from headwater.upkeep.journal import DONE
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Result, Step, Task, apply

_KIND: Final = "backup"
_ATTEMPTS: Final = 5  # of reading a state that is still there when it has been read


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBackup(Step):
    """`about` is the file. The tag is planned too: killed and done again, it is one tag."""

    action: ClassVar[str] = "write-backup"
    tag: str
    keep_ms: int
    made_at: str
    serves_until: str


@dataclass(frozen=True, slots=True)
class BackupPlan(ShownAsTable):
    file: str
    tables: tuple[str, ...]
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"file": self.file, "tables": list(self.tables), "steps": [step.to_dict() for step in self.steps]}


class Backup(Task[BackupPlan]):
    """To one file."""

    kind = _KIND
    step_types = (WriteBackup,)
    ends_with_resume = True

    def __init__(self, parts: Parts, file: Path) -> None:
        self._parts = parts
        self._file = file

    @property
    def about(self) -> dict[str, str]:
        return {"file": str(self._file.absolute())}

    def plan(self) -> BackupPlan:
        check_new(self._file)
        tables = tuple(sorted(read_all_locations(self._parts.catalog)))
        return BackupPlan(str(self._file), tables, (self._step(),))

    def _step(self) -> WriteBackup:
        made_at, keep = self._parts.clock(), timedelta(days=self._parts.settings.number("backup.keep_days"))
        return WriteBackup(
            about=str(self._file),
            tag=f"backup-{made_at:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}",
            keep_ms=int(keep.total_seconds() * 1000),
            made_at=to_text(made_at),
            serves_until=to_text(made_at + keep),
        )

    def do(self, step: Step, held: Held) -> Result:
        assert isinstance(step, WriteBackup)
        if self._file.exists() and check_backup(self._file).get("tag") == step.tag:
            states, rows = read_states(self._file), sum(1 for line in read_backup(self._file) if line[0] != TABLE)
        else:
            states, rows = self._write(step)
        tables = {state.table: state.location or None for state in states}
        shown = {"made_at": step.made_at, "tag": step.tag, "serves_until": step.serves_until}
        return {"file": str(self._file), **shown, "tables": tables, "ledger_rows": rows}

    def _write(self, step: WriteBackup) -> tuple[list[TableState], int]:
        states = _pinned(self._parts, step.tag, step.keep_ms)
        head = {"made_at": step.made_at, "lake": str(self._parts.settings.lake), "tag": step.tag}
        head["serves_until"] = step.serves_until
        faults.point("backup.pinned")
        written = write_backup(self._file, head, _lines(states, self._parts.ledger, step.made_at))
        return states, written - len(states)


def back_up(parts: Parts, file: Path) -> dict[str, Any]:
    """Write the file; returns what is in it, and until when it can surely be restored."""
    applied = apply(Backup(parts, file), parts)
    ((_, result),) = (*applied.resumed, *applied.results)
    return dict(result)


def _lines(states: list[TableState], ledger: Ledger, made_at: str) -> Iterator[Line]:
    yield from ((TABLE, (state.table, state.location, state.document)) for state in states)
    begun = to_text(ledger.unfinished(_KIND)[0].started_at)
    for name, row in read_ledger(ledger):
        if name == RUNS and (row[0], row[1], row[3]) == (_KIND, begun, None):
            yield name, (_KIND, row[1], made_at, DONE, row[4])  # whoever reads of it there, there it is done
        else:
            yield name, row


def _pinned(parts: Parts, tag: str, keep_ms: int) -> list[TableState]:
    """What all tables were at one instant, each kept from now on."""
    committer, moved = Committer(parts.settings), "they are committed to so often"
    for _ in range(_ATTEMPTS):
        try:
            found = _read(committer, read_all_locations(parts.catalog))
            return [tag_state(committer, table, base, tag, keep_ms) for table, base in found.items()]
        except (Conflict, FileNotFoundError) as error:
            moved = str(error)
    raise Unavailable(f"The tables could not be held as they were at one instant: {moved} Back up again.")


def _read(committer: Committer, locations: Mapping[str, str]) -> dict[str, Base]:
    found = {}
    for table, location in sorted(locations.items()):
        document = read_state(committer.files, location)
        if document is None:
            raise FileNotFoundError(f"{location} is gone.")
        found[table] = Base(location, document)
    return found
