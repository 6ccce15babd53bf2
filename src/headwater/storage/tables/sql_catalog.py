"""The lake's SQL catalog for PyIceberg, committing as everybody here does: see `storage.tables.commit`."""

import json
from collections.abc import Iterator

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, read_manifest_list
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate, update_table_metadata

from headwater.settings import Settings
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.metadata import Edit, Metadata, write_metadata


class LakeCatalog(SqlCatalog):
    """Its own way to commit would not sync what it writes, nor find out what became of a commit without an answer, and
    a clock that went back would leave metadata that Spark refuses."""

    def __init__(self, name: str, settings: Settings, **properties: str) -> None:
        super().__init__(name, **properties)
        self._committer = Committer(settings)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        name = ".".join(table.name())
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                self._committer.files.sync(_new_files(update.snapshot, table.io))

        def propose() -> tuple[Base, Edit] | None:
            base = self._committer.tables.base(name)
            before = _parsed(base.metadata)
            for requirement in requirements:
                requirement.validate(before)
            made = json.loads(update_table_metadata(before, updates, metadata_location=base.location).model_dump_json())
            return (base, Edit(document=made)) if made != json.loads(before.model_dump_json()) else None

        self._committer.commit(name, propose)
        now = self._committer.tables.base(name)
        return CommitTableResponse.model_validate(
            {"metadata": _parsed(now.metadata), "metadata-location": now.location}
        )


def _new_files(snapshot: Snapshot, io: FileIO) -> Iterator[str]:
    """What PyIceberg wrote for a snapshot: its list, the manifests that are new in it, and the files that those add."""
    yield snapshot.manifest_list
    for manifest in read_manifest_list(io.new_input(snapshot.manifest_list)):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(io):
                if entry.status == ManifestEntryStatus.ADDED:
                    yield entry.data_file.file_path


def _parsed(metadata: Metadata) -> TableMetadata:
    return TableMetadataUtil.parse_raw(write_metadata(metadata).decode())
