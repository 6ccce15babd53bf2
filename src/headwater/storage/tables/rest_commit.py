"""Commits to a table of an Iceberg REST catalog, where the server writes the metadata.

A server compares a table's current snapshot before it commits, never its properties. So a change of properties alone is
not fenced here by itself: what must be (`storage.publish`) carries a snapshot, be it an empty one.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.settings import Settings
from headwater.storage.tables.catalog import load, open_catalog, translated
from headwater.storage.tables.commit import Base, Landing, NoAnswer
from headwater.storage.tables.metadata import MAIN, Edit, Metadata, dangling_refs
from headwater.storage.tables.rest_catalog import unmoved

if TYPE_CHECKING:
    from pyiceberg.table.update import TableUpdate


class RestTables:
    """A `CommittedTables`."""

    needs_snapshot = True

    def __init__(self, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._catalog = open_catalog(settings)
        self._clock_ms = clock_ms

    def base(self, table: str) -> Base:
        loaded = load(self._catalog, table)
        return Base(loaded.metadata_location, json.loads(loaded.metadata.model_dump_json(by_alias=True)))

    def base_at(self, table: str, location: str) -> Base | None:
        found = self.base(table)
        return found if found.location == location else None

    def attempt(self, table: str, base: Base, edit: Edit) -> Landing:
        from pyiceberg import exceptions as theirs

        loaded = load(self._catalog, table)
        if loaded.metadata_location != base.location:
            return Landing(landed=False)
        moment = max(self._clock_ms(), int(base.metadata["last-updated-ms"]))
        try:
            self._catalog.commit_table(loaded, unmoved(loaded), tuple(_updates(base.metadata, edit, moment)))
        except theirs.CommitFailedException:
            return Landing(landed=False)
        except (theirs.BadRequestError, theirs.ForbiddenError, theirs.UnauthorizedError, theirs.NoSuchTableError):
            with translated(table):
                raise
        except Exception as error:  # whatever else went wrong, on either side: it may have been done
            raise NoAnswer from error
        return Landing(landed=True)


def _updates(before: Metadata, edit: Edit, moment: int) -> "list[TableUpdate]":
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        RemovePropertiesUpdate,
        RemoveSnapshotRefUpdate,
        RemoveSnapshotsUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    updates: list[Any] = []
    if edit.snapshot is not None:
        snapshot: Any = Snapshot.model_validate({**edit.snapshot, "timestamp-ms": moment})
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
        updates.append(
            SetSnapshotRefUpdate.model_validate(
                {"ref-name": MAIN, "type": "branch", "snapshot-id": snapshot.snapshot_id}
            )
        )
    for name, ref in edit.refs.items():
        updates.append(SetSnapshotRefUpdate.model_validate({"ref-name": name, **ref}))
    dropped = {*edit.dropped_refs, *dangling_refs(before, edit.expired)}
    updates += [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in sorted(dropped)]
    if edit.expired:
        updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(edit.expired)}))
    if edit.cleared:
        updates.append(RemovePropertiesUpdate(removals=sorted(edit.cleared)))
    updates.append(SetPropertiesUpdate(updates=dict(edit.properties)))
    return updates
