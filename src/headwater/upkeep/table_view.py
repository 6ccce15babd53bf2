"""Table view: what a table is made of, told from its metadata alone: columns, files by size, snapshots.

Reads   a table's metadata and manifests; starts no JVM and opens no data file
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from headwater.clock import to_text
from headwater.domain.tables import Table, require
from headwater.settings import Settings
from headwater.storage.query.reader import plan
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.expired_scan import plan_again
from headwater.storage.tables.snapshots import history_of, to_moment

_MB: Final = 1 << 20
_BOUNDS: Final = (64 << 10, _MB, 16 * _MB, 64 * _MB, 128 * _MB, 256 * _MB, 512 * _MB)
_SNAPSHOTS: Final = 200
_COUNTS: Final = ("added-records", "deleted-records", "total-records", "added-data-files", "deleted-data-files")


def view_table(catalog: catalogs.Tables, settings: Settings, table: Table) -> dict[str, Any]:
    """`{"table", "columns", "partition", "rows", "files", "bytes", "target_bytes", "sizes": [{"up_to", "files"}],
    "snapshots": […]}`, the latest snapshot first; `up_to` None is beyond all bounds."""
    loaded, tasks = plan_again(lambda: _planned(catalog, table.name))
    sizes = [task.file.file_size_in_bytes for task in tasks]
    counted = Counter(next((bound for bound in _BOUNDS if size <= bound), None) for size in sizes)
    schema = loaded.schema()
    return {
        "table": table.name,
        "columns": [
            {"name": field.name, "type": str(field.field_type), "required": field.required} for field in schema.fields
        ],
        "partition": [
            f"{field.transform}({schema.find_column_name(field.source_id)})" for field in loaded.spec().fields
        ],
        "rows": sum(task.file.record_count for task in tasks),
        "files": len(sizes),
        "bytes": sum(sizes),
        "target_bytes": settings.whole("maintain.file_mb") * _MB,
        "sizes": [{"up_to": bound, "files": counted[bound]} for bound in (*_BOUNDS, None) if counted[bound]],
        **_history(loaded, _SNAPSHOTS),
    }


def list_snapshots(catalog: catalogs.Tables, name: str, limit: int) -> dict[str, Any]:
    """`{"table", "snapshots": [{"id", "at", "refs", "added_records", …}], "older"}`, the latest first."""
    table = require(name)
    loaded = catalogs.load(catalog, table.name)
    with catalogs.translated(table.name):
        return {"table": table.name, **_history(loaded, limit)}


def _history(loaded: Any, limit: int) -> dict[str, Any]:
    history = history_of(loaded)
    named: dict[int, list[str]] = {}
    for name, ref in history["refs"].items():
        named.setdefault(ref["snapshot-id"], []).append(name)
    newest = sorted(history["snapshots"], key=_age, reverse=True)
    return {
        "snapshots": [_snapshot(snapshot, named) for snapshot in newest[:limit]],
        "older": max(0, len(newest) - limit),
    }


def _age(snapshot: Mapping[str, Any]) -> tuple[int, int]:
    return snapshot["timestamp-ms"], snapshot["sequence-number"] or 0


def _planned(catalog: catalogs.Tables, name: str) -> Any:
    table = catalogs.load(catalog, name)
    with catalogs.translated(name):
        return table, plan(table, {})


def _snapshot(snapshot: Mapping[str, Any], named: Mapping[int, list[str]]) -> dict[str, Any]:
    summary = snapshot["summary"]
    return {
        "id": str(snapshot["snapshot-id"]),  # of more digits than a page's numbers have
        "at": to_text(to_moment(snapshot["timestamp-ms"])),
        "refs": sorted(named.get(snapshot["snapshot-id"], ())),
        **{name.replace("-", "_"): int(summary.get(name, 0)) for name in _COUNTS},
    }
