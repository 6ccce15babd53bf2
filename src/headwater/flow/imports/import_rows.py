"""Import: rows of tables that people have, as events; many at a time, in memory that does not grow.

Reads   row sources; files that rows name
Writes  the raw store, then the pointer log
Key     a row's id, else its words and its number; the same rows again change nothing.
Invariant: a row is an event, the same as an earlier row, or a reject with its line and its reason, and one that is bad
costs only itself. Events go out in batches, so an import that was killed is simply done again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final

from headwater.clock import Clock, utc_now
from headwater.domain.event import Event
from headwater.domain.keys import event_key
from headwater.errors import HeadwaterError
from headwater.flow.imports.columns import ColumnMap
from headwater.flow.imports.row_event import BadRow, Defaults, RowFile, to_event
from headwater.flow.imports.row_source import Row, RowSource
from headwater.flow.imports.seen_rows import SeenRow, SeenRows
from headwater.flow.known_files import KnownFiles
from headwater.flow.lake_places import LakePlaces
from headwater.flow.landed import WRITERS
from headwater.flow.sources import Skipped, Source
from headwater.flow.store_file import Putting, store_file
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.raw.store import RawStore

BATCH_ROWS: Final = 5_000  # some megabytes; a log syncs once for all of them
BATCH_LETTERS: Final = 8 << 20  # where rows are long, a batch has fewer: each is held as a row, an event and a line
_LINES_TOLD: Final = 20  # of each reason
_REASONS_TOLD: Final = 50
_OTHERS: Final = "other reasons"
_PREVIEW_ROWS: Final = 5
_to_json: Final = json.JSONEncoder(sort_keys=True).encode
_OTHER_CONTENT: Final = "its id is that of an earlier row, which says something else"


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that is no event, where it stands, and why. `earlier` is the source and line of one that has its id."""

    source: str
    line: int
    reason: str
    earlier: tuple[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"source": self.source, "line": self.line, "reason": self.reason, **_shown_earlier(self)}


class _Known:
    """A row that says what an earlier one said, under the same id."""


