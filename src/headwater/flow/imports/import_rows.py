"""Import: rows of tables that people have, as events; many at a time, in memory that does not grow.

Reads   row sources; files that rows name
Writes  the raw store, then the pointer log
Key     a row's id, else its words and its number; the same rows again change nothing.
Invariant: a row is an event or a reject with its line and its reason, and one that is bad costs only itself. Events go
out in batches, so an import that was killed is simply done again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final

from headwater.clock import Clock, utc_now
from headwater.domain.event import Event
from headwater.errors import HeadwaterError
from headwater.flow.imports.columns import ColumnMap
from headwater.flow.imports.row_event import BadRow, Defaults, RowFile, to_event
from headwater.flow.imports.row_source import Row, RowSource
from headwater.flow.known_files import KnownFiles
from headwater.flow.lake_places import LakePlaces
from headwater.flow.landed import WRITERS
from headwater.flow.sources import Skipped, Source
from headwater.flow.store_file import Putting, store_file
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.raw.store import RawStore

BATCH_ROWS: Final = 5_000  # some megabytes; a log syncs once for all of them
_LINES_TOLD: Final = 20  # of each reason
_REASONS_TOLD: Final = 50
_OTHERS: Final = "other reasons"
_PREVIEW_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that is no event, where it stands, and why."""

    source: str
    line: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"source": self.source, "line": self.line, "reason": self.reason}


@dataclass(slots=True)
class Imported:
    """What came of an import. `reasons` are those of rejects, each with how many there were and where the first are."""

    dry_run: bool = False
    rows: int = 0
    stored: int = 0
    rejected: int = 0
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    reasons: dict[str, dict[str, Any]] = field(default_factory=dict)
    preview: list[dict[str, Any]] = field(default_factory=list)

    def reject(self, found: Reject) -> None:
        self.rejected += 1
        reason = found.reason if found.reason in self.reasons or len(self.reasons) < _REASONS_TOLD else _OTHERS
        known = self.reasons.setdefault(reason, {"rows": 0, "first": []})
        known["rows"] += 1
        if len(known["first"]) < _LINES_TOLD:
            known["first"].append({"source": found.source, "line": found.line})

    def to_dict(self) -> dict[str, Any]:
        reasons = [{"reason": reason, **about} for reason, about in self.reasons.items()]
        return {
            "dry_run": self.dry_run, "rows": self.rows, "stored": self.stored, "rejected": self.rejected,
            "columns": self.columns, "reasons": reasons, "preview": self.preview,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Importing:
    """What an import is done with: where to, how columns are read, and who is told."""

    raw: RawStore
    log: PointerLog
    columns: ColumnMap
    customer: str | None = None
    at: datetime | None = None
    meta: Mapping[str, Any] | None = None
    thread: str | None = None
    dry_run: bool = False
    known: KnownFiles | None = None
    places: LakePlaces | None = None
    on_reject: Callable[[Reject, Row], None] | None = None
    progress: Callable[[int, float | None], None] | None = None
    clock: Clock = utc_now


def import_rows(sources: Iterable[RowSource], how: Importing) -> Imported:
    """Every row of every source. Raises where a source cannot be read at all, or the log takes nothing; what went out
    by then is stored, and the same import again goes on from there."""
    found = Imported(dry_run=how.dry_run)
    with ThreadPoolExecutor(WRITERS, "import") as pool:
        for source in sources:
            if how.places is not None:
                how.places.look_above(str(source.folder or Path()))
            fields = how.columns.of_columns(source.columns, source.name) if source.columns is not None else None
            for batch in _batches(source.rows):
                _take(batch, source, fields, how, found, pool)
                if how.progress is not None:
                    how.progress(len(batch), source.place())
    return found


def _take(
    batch: list[Row], source: RowSource, fields: dict[str, str] | None, how: Importing, found: Imported, pool: Any
) -> None:
    defaults = Defaults(how.customer, how.at, how.clock(), how.meta, how.thread)
    outcomes: list[Event | Reject | Any] = []
    for row in batch:
        try:
            mapped = how.columns.of_row(list(row.values)) if fields is None else fields
            _note_columns(found, source, row, mapped)
            made = to_event(row, mapped, defaults)
            if isinstance(made, RowFile) and not how.dry_run:
                outcomes.append(pool.submit(_land_file, how, source, made, row.line))
            else:
                outcomes.append(made)
        except BadRow as error:
            outcomes.append(Reject(source.name, row.line, str(error)))
    settled = [each.result() if hasattr(each, "result") else each for each in outcomes]
    events = [each for each in settled if isinstance(each, Event)]
    if events and not how.dry_run:
        how.log.publish(events)
    _count(batch, settled, how, found)


def _count(batch: list[Row], settled: list[Event | RowFile | Reject], how: Importing, found: Imported) -> None:
    for row, made in zip(batch, settled, strict=True):
        found.rows += 1
        if isinstance(made, Reject):
            found.reject(made)
            if how.on_reject is not None:
                how.on_reject(made, row)
            continue
        found.stored += 0 if how.dry_run else 1
        if how.dry_run and len(found.preview) < _PREVIEW_ROWS:
            found.preview.append({"line": row.line, **_shown(made)})


def _shown(made: Event | RowFile) -> dict[str, Any]:
    if isinstance(made, Event):
        return made.to_dict()
    at = made.at.isoformat() if made.at else None
    return {
        "event_id": made.event_id, "customer": made.customer, "file": made.path, "occurred_at": at,
        "meta": made.meta, "thread": made.thread,
    }  # fmt: skip


def _note_columns(found: Imported, source: RowSource, row: Row, mapped: dict[str, str]) -> None:
    known = found.columns.setdefault(source.name, {})
    if len(known) < 1_000 and (source.columns is None or not known):
        for name in source.columns or row.values:
            known.setdefault(str(name), mapped.get(name, f"meta.{name}"))


def _land_file(how: Importing, source: RowSource, made: RowFile, line: int) -> Event | Reject:
    path = PurePosixPath(made.path.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        return Reject(source.name, line, "its file leads out of the folder that the rows are in")
    file = Source(str(source.folder or Path()), path.parts)
    if how.places is not None and (lake := how.places.lake_of(file.path)):
        return Reject(source.name, line, f"its file is a part of the lake in {lake}, and no file of a customer's")
    try:
        return _stored_event(how, file, made)
    except Skipped:
        return Reject(source.name, line, "its file is a link")
    except HeadwaterError as error:
        return Reject(source.name, line, str(error))


def _stored_event(how: Importing, file: Source, made: RowFile) -> Event:
    told = Putting(how.raw, made.customer, made.event_id, made.at, how.known, meta=made.meta, thread=made.thread)
    return store_file(told, file).event


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch
