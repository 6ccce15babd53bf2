"""The lake's SQL catalog for PyIceberg, committing as everybody here does: see `storage.tables.commit`."""

import json

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

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


def _parsed(metadata: Metadata) -> TableMetadata:
    return TableMetadataUtil.parse_raw(write_metadata(metadata).decode())
