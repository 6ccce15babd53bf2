"""History: which retained snapshots, tags and branches hold certain rows.

Few snapshots are looked into. A file is in every snapshot from the one that added it to the head it was found at, so
one plan per head settles all of them; only where files were replaced (compaction, a rewrite) is the snapshot before
planned as well. Manifests prune by day and by bounds, then one read of the key columns confirms. Rows that a delete
file merely hides count as held: their bytes are still there.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headwater.storage.io.local_path import local_path
from headwater.storage.query.reader import is_local
from headwater.storage.tables.row_filter import RowFilter, condition_of, expression_of, quoted_list

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def refs_with_rows(table: "Table", name: str, where: RowFilter) -> list[dict[str, Any]]:
    """Tags and branches first, then every snapshot: `{"table", "ref", "type", "snapshot_id"}`."""
    held = snapshots_with_rows(table, where)
    refs = [
        {"table": name, "ref": ref, "type": str(value.snapshot_ref_type), "snapshot_id": value.snapshot_id}
        for ref, value in sorted(table.metadata.refs.items())
        if value.snapshot_id in held
    ]
    snapshots = [
        {"table": name, "ref": None, "type": "snapshot", "snapshot_id": snapshot.snapshot_id}
        for snapshot in table.metadata.snapshots
        if snapshot.snapshot_id in held
    ]
    return refs + snapshots


def snapshots_with_rows(table: "Table", where: RowFilter) -> set[int]:
    walk = _Walk(table, where)
    for ref in table.metadata.refs.values():
        walk.settle(ref.snapshot_id)
    # What remains was staged and never became current, or was rolled back: it holds what its parent held, or what
    # a published snapshot took over from it.
    for snapshot in sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0):
        if snapshot.snapshot_id not in walk.settled:
            walk.settle(snapshot.snapshot_id)
    return {snapshot_id for snapshot_id, held in walk.settled.items() if held}


class _Walk:
    def __init__(self, table: "Table", where: RowFilter) -> None:
        self._table = table
        self._where = where
        self._confirmed: dict[str, bool] = {}
        self.settled: dict[int, bool] = {}

    def settle(self, head: int) -> None:
        """Settles the head and as many of its ancestors as its files tell about."""
        pending: int | None = head
        while pending is not None and pending not in self.settled:
            pending = self._settle_back_from(pending)

    def _settle_back_from(self, head: int) -> int | None:
        """Returns the ancestor that has to be looked into next, if any."""
        added = self._adding_snapshots(head)
        unseen = set(added)
        held = bool(added)
        for snapshot in self._ancestors(head):
            if snapshot.snapshot_id in self.settled:
                return None
            self.settled[snapshot.snapshot_id] = held
            unseen.discard(snapshot.snapshot_id)
            if _removed_files(snapshot):
                # Before this one the rows may have been in other files, or may not have been deleted yet.
                return snapshot.parent_snapshot_id if self._kept(snapshot.parent_snapshot_id) else None
            held = held and bool(unseen)
        return None

    def _adding_snapshots(self, head: int) -> set[int]:
        """The snapshots that added the files which hold the rows at this head."""
        scan = self._table.scan(row_filter=expression_of(self._where), snapshot_id=head)
        entries = [entry for group in scan._plan_manifest_entries() for entry in group]
        found = self._confirm([entry.data_file.file_path for entry in entries])
        return {entry.snapshot_id or head for entry in entries if entry.data_file.file_path in found}

    def _confirm(self, locations: Sequence[str]) -> set[str]:
        unread = [location for location in locations if location not in self._confirmed]
        with_rows = _files_with_rows(unread, self._where) if is_local(self._table) else set(unread)
        self._confirmed |= {location: location in with_rows for location in unread}
        return {location for location in locations if self._confirmed[location]}

    def _ancestors(self, head: int) -> "Iterator[Snapshot]":
        found = self._table.snapshot_by_id(head)
        while found is not None:
            yield found
            parent = found.parent_snapshot_id
            found = self._table.snapshot_by_id(parent) if parent is not None else None

    def _kept(self, snapshot_id: int | None) -> bool:
        return snapshot_id is not None and self._table.snapshot_by_id(snapshot_id) is not None


def _removed_files(snapshot: "Snapshot") -> bool:
    summary: Any = snapshot.summary
    return summary is None or int(summary.get("deleted-data-files") or 0) > 0


def _files_with_rows(locations: Sequence[str], where: RowFilter) -> set[str]:
    if not locations:
        return set()
    import duckdb

    by_path = {local_path(location): location for location in locations}
    files = f"read_parquet({quoted_list(list(by_path))}, filename = true)"
    query = f"SELECT DISTINCT filename FROM {files} WHERE {condition_of(where)}"
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return {by_path[path] for (path,) in connection.execute(query).fetchall()}
