"""A lake, as Python sees it. Each method mirrors a command and calls one function; nothing is decided here.

What people do every day is a method of `Lake`; the rest is behind `lake.models`, `lake.quarantine` and `lake.upkeep`.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headwater import settings
from headwater.clock import Moment, to_moment
from headwater.components import Components
from headwater.domain import tables
from headwater.domain.meta import require_meta, require_thread
from headwater.domain.ref import AsOf, to_ref
from headwater.errors import InvalidRequest, NotFound
from headwater.facets.former_names import FormerNames
from headwater.facets.labelling import Labelling
from headwater.facets.models import LakeModels
from headwater.facets.quarantine import LakeQuarantine
from headwater.facets.selections import Selections
from headwater.facets.upkeep import LakeUpkeep
from headwater.facets.watching import Watching
from headwater.setting import Value
from headwater.settings import Settings
from headwater.table_reader import TableReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.domain.model_book import ModelBook
    from headwater.flow.answer import SearchAnswer
    from headwater.flow.drive.pending import Pending
    from headwater.flow.imports.import_rows import Imported, Reject
    from headwater.flow.imports.row_source import Row
    from headwater.flow.land import Landed
    from headwater.upkeep.labels import Facts
    from headwater.upkeep.run import Ran


class Lake(Selections, Labelling, Watching, FormerNames):
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

    def put(
        self,
        *patterns: str | Path,
        customer: str | None = None,
        id: str | None = None,
        at: Moment | None = None,
        follow_links: bool = False,
        skip_unsupported: bool = False,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        collect: bool = False,
    ) -> "list[Landed]":
        """Store files, directories or globs and publish their events; one result for each file.

        When all are done, the first that failed is raised; with `collect`, failures are results too. A link that is
        named is followed; one in a directory, or that a glob finds, only with `follow_links`. A file whose kind is not
        taken is a failure, or with `skip_unsupported` skipped. Without a customer it is that of `put.customer`.
        `meta` is what is known of all of them, `thread` their conversation; `call.wav.json` beside a file says more.
        """
        from headwater.flow.land import require_landed

        how: dict[str, Any] = {"follow_links": follow_links, "skip_unsupported": skip_unsupported}
        how |= {"meta": meta, "thread": thread}
        landed = list(self.iter_put(*patterns, customer=customer, id=id, at=at, **how))
        return landed if collect else require_landed(landed)

    def iter_put(
        self,
        *patterns: str | Path,
        customer: str | None = None,
        id: str | None = None,
        at: Moment | None = None,
        follow_links: bool = False,
        skip_unsupported: bool = False,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
    ) -> "Iterator[Landed]":
        """As `put`, for more files than one wants to hold the results of: each is stored when its result is asked for,
        and one that failed is a result."""
        from headwater.flow.known_files import KnownFiles
        from headwater.flow.lake_places import LakePlaces
        from headwater.flow.land import land_many
        from headwater.flow.unpack.unpacker import Unpacker

        parts = self._parts
        about: dict[str, Any] = {"event_id": id, "at": to_moment(at), "clock": parts.clock}
        about |= {"follow_links": follow_links, "skip_unsupported": skip_unsupported}
        about |= {"places": LakePlaces(parts.settings), "meta": require_meta(meta), "thread": require_thread(thread)}
        about["known"] = KnownFiles(parts.ledger)
        about["unpacker"] = Unpacker.from_settings(parts.settings)
        return land_many(parts.raw_store, parts.log_to_write, patterns, self._whose(customer), **about)

    def put_text(
        self,
        text: str,
        *,
        customer: str | None = None,
        id: str | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
    ) -> "Landed":
        """A chat line; it needs no raw object. Conflict where the customer's id is known to be another text's."""
        from headwater.flow.known_files import KnownFiles
        from headwater.flow.land import land_text

        parts = self._parts
        about: dict[str, Any] = {"event_id": id, "known": KnownFiles(parts.ledger) if id else None}
        about |= {"meta": require_meta(meta), "thread": require_thread(thread)}
        return land_text(parts.log_to_write, text, self._whose(customer), at=to_moment(at) or parts.clock(), **about)

    def put_lines(
        self,
        lines: Iterable[bytes | str],
        *,
        customer: str | None = None,
        id: str | None = None,
        id_prefix: str | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        collect: bool = False,
    ) -> "list[Landed]":
        """Each line is a chat message; one result for each that is not blank. Of failures, see `put`."""
        from headwater.flow.land import require_landed

        how: dict[str, Any] = {"id": id, "id_prefix": id_prefix, "at": at, "meta": meta, "thread": thread}
        landed = list(self.iter_put_lines(lines, customer=customer, **how))
        return landed if collect else require_landed(landed)

    def iter_put_lines(
        self,
        lines: Iterable[bytes | str | None],
        *,
        customer: str | None = None,
        id: str | None = None,
        id_prefix: str | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
    ) -> "Iterator[Landed]":
        """As `put_lines`, of lines that go on coming: a None between them publishes what waits. One result a line, as
        it is asked for; one that failed is a result."""
        from headwater.flow.land import land_lines

        about: dict[str, Any] = {
            "event_id": id,
            "id_prefix": id_prefix,
            "at": to_moment(at),
            "clock": self._parts.clock,
        }
        about |= {"meta": require_meta(meta), "thread": require_thread(thread)}
        return land_lines(self._parts.log_to_write, lines, self._whose(customer), **about)

    def _whose(self, customer: str | None) -> str:
        if named := customer or self.settings.text("put.customer"):
            return named
        raise InvalidRequest("Whose is it? Name a customer with --customer NAME, or one for all in put.customer.")

    def put_rows(
        self,
        rows: object,
        *,
        customer: str | None = None,
        map: Mapping[str, str] | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        dry_run: bool = False,
        encoding: str | None = None,
        delimiter: str | None = None,
        on_reject: "Callable[[Reject, Row], None] | None" = None,
        progress: Callable[[int, float | None], None] | None = None,
    ) -> "Imported":
        """Each row is a message, or a file that it names: of a DataFrame of pandas or Polars, a table of Arrow, dicts,
        or of CSV, JSON lines and Parquet by their paths (`-` is standard input).

        `map` says which column is the id, customer, at, text, file or thread where it is not called so; all others are
        the meta. Rows that are no good are counted in the answer, by their reasons, and `on_reject` hears each.
        """
        from headwater.flow.imports.columns import ColumnMap
        from headwater.flow.imports.import_rows import Importing, import_rows
        from headwater.flow.imports.row_source import open_sources, rows_of
        from headwater.flow.known_files import KnownFiles

        parts, columns = self._parts, ColumnMap.of(map)
        whose = customer or self.settings.text("put.customer") or None
        how: dict[str, Any] = {"customer": whose, "at": to_moment(at), "dry_run": dry_run, "clock": parts.clock}
        how |= {"meta": require_meta(meta), "thread": require_thread(thread)}
        how |= {"on_reject": on_reject, "progress": progress, "known": KnownFiles(parts.ledger)}
        paths = [rows] if isinstance(rows, str | Path) else rows
        if isinstance(paths, list | tuple) and paths and all(isinstance(each, str | Path) for each in paths):
            sources = open_sources(paths, encoding=encoding, delimiter=delimiter)
        else:
            sources = rows_of(rows)
        return import_rows(sources, Importing(parts.raw_store, parts.log_to_write, columns, **how))

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
            return search(parts.index, parts.embedder(book), query, **only, **models, limit=limit, embedded=embedded)

        return search_by_book(parts.book, ask)

    def table(self, name: str, *, all_models: bool = False, as_of: AsOf | None = None) -> TableReader:
        """What the active models of now made, or with `all_models` what every model made; `as_of` as it was then."""
        table = tables.find(name)
        if table is None:
            known = ", ".join(table.short_name for table in tables.TABLES)
            raise NotFound(f"There is no table {name}. These are: {known}.")
        hidden = frozenset[str]() if all_models else self._parts.book().hidden()
        return TableReader(self._parts, table, hidden, to_ref(as_of))

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
    ) -> "Ran":
        """Bring what is pending through the stages; with `once=False`, go on until `stop` is set.

        `listen` hears each line of logs/headwater.jsonl as it is written.
        """
        from headwater.upkeep.run import run

        return run(self._parts, once=once, report=report, stop=stop, listen=listen)

    @property
    def models(self) -> LakeModels:
        """Which models do which step: replay, compare, activate, retire."""
        return LakeModels(self._parts)

    @property
    def quarantine(self) -> LakeQuarantine:
        """What could not be processed: called, it is listed; retry, dismiss."""
        return LakeQuarantine(self._parts)

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

        parts = self._parts
        found = trace(parts.reader, parts.index, parts.raw_store, id, to_ref(as_of), customer).to_dict()
        return {**found, "labels": shown_labels(parts.ledger, found["object"]["id"])}

    def sql(self, query: str, *, timeout_seconds: float | None = None, as_of: AsOf | None = None) -> dict[str, Any]:
        """One statement that only reads, in a process with the limits of `sql.timeout_seconds` and `sql.memory_mb`.

        `as_of` counts for every table that it names; the answer then says which snapshots were read.
        """
        from headwater.upkeep.runs_table import dismissals_table, labels_table, runs_table

        parts = self._parts
        parts.queries.start()
        made = {"runs": runs_table, "dismissals": dismissals_table, "labels": labels_table}
        others = {name: table(parts.ledger) for name, table in made.items() if name in query.lower()}
        hidden, ref = parts.book().hidden(), to_ref(as_of)
        return parts.queries.run(query, hidden, others, timeout_seconds=timeout_seconds, as_of=ref)


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
