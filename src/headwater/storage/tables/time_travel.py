"""Time travel: the tables as a ref has them, in the place of the tables as they are now. No JVM.

Whatever reads takes a `Tables`; one that is given `TablesAt` reads the past and need not know. A table that is loaded
from it has that snapshot as its current one, and that snapshot's own schema: a column that came later is not there.
Its properties and tags are those of now.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headwater.domain.ref import Ref
from headwater.errors import NotFound
from headwater.storage.tables.catalog import Tables, load
from headwater.storage.tables.resolve_ref import SnapshotRead, gone, resolve_all
from headwater.storage.tables.snapshots import history_of, to_moment

if TYPE_CHECKING:
    from pyiceberg.table import Table


class TablesAt:
    """A `Tables`. Which snapshot of each is settled when it is made, so all that is read of it is of one state.

    It has those tables and no others: a ref that only some of them know is refused before anything is read.
    """

    def __init__(self, tables: Tables, ref: Ref, names: Collection[str]) -> None:
        self._tables = tables
        self._ref = ref
        # What was loaded to settle it is handed out once; after that tables are loaded anew, for files may expire.
        self._loaded = {name: load(tables, name) for name in names}
        self._snapshots = _settle(self._loaded, ref)

    @property
    def snapshots(self) -> list[SnapshotRead]:
        """Without those of tables that had none yet and are empty."""
        return [each for each in self._snapshots.values() if each is not None]

    def to_dict(self) -> dict[str, Any]:
        """`{"ref", "snapshots": [{"table", "snapshot_id", "committed_at"}]}`; a table that was empty then has nulls."""
        read = [each.to_dict() if each else _nothing(name) for name, each in self._snapshots.items()]
        return {"ref": str(self._ref), "snapshots": read}

    def load_table(self, identifier: str) -> "Table":
        if identifier not in self._snapshots:
            raise NotFound(f"{identifier} is not among the tables that are read at {self._ref}.")
        table = self._loaded.pop(identifier, None) or load(self._tables, identifier)
        snapshot = self._snapshots[identifier]
        if snapshot is not None:
            _check_kept(table, identifier, snapshot.snapshot_id)
        return table_at(table, snapshot)


def table_at(table: "Table", snapshot: SnapshotRead | None) -> "Table":
    """The loaded table with that snapshot as its current one; with none it is empty, and its first schema counts."""
    from pyiceberg.table import Table

    known = table.metadata
    schemas = {schema.schema_id for schema in known.schemas}
    wanted = snapshot.schema_id if snapshot else _first_schema(table)
    then: dict[str, Any] = {"current_snapshot_id": snapshot.snapshot_id if snapshot else None}
    if wanted in schemas:
        then["current_schema_id"] = wanted
    return Table(
        table.name(), known.model_copy(update=then), table.metadata_location, table.io, table.catalog, table.config
    )


def _first_schema(table: "Table") -> int | None:
    first = min(table.metadata.snapshots, key=lambda each: each.timestamp_ms, default=None)
    return first.schema_id if first is not None else None


def _nothing(table: str) -> dict[str, Any]:
    return {"table": table, "snapshot_id": None, "committed_at": None}


def _settle(loaded: "Mapping[str, Table]", ref: Ref) -> dict[str, SnapshotRead | None]:
    if len(loaded) == 1 and ref.snapshot_id is not None:
        ((name, table),) = loaded.items()
        _check_kept(table, name, ref.snapshot_id)
    return resolve_all({name: history_of(table) for name, table in loaded.items()}, ref)


def _check_kept(table: "Table", name: str, snapshot_id: int) -> None:
    if table.metadata.snapshots and table.snapshot_by_id(snapshot_id) is None:
        raise gone(name, snapshot_id, history_of(table), _expired_at(table, snapshot_id))


def _expired_at(table: "Table", snapshot_id: int) -> datetime | None:
    """When the table let a snapshot go, by the metadata files before this one, as far as they are still there."""
    from pyiceberg.serializers import FromInputFile

    after = table.metadata.last_updated_ms
    for entry in reversed(table.metadata.metadata_log):
        with suppress(Exception):  # one that is gone tells nothing
            before = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
            if before.snapshot_by_id(snapshot_id) is not None:
                return to_moment(after)
        after = entry.timestamp_ms
    return None
