"""Health: what is in the lake and how far behind each part is, from metadata.

Rows, files and snapshots come from table metadata, lag and staleness from subtracting positions. Raw objects are
counted by bronze with its rows, rather than listed in the store: listing a bucket costs a request for each thousand
objects, and what no event names is an orphan, not part of the lake.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from headwater.domain import tables
from headwater.domain.progress import Progress
from headwater.errors import Unavailable
from headwater.flow.log.identity import count_lag, find_unread
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.losses import count_lost
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.query import reader as reading
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.expired_scan import plan_again
from headwater.storage.tables.metadata import progress_in
from headwater.storage.tables.snapshots import history_of
from headwater.upkeep.quarantine import count_dismissed

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

_RAW: Final = (
    "SELECT count(*) AS objects, least(coalesce(sum(pointer.size), 0), 9223372036854775807)::BIGINT AS bytes "
    "FROM bronze.events WHERE first_of_object AND modality <> 'chat'"
)


@dataclass(frozen=True, slots=True)
class _Planned:
    table: "Table"
    tasks: "Sequence[FileScanTask]"

    @property
    def rows(self) -> int:
        # One delete file may be for many data files.
        deletes = {file.file_path: file.record_count for task in self.tasks for file in task.delete_files}
        return sum(task.file.record_count for task in self.tasks) - sum(deletes.values())

    def line(self, name: str) -> dict[str, Any]:
        sizes = [task.file.file_size_in_bytes for task in self.tasks]
        return {
            "name": name,
            "rows": self.rows,
            "files": len(self.tasks),
            "median_file_bytes": int(median(sizes)) if sizes else 0,
            "snapshots": len(self.table.metadata.snapshots),
        }


def status(
    catalog: catalogs.Tables, log: PointerLog, index: VectorIndex, ledger: Ledger | None = None
) -> dict[str, Any]:
    """`{"tables": […], "log", "raw", "duplicates", "quarantined", "dismissed", "index"}`

    Without a ledger neither losses nor dismissals are known.
    """
    planned = {table.name: plan_again(partial(_plan, catalog, table.name)) for table in tables.TABLES}
    bronze = progress_in(history_of(planned[tables.EVENTS.name].table))
    embedded = progress_in(history_of(planned[tables.EMBEDDINGS.name].table)).next_seq
    dismissed = count_dismissed(catalog, ledger) if ledger else 0
    return {
        "tables": [each.line(name) for name, each in planned.items()],
        "log": _log(log, ledger, bronze.offsets),
        "raw": _raw(catalog, bronze, planned[tables.EVENTS.name].rows),
        "duplicates": bronze.duplicates,
        "quarantined": max(0, planned[tables.QUARANTINE.name].rows - dismissed),
        "dismissed": dismissed,
        "index": _index(index, embedded),
    }


def _index(index: VectorIndex, embedded: int) -> dict[str, Any]:
    """One that is down has nothing, and says why; the tables are as they are."""
    try:
        return {"entries": index.count(), "stale_by": max(0, embedded - index.position())}
    except Unavailable as down:
        return {"entries": 0, "stale_by": embedded, "down": str(down)}


def _log(log: PointerLog, ledger: Ledger | None, consumed: Mapping[int, int]) -> dict[str, int]:
    """A log that is not the one that was read counts among what is lost also before a run has told it."""
    if ledger is None:
        return {"lag": count_lag(log.end(), consumed), "lost": 0}
    unread = find_unread(log, ledger, consumed)
    return {"lag": unread.events, "lost": count_lost(ledger) + len(unread.anew)}


def _plan(catalog: catalogs.Tables, name: str) -> _Planned:
    table = catalogs.load(catalog, name)
    with catalogs.translated(name):
        return _Planned(table, reading.plan(table, {}))


def _raw(catalog: catalogs.Tables, bronze: Progress, rows: int) -> dict[str, int]:
    """As bronze counted it; a table with rows that it did not count, or without some that it did, is read instead."""
    if bronze.raw.get("rows", 0) == rows:
        return {name: bronze.raw.get(name, 0) for name in ("objects", "bytes")}
    found: dict[str, int] = reading.run_sql(catalog, _RAW)["rows"][0]
    return found
