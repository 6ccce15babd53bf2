"""A lake, as Python sees it. Each method mirrors a command and calls one function; nothing is decided here.

What people do every day is a method of `Lake`; the rest is behind `lake.models`, `lake.quarantine`,
`lake.events` and `lake.upkeep`.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headwater import settings
from headwater.clock import Moment, to_moment
from headwater.components import Components
from headwater.domain import tables
from headwater.domain.ref import AsOf, to_ref
from headwater.domain.shown import ShownObject
from headwater.facets.access import LakeAccess
from headwater.facets.events import LakeEvents
from headwater.facets.former_names import FormerNames
from headwater.facets.history import LakeHistory
from headwater.facets.labelling import Labelling
from headwater.facets.models import LakeModels
from headwater.facets.notebook import NotebookMedia
from headwater.facets.putting import Putting
from headwater.facets.quarantine import LakeQuarantine
from headwater.facets.selections import Selections
from headwater.facets.upkeep import LakeUpkeep
from headwater.setting import Value
from headwater.settings import Settings
from headwater.table_reader import TableReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.domain.model_book import ModelBook
    from headwater.flow.answer import SearchAnswer
    from headwater.flow.drive.pending import Pending
    from headwater.upkeep.labels import Facts
    from headwater.upkeep.object_view import ObjectBytes
    from headwater.upkeep.run import Ran


class Lake(Putting, Selections, Labelling, FormerNames):
    """Use it as a context manager, or `close` it: that stops Spark if anything started it."""

    def __init__(self, components: Components) -> None:
        self._parts = components

    @property
    def settings(self) -> Settings:
        return self._parts.settings

    @property
    def spark(self) -> "SparkSession":
        """A session with the lake's tables under `lake.`; starts Spark."""
        return self._parts.spark

    def close(self) -> None:
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, id: str, *, customer: str | None = None) -> Iterator[bytes]:
        """The raw bytes behind an id or a path, in pieces, verified against their checksum.

        `customer` says whose is meant, where several have an event of that id.
        """
        from headwater.upkeep.lineage import fetch_object

        return fetch_object(self._parts.reader, self._parts.raw_store, id, customer)

    def search(
        self,
        query: str,
        *,
        customer: str | None = None,
        modality: str | None = None,
        speaker: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        where: "Facts | None" = None,
        thread: str | None = None,
        limit: int = 10,
    ) -> "SearchAnswer":
        """Hits, best first: `for hit in lake.search("refund")`. `where` is what must be known of the object:
        `{"channel": "phone"}`, from its meta or its labels."""
        from headwater.domain.tables import EMBEDDINGS
        from headwater.flow.search import search, search_by_book
        from headwater.storage.tables.read_progress import read_progress
        from headwater.upkeep.labels import wanted_facts

        parts = self._parts
        only: dict[str, Any] = {"customer": customer, "modality": modality, "since": to_moment(since)}
        only["until"] = to_moment(until)
        only |= {"speaker": speaker, "thread": thread, "where": wanted_facts(parts.ledger, where) if where else ()}

        def ask(book: "ModelBook") -> "SearchAnswer":
            models: dict[str, Any] = {"hidden": book.hidden(), "pictures": parts.picture_model(book)}
            embedded = read_progress(parts.settings, EMBEDDINGS).next_seq
            found = search(parts.index, parts.embedder(book), query, **only, **models, limit=limit, embedded=embedded)
            return replace(found, media=NotebookMedia(parts))

        return search_by_book(parts.book, ask)

    def table(self, name: str, *, all_models: bool = False, as_of: AsOf | None = None) -> TableReader:
        """What the active models of now made, or with `all_models` what every model made; `as_of` as it was then."""
        from headwater.upkeep.history.book_at import book_at

        table, ref = tables.require(name), to_ref(as_of)
        hidden = frozenset[str]() if all_models else book_at(self._parts, ref).hidden()
        return TableReader(self._parts, table, hidden, ref)

    def show(self, name: str, *, limit: int = 10, as_of: AsOf | None = None) -> dict[str, Any]:
        """The newest rows of a table, vectors left out: `{"table", "columns", "rows"}`; `as_of` as it was then."""
        table = self.table(name).table.name
        # The table's own columns, since one of the past may have had others.
        columns = "COLUMNS(lambda name: name <> 'vector')"
        found = self.sql(f"SELECT {columns} FROM {table} ORDER BY seq DESC LIMIT {limit}", as_of=as_of)
        return {"table": table, **found}

    def pending(self) -> "Pending":
        """What each stage has yet to do; starts no JVM."""
        from headwater.upkeep.pending import pending_of

        return pending_of(self._parts)

    def flow(self) -> list[dict[str, Any]]:
        """The map: each stage, what it reads and writes, and how much waits before it; starts no JVM."""
        from headwater.upkeep.pending import stages_of

        return stages_of(self._parts)

    def run(
        self,
        *,
        once: bool = True,
        report: Callable[[str, int], None] | None = None,
        stop: threading.Event | None = None,
        listen: Callable[[str], None] | None = None,
        on_start: Callable[[], None] | None = None,
        spark: "SparkSession | None" = None,
    ) -> "Ran":
        """Bring what is pending through the stages; with `once=False`, go on until `stop` is set.

        `listen` hears each line of logs/headwater.jsonl as it is written. `on_start` is called where Spark is about to
        start: something is pending, and the models are checked. `spark` is a session that somebody else has made, as in
        a notebook: the run goes on inside it and leaves it as it was. InvalidRequest says what it lacks.
        """
        from headwater.upkeep.run import run

        with self._parts.inside(spark):
            return run(self._parts, once=once, report=report, stop=stop, listen=listen, on_start=on_start)

    @property
    def models(self) -> LakeModels:
        """Which models do which step: replay, compare, activate, retire."""
        return LakeModels(self._parts)

    @property
    def history(self) -> LakeHistory:
        """What the lake was: snapshots of a table, and names of the whole lake."""
        return LakeHistory(self._parts)

    @property
    def access(self) -> LakeAccess:
        """Who may look in from afar: make a token, list them, revoke one."""
        return LakeAccess(self._parts)

    @property
    def quarantine(self) -> LakeQuarantine:
        """What could not be processed: called, it is listed; retry, dismiss."""
        return LakeQuarantine(self._parts)

    @property
    def events(self) -> LakeEvents:
        """One event of a producer: show it, correct it."""
        return LakeEvents(self._parts)

    @property
    def upkeep(self) -> LakeUpkeep:
        """What tends the lake at rest: maintain, rescan, backup, metrics."""
        return LakeUpkeep(self._parts)

    def status(self) -> dict[str, Any]:
        from headwater.upkeep.health import status

        parts = self._parts
        return status(parts.reader, parts.log, parts.index, parts.ledger)

    def trace(self, id: str, *, customer: str | None = None, as_of: AsOf | None = None) -> dict[str, Any]:
        """`as_of` a time or a tag of all tables: what the tables told of it then. `customer` says whose is meant, where
        several have an event of that id."""
        from headwater.upkeep.labels import shown_labels
        from headwater.upkeep.lineage import trace
        from headwater.upkeep.related import related

        parts = self._parts
        found = trace(parts.reader, parts.index, parts.raw_store, id, to_ref(as_of), customer).to_dict()
        name = found["object"]["id"]
        beside = related(parts.reader, name, (found["event"] or {}).get("meta"))
        return self._shown({**found, "labels": shown_labels(parts.ledger, name), **beside})

    def view(self, id: str, *, customer: str | None = None, as_of: AsOf | None = None) -> dict[str, Any]:
        """As `trace`, without what holds the rows; with what every model said, side by side, and what that took."""
        from headwater.upkeep.object_view import view_object

        return self._shown(view_object(self._parts, id, customer, to_ref(as_of)))

    def _shown(self, found: dict[str, Any]) -> ShownObject:
        shown = ShownObject(found)
        shown.media = NotebookMedia(self._parts)
        return shown

    def open_object(self, id: str, *, customer: str | None = None) -> "ObjectBytes":
        """The raw bytes, to be read from anywhere on: `b"".join(lake.open_object(id).read(1000, 500))`."""
        from headwater.upkeep.object_view import open_object

        return open_object(self._parts.reader, self._parts.raw_store, id, customer)

    def preview(
        self,
        id: str,
        *,
        page: int | None = None,
        frame_ms: int | None = None,
        width: int = 1_200,
        customer: str | None = None,
    ) -> bytes:
        """A JPEG of a page of a PDF, of a moment of a video, or of a picture of any kind; starts no JVM."""
        found = self.open_object(id, customer=customer)
        how: dict[str, Any] = {"page": page, "frame_ms": frame_ms, "width": width}
        return self._parts.previews.draw(found.modality, found.pointer, **how)

    def journal(self, *, limit: int = 50) -> list[dict[str, Any]]:
        """What was run, the latest first: when, how it ended, what it did, what its models did and cost."""
        from headwater.upkeep.runs_table import list_runs

        return list_runs(self._parts.ledger, limit)

    def sql(
        self,
        query: str,
        *,
        timeout_seconds: float | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """One statement that only reads, in a process with the limits of `sql.timeout_seconds` and `sql.memory_mb`.

        `as_of` counts for every table that it names; the answer then says which snapshots were read. With a `limit` it
        has so many rows at most, and `more` says whether there were others.
        """
        from headwater.upkeep.history.book_at import book_at
        from headwater.upkeep.runs_table import dismissals_table, labels_table, runs_table

        parts = self._parts
        parts.queries.start()
        made = {"runs": runs_table, "dismissals": dismissals_table, "labels": labels_table}
        others = {name: table(parts.ledger) for name, table in made.items() if name in query.lower()}
        ref = to_ref(as_of)
        hidden = book_at(parts, ref).hidden()
        return parts.queries.run(query, hidden, others, timeout_seconds=timeout_seconds, as_of=ref, limit=limit)


def open(directory: str | Path, options: dict[str, Value] | None = None) -> Lake:
    """Open a lake; raises NotFound where there is none, Conflict where its format is not this program's."""
    from headwater.upkeep.format import check_format

    components = Components(settings.load(Path(directory), options))
    for sentence in components.settings.unheeded_variables(os.environ):
        warnings.warn(sentence, UserWarning, stacklevel=2)
    check_format(components.ledger)
    return Lake(components)


def init(directory: str | Path) -> Lake:
    """Make a lake, or open the one that is there; starts no JVM. Conflict where one was that has lost a part."""
    from headwater.upkeep.init import make_lake, write_settings

    path = Path(directory)
    write_settings(path)
    components = Components(settings.load(path))
    make_lake(components)
    components.prepare_spark_beside()
    return open(directory)
