"""Health: what is in the lake and how far behind each part is, from metadata.

Rows, files and snapshots come from table metadata, lag and staleness from subtracting positions. Raw objects are
counted in bronze.events rather than listed in the store: listing a bucket costs a request for each thousand objects,
and what no event names is an orphan, not part of the lake.
"""

from statistics import median
from typing import TYPE_CHECKING, Any, Final

from headwater.domain import tables
from headwater.storage import catalog as catalogs
from headwater.storage import reading
from headwater.storage.pointer_log import PointerLog
from headwater.storage.vector_index import VectorIndex

if TYPE_CHECKING:
    from pyiceberg.table import Table

_RAW: Final = (
    "SELECT count(*) AS objects, coalesce(sum(pointer.size), 0)::BIGINT AS bytes "
    "FROM bronze.events WHERE first_of_object AND modality <> 'chat'"
)


def status(catalog: catalogs.Tables, log: PointerLog, index: VectorIndex, lost: int = 0) -> dict[str, Any]:
    """`{"tables": […], "log", "raw", "duplicates", "quarantined", "index"}`"""
    loaded = {table.name: catalogs.load(catalog, table.name) for table in tables.TABLES}
    bronze = catalogs.progress(loaded[tables.EVENTS.name])
    embedded = catalogs.progress(loaded[tables.EMBEDDINGS.name]).next_seq
    lines = {name: _line(name, table) for name, table in loaded.items()}
    return {
        "tables": list(lines.values()),
        "log": {
            "lag": sum(max(0, end - bronze.offsets.get(part, 0)) for part, end in log.end().items()),
            "lost": lost,
        },
        "raw": reading.run_sql(catalog, _RAW)["rows"][0],
        "duplicates": bronze.duplicates,
        "quarantined": lines[tables.QUARANTINE.name]["rows"],
        "index": {"entries": index.count(), "stale_by": max(0, embedded - index.position())},
    }


def _line(name: str, table: "Table") -> dict[str, Any]:
    with catalogs.translated(name):
        tasks = reading.plan(table, {})
    sizes = [task.file.file_size_in_bytes for task in tasks]
    deleted = sum(file.record_count for task in tasks for file in task.delete_files)
    return {
        "name": name,
        "rows": sum(task.file.record_count for task in tasks) - deleted,
        "files": len(tasks),
        "median_file_bytes": int(median(sizes)) if sizes else 0,
        "snapshots": len(table.metadata.snapshots),
    }
