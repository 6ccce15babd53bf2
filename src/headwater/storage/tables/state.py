"""A table's state as a value: its metadata document, which is small, kept alive by a tag and made current again.

A document names snapshots, and snapshots name files. Commits delete metadata files after a while and let snapshots go
with the files that only those need. So who wants to come back to a state keeps the document itself and tags its
current snapshot; expiry leaves a tag alone until it has the age that it may get.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.domain.progress import Progress
from headwater.errors import Conflict
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.metadata import (
    Edit,
    Metadata,
    current_snapshot_id,
    find_snapshot,
    next_location,
    progress_in,
    read_metadata,
    snapshot_ids,
    with_refs,
    without_snapshots,
    write_metadata,
)
from headwater.storage.tables.refs import ref_to
from headwater.storage.tables.warehouse_files import WarehouseFiles

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

# What may differ between two documents of one state: how they came about, and what else is kept beside it.
_INCIDENTAL: Final = frozenset({"metadata-log", "last-updated-ms", "refs", "snapshots", "snapshot-log", "statistics"})
_METADATA_FILE: Final = ".metadata.json"


@dataclass(frozen=True, slots=True)
class TableState:
    """`location` is a metadata file with this very document; empty where there is none. `document` is None in a backup
    from before they were carried: then there is the file, or nothing."""

    table: str
    location: str
    document: Metadata | None


def tag_state(committer: Committer, table: str, found: Base, tag: str, keep_ms: int) -> TableState:
    """Tag the current snapshot of a state that was read; the state with its tag. Conflict where it has expired since.

    A table without rows has no snapshot, and needs no tag: its document is all of it.
    """
    snapshot = find_snapshot(found.metadata, current_snapshot_id(found.metadata))
    if snapshot is None:
        return TableState(table, found.location, found.metadata)
    refs = {tag: ref_to(snapshot, "tag", committer.now_ms(), keep_ms)}

    def propose() -> tuple[Base, Edit]:
        now = committer.tables.base(table)
        if current_snapshot_id(found.metadata) not in snapshot_ids(now.metadata):
            raise Conflict(f"{table} let the snapshot go that was to be kept. Try again.")
        return now, Edit(refs=refs)

    committer.commit(table, propose)
    after, tagged = committer.tables.base(table), with_refs(found.metadata, refs)
    # Where nothing else was committed in between, the tag's own metadata file is the state.
    unmoved = same_state(after.metadata, tagged) and after.metadata.get("refs") == tagged["refs"]
    return TableState(table, after.location, after.metadata) if unmoved else TableState(table, "", tagged)


def read_state(files: WarehouseFiles, location: str) -> Metadata | None:
    """None where the file is gone."""
    with suppress(FileNotFoundError):
        return read_metadata(files.read(location))
    return None


def same_state(one: Metadata, other: Metadata) -> bool:
    """Whether both have the same rows, columns, properties and positions."""
    names = ({*one} | {*other}) - _INCIDENTAL
    return all(one.get(name) == other.get(name) for name in names)


def is_new_table(metadata: Metadata) -> bool:
    """A table as it was made: nothing ever came into it."""
    return not metadata.get("snapshots") and progress_in(metadata) == Progress()


def is_readable(files: WarehouseFiles, io: "FileIO", document: Metadata) -> bool:
    """Whether the current snapshot can be read: its manifest list and its manifests are there."""
    from pyiceberg.manifest import read_manifest_list

    snapshot = find_snapshot(document, current_snapshot_id(document))
    if snapshot is None:
        return True
    if files.missing([snapshot["manifest-list"]]):
        return False
    return not files.missing(each.manifest_path for each in read_manifest_list(io.new_input(snapshot["manifest-list"])))


def write_state(files: WarehouseFiles, state: TableState) -> str:
    """A metadata file of this state that names nothing that is gone; where it is. The state must be whole.

    The file that has it already, if that is there still, else a new one.
    """
    document = state.document if state.document is not None else read_metadata(files.read(state.location))
    lists = {one["manifest-list"]: one["snapshot-id"] for one in document.get("snapshots", ())}
    gone = {lists[location] for location in files.missing(lists)}
    if not gone and state.location and not files.missing([state.location]):
        return state.location
    location = next_location(document, state.location or _last_logged(document))
    files.write(location, write_metadata(without_snapshots(document, gone)))
    return location


def newest_state(files: WarehouseFiles, table: str, folder: str) -> TableState | None:
    """Of the metadata files under a table's location, the one that was written last.

    It may be one that a killed process wrote and the catalog never named: then it is as if that commit had landed.
    """
    names = [name for name in files.list(f"{folder.rstrip('/')}/metadata") if name.endswith(_METADATA_FILE)]
    found = [(name, document) for name in names if (document := read_state(files, name)) is not None]
    latest = max(found, key=lambda each: (int(each[1]["last-updated-ms"]), each[0]), default=None)
    return TableState(table, *latest) if latest else None


def _last_logged(document: Metadata) -> str:
    log = document.get("metadata-log") or ()
    return str(log[-1]["metadata-file"]) if log else ""