@dataclass(slots=True)
class Imported:
    """What came of an import. `known` are rows that an earlier one of the same import said already, under their id;
    `reasons` are those of rejects, each with how many there were and where the first are."""

    dry_run: bool = False
    rows: int = 0
    stored: int = 0
    known: int = 0
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
            known["first"].append({"source": found.source, "line": found.line, **_shown_earlier(found)})

    def to_dict(self) -> dict[str, Any]:
        reasons = [{"reason": reason, **about} for reason, about in self.reasons.items()]
        return {
            "dry_run": self.dry_run, "rows": self.rows, "stored": self.stored, "known": self.known,
            "rejected": self.rejected, "columns": self.columns, "reasons": reasons, "preview": self.preview,
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
    with closing(SeenRows()) as seen:
        pool = ThreadPoolExecutor(WRITERS, "import")
        try:
            return _Import(how, pool, seen).take_all(sources)
        finally:
            pool.shutdown(cancel_futures=True)  # whoever was interrupted does not wait for files that nobody announces


@dataclass(slots=True)
class _Import:
    """One import on its way."""

    how: Importing
    pool: ThreadPoolExecutor
    seen: SeenRows
    found: Imported = field(default_factory=Imported)
    names: list[str] = field(default_factory=list)  # of the sources by now

    def take_all(self, sources: Iterable[RowSource]) -> Imported:
        how, self.found.dry_run = self.how, self.how.dry_run
        for source in sources:
            self.names.append(source.name)
            if how.places is not None:
                how.places.look_above(str(source.folder or Path()))
            fields = how.columns.of_columns(source.columns, source.name) if source.columns is not None else None
            for batch in _batches(source.rows):
                self._take(batch, source, fields)
                if how.progress is not None:
                    how.progress(len(batch), source.place())
        return self.found

    def _take(self, batch: list[Row], source: RowSource, fields: dict[str, str] | None) -> None:
        made = self._without_repeated(batch, self._made(batch, source, fields), source)
        if not self.how.dry_run:
            landing = [
                self.pool.submit(_land_file, self.how, source, each, row.line) if isinstance(each, RowFile) else each
                for row, each in zip(batch, made, strict=True)
            ]
            made = [each.result() if isinstance(each, Future) else each for each in landing]
            if events := [each for each in made if isinstance(each, Event)]:
                self.how.log.publish(events)
        self._count(batch, made)

    def _made(
        self, batch: list[Row], source: RowSource, fields: dict[str, str] | None
    ) -> list[Event | RowFile | Reject]:
        how = self.how
        defaults = Defaults(how.customer, how.at, how.clock(), how.meta, how.thread)
        made: list[Event | RowFile | Reject] = []
        for row in batch:
            try:
                mapped = how.columns.of_row(list(row.values)) if fields is None else fields
                _note_columns(self.found, source, row, mapped)
                made.append(to_event(row, mapped, defaults))
            except BadRow as error:
                made.append(Reject(source.name, row.line, str(error)))
        return made

    def _without_repeated(
        self, batch: list[Row], made: list[Event | RowFile | Reject], source: RowSource
    ) -> list[Event | RowFile | Reject | _Known]:
        """Before anything is stored: of files with one id, which are stored side by side, the first is to win."""
        number, settled = len(self.names) - 1, list[Event | RowFile | Reject | _Known](made)
        good = [place for place, each in enumerate(made) if not isinstance(each, Reject)]
        rows = [SeenRow(*_identity(made[place]), number, batch[place].line) for place in good]
        for place, earlier in zip(good, self.seen.add(rows), strict=True):
            if earlier is not None:
                where = self.names[earlier.source], earlier.line
                conflict = Reject(source.name, batch[place].line, _OTHER_CONTENT, where)
                settled[place] = _Known() if earlier.same else conflict
        return settled

    def _count(self, batch: list[Row], made: list[Event | RowFile | Reject | _Known]) -> None:
        how, found = self.how, self.found
        for row, each in zip(batch, made, strict=True):
            found.rows += 1
            if isinstance(each, Reject):
                found.reject(each)
                if how.on_reject is not None:
                    how.on_reject(each, row)
            elif isinstance(each, _Known):
                found.known += 1
            elif not how.dry_run:
                found.stored += 1
            elif len(found.preview) < _PREVIEW_ROWS:
                found.preview.append({"line": row.line, **_shown(each)})


def _identity(made: Event | RowFile | Reject) -> tuple[int, int]:
    """Hashes of what makes it the same, and of what it says. A time is no content, but it is the day in the name of a
    file. Nothing else is held on to: thousands of small objects a batch cost more in collecting than in hashing."""
    assert not isinstance(made, Reject)
    if not made.meta:
        meta = 0
    elif set(map(type, made.meta.values())) == {str}:
        meta = hash(frozenset(made.meta.items()))
    else:
        meta = hash(_to_json(made.meta))
    if isinstance(made, Event):
        return hash(event_key(made.event_id, made.customer)), hash((made.text, meta, made.thread))
    day = made.at and made.at.date()
    if made.event_id:
        return hash(event_key(made.event_id, made.customer)), hash((made.path, day, meta, made.thread))
    return hash((made.customer, made.path, day)), hash((meta, made.thread))


def _shown_earlier(reject: Reject) -> dict[str, Any]:
    return {"earlier": dict(zip(("source", "line"), reject.earlier, strict=True))} if reject.earlier else {}


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
    batch: list[Row] = []
    letters = 0
    for row in rows:
        batch.append(row)
        letters += _letters(row.values)
        if len(batch) >= BATCH_ROWS or letters >= BATCH_LETTERS:
            yield batch
            batch, letters = [], 0
    if batch:
        yield batch


def _letters(values: Mapping[str, Any]) -> int:
    """About how much memory they are; a number is next to nothing. As quick as can be: each row is asked for."""
    letters = 0
    for value in values.values():
        if type(value) is str:
            letters += len(value)
        elif value is not None and type(value) is not int:
            letters += _letters_of(value)
    return letters


def _letters_of(value: Any) -> int:
    match value:
        case str() | bytes():
            return len(value)
        case Mapping():
            return _letters(value)
        case list() | tuple():
            return sum(map(_letters_of, value))
    return 1
