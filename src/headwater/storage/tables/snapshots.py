"""Snapshots: what a table's metadata document says of them, also of a table that PyIceberg has loaded. Pure."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater.storage.tables.metadata import Metadata

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def history_of(table: "Table") -> Metadata:
    """Of the document of a loaded table, what tells its snapshots, their names and how far it has come."""
    known = table.metadata
    return {
        "properties": dict(known.properties),
        "current-snapshot-id": known.current_snapshot_id,
        "snapshots": [_snapshot(each) for each in known.snapshots],
        "snapshot-log": [
            {"timestamp-ms": entry.timestamp_ms, "snapshot-id": entry.snapshot_id} for entry in known.snapshot_log
        ],
        "refs": {
            name: {"snapshot-id": ref.snapshot_id, "type": str(ref.snapshot_ref_type)}
            for name, ref in known.refs.items()
        },
    }


def to_moment(at_ms: int) -> datetime:
    """Milliseconds since 1970, as Iceberg keeps times."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def _snapshot(snapshot: "Snapshot") -> Metadata:
    summary: Any = snapshot.summary
    return {
        "snapshot-id": snapshot.snapshot_id,
        "parent-snapshot-id": snapshot.parent_snapshot_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "schema-id": snapshot.schema_id,
        "summary": dict(summary.additional_properties) if summary is not None else {},
    }
