"""What a restore would make of each table: a value, from a backup, the catalog and the warehouse. Writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.clock import to_text
from headwater.domain.progress import Progress
from headwater.errors import NotFound
from headwater.storage.tables.current_metadata import read_all_locations
from headwater.storage.tables.metadata import Metadata, progress_in
from headwater.storage.tables.state import TableState, is_new_table, is_readable, newest_state, read_state, same_state
from headwater.storage.tables.unreachable_files import warehouse_io
from headwater.storage.tables.warehouse_files import WarehouseFiles
from headwater.upkeep.backup.file import read_states
from headwater.upkeep.parts import Parts

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


@dataclass(frozen=True, slots=True)
class TableRestore:
    """`target` is what the table would be. `found` is where the catalog points now; None where it knows no such table,
    and `found_document` what stands there."""

    table: str
    target: TableState
    found: str | None
    found_document: Metadata | None
    note: str = ""

    @property
    def is_there(self) -> bool:
        both = self.found_document is not None and self.target.document is not None
        return both and same_state(self.found_document or {}, self.target.document or {})

    @property
    def is_lost(self) -> bool:
        """Missing, or its metadata is; or another of its name that was made since and is empty, as `init` makes it."""
        if self.found_document is None or self.target.document is None:
            return self.found_document is None
        other = self.found_document["table-uuid"] != self.target.document["table-uuid"]
        return other and is_new_table(self.found_document)

    @property
    def progress(self) -> Progress:
        return progress_in(self.target.document or {})

    @property
    def progress_found(self) -> Progress:
        return progress_in(self.found_document or {})

    def to_dict(self) -> dict[str, Any]:
        return {"table": self.table, "metadata": self.target.location or None, "found": self.found, "how": self._how}

    @property
    def _how(self) -> str:
        if self.is_there:
            return "there"
        return "newer" if self.note else "backup"


def plan_tables(parts: Parts, file: Path, *, force: bool) -> tuple[TableRestore, ...]:
    """For each table of the backup. NotFound where the files of one are gone that nothing can take the place of."""
    files, io = WarehouseFiles(parts.settings), warehouse_io(parts.settings)
    found = read_all_locations(parts.catalog)
    tables = tuple(_compared(files, state, found) for state in read_states(file))
    wanted = [each for each in tables if not each.is_there and (force or each.is_lost)]
    gone = [each for each in wanted if not _can_be(files, io, each.target)]
    if not gone:
        return tables
    if not all(each.is_lost for each in wanted):
        raise NotFound(
            f"{gone[0].table} cannot be set back: the files that it consisted of at this backup are gone, because the "
            "backup is older than backup.keep_days. Use a newer one; without --force what is lost is brought back."
        )
    # Of what is lost all comes from the same time, or one table would have read more of another than there is.
    newer = {each.table: _newest(files, io, each) for each in wanted}
    return tuple(newer.get(each.table, each) for each in tables)


def _compared(files: WarehouseFiles, state: TableState, found: Mapping[str, str]) -> TableRestore:
    there = found.get(state.table)
    document = state.document if state.document is not None else read_state(files, state.location)
    return TableRestore(
        state.table, replace(state, document=document), there, read_state(files, there) if there is not None else None
    )


def _can_be(files: WarehouseFiles, io: "FileIO", state: TableState) -> bool:
    return state.document is not None and is_readable(files, io, state.document)


def _newest(files: WarehouseFiles, io: "FileIO", each: TableRestore) -> TableRestore:
    known = each.target.document
    folder = known["location"] if known else each.target.location.rpartition("/metadata/")[0]
    state = newest_state(files, each.table, folder)
    if state is None or not _can_be(files, io, state):
        raise NotFound(
            f"The files that {each.table} consisted of at this backup are gone, and {folder} has no metadata that can "
            "be read in their place. Use a newer backup, or restore the warehouse's files."
        )
    made_at = to_text(datetime.fromtimestamp((state.document or {})["last-updated-ms"] / 1000, UTC))
    note = (
        f"{each.table} comes back as it was at {made_at}, not as at the backup, whose files are gone: "
        "this is the newest metadata in the warehouse."
    )
    return replace(each, target=state, note=note)
