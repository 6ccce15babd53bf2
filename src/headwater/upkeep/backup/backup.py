"""Backup of what is small and cannot be rebuilt: the tables' metadata documents and the ledger.

Reads   catalog, metadata files, ledger
Writes  one file; a tag on each table, so that its snapshot is kept for `backup.keep_days`
Safe beside a run: which documents are current is read first and at one instant, the ledger afterwards. What it claimed
in between is what a run claims that is killed before its commit, and the next run forgets it.
"""

import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from headwater.clock import Clock, to_text
from headwater.errors import Conflict, Unavailable
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.copy import RUNS, read_ledger
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.current_metadata import read_pointers
from headwater.storage.tables.state import TableState, pin, read_state
from headwater.upkeep.backup.file import TABLE, Line, check_new, write_backup
from headwater.upkeep.exclusion import alone
from headwater.upkeep.journal import DONE, recorded

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_KIND: Final = "backup"
_ATTEMPTS: Final = 5  # of reading a state that is still there when it has been read


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


def back_up(parts: Parts, file: Path, clock: Clock) -> dict[str, Any]:
    """Write the file; returns what is in it, and until when it can surely be restored."""
    check_new(file)
    keep = timedelta(days=parts.settings.number("backup.keep_days"))
    with (
        alone(parts.ledger, _KIND, clock) as held,
        recorded(parts.settings, held.ledger, _KIND, clock) as entry,
    ):
        made_at = clock()
        tag = f"backup-{made_at:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
        states = _pinned(parts, tag, int(keep.total_seconds() * 1000))
        head = {
            "made_at": to_text(made_at),
            "lake": str(parts.settings.lake),
            "tag": tag,
            "serves_until": to_text(made_at + keep),
        }
        written = write_backup(file, head, _lines(states, parts.ledger, head["made_at"]))
        entry.done |= {"tables": len(states), "ledger_rows": written - len(states)}
    shown = {name: head[name] for name in ("made_at", "tag", "serves_until")}
    return {
        "file": str(file),
        **shown,
        "tables": {state.table: state.location or None for state in states},
        "ledger_rows": written - len(states),
    }


def _lines(states: list[TableState], ledger: Ledger, made_at: str) -> Iterator[Line]:
    yield from ((TABLE, (state.table, state.location, state.document)) for state in states)
    for name, row in read_ledger(ledger):
        if name == RUNS and row[0] == _KIND and row[3] is None:
            yield name, (_KIND, row[1], made_at, DONE, row[4])  # whoever reads of it there, there it is done
        else:
            yield name, row


def _pinned(parts: Parts, tag: str, keep_ms: int) -> list[TableState]:
    """What all tables were at one instant, each kept from now on."""
    committer, moved = Committer(parts.settings), "they are committed to so often"
    for _ in range(_ATTEMPTS):
        try:
            found = _read(committer, read_pointers(parts.catalog))
            return [pin(committer, table, base, tag, keep_ms) for table, base in found.items()]
        except (Conflict, FileNotFoundError) as error:
            moved = str(error)
    raise Unavailable(f"The tables could not be held as they were at one instant: {moved} Back up again.")


def _read(committer: Committer, pointers: Mapping[str, str]) -> dict[str, Base]:
    found = {}
    for table, location in sorted(pointers.items()):
        document = read_state(committer.files, location)
        if document is None:
            raise FileNotFoundError(f"{location} is gone.")
        found[table] = Base(location, document)
    return found
