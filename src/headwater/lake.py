"""A lake, as Python sees it. Each method mirrors a command and calls one function; nothing is decided here."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headwater import settings
from headwater.components import Components
from headwater.domain import tables
from headwater.domain.quarantine import Retried
from headwater.domain.ref import AsOf, to_ref
from headwater.errors import Conflict, NotFound, Unavailable
from headwater.settings import Settings, Value
from headwater.table_reader import TableReader
from headwater.upkeep import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.flow.drive.pending import Pending
    from headwater.flow.land import Landed
    from headwater.flow.search import SearchAnswer
    from headwater.models import Models
    from headwater.upkeep.backup.backup import BackupPlan
    from headwater.upkeep.maintenance.maintain import MaintenancePlan, TableDone
    from headwater.upkeep.quarantine import DismissalPlan
    from headwater.upkeep.rescan import RescanPlan


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did, by stage and by model; `started` is False where nothing was pending and no Spark was started."""

    started: bool
    done: dict[str, int]
    models: dict[str, dict[str, Any]] = field(default_factory=dict)


class Lake:
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
        customer: str,
        id: str | None = None,
        at: datetime | None = None,
        follow_links: bool = False,
    ) -> "Iterator[Landed]":
        """Store files, directories or globs and publish their events; one result for each file, as it is done.

        A link that is named is followed; one in a directory, or that a glob finds, only with `follow_links`.
        """
        from headwater.flow.land import land_many

        parts = self._parts
        about: dict[str, Any] = {"event_id": id, "at": at, "follow_links": follow_links, "clock": parts.clock}
        return land_many(parts.raw_store, parts.log_to_write, patterns, customer, **about)

    def put_text(self, text: str, *, customer: str, id: str | None = None, at: datetime | None = None) -> "Landed":
        """A chat line; it needs no raw object."""
        from headwater.flow.land import land_text

        return land_text(self._parts.log_to_write, text, customer, event_id=id, at=at or self._parts.clock())

    def put_lines(
        self,
        lines: Iterable[bytes | str | None],
        *,
        customer: str,
        id: str | None = None,
        id_prefix: str | None = None,
        at: datetime | None = None,
    ) -> "Iterator[Landed]":
        """Each line is a chat message; a None between them publishes what waits. One result a line, as it is done."""
        from headwater.flow.land import land_lines

        about: dict[str, Any] = {"event_id": id, "id_prefix": id_prefix, "at": at, "clock": self._parts.clock}
        return land_lines(self._parts.log_to_write, lines, customer, **about)

    def get(self, id: str) -> Iterator[bytes]:
        """The raw bytes behind an id or a path, in pieces, verified against their checksum."""
        from headwater.upkeep.lineage import fetch_object

        return fetch_object(self._parts.reader, self._parts.raw_store, id)

    def search(
        self,
        query: str,
        *,
        customer: str | None = None,
        modality: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 10,
    ) -> "SearchAnswer":
        from headwater.flow.search import search
        from headwater.storage.tables.read_progress import read_progress

        parts = self._parts
        only: dict[str, Any] = {"customer": customer, "modality": modality, "since": since, "until": until}
        while True:
            book = parts.book()
            embedded = read_progress(self.settings, tables.EMBEDDINGS).next_seq
            models: dict[str, Any] = {"hidden": book.hidden(), "pictures": parts.looker(book)}
            try:
                return search(
                    parts.index, parts.embedder(book), query, **only, **models, limit=limit, embedded=embedded
                )
            except (Conflict, Unavailable):
                # A model that was flipped away from and retired since the book was read: ask by the new one.
                if parts.book() == book:
                    raise

    def table(self, name: str, *, all_models: bool = False, as_of: AsOf | None = None) -> TableReader:
        """What the active models of now made, or with `all_models` what every model made; `as_of` as it was then."""
        table = tables.find(name)
        if table is None:
            known = ", ".join(table.short_name for table in tables.TABLES)
            raise NotFound(f"There is no table {name}. These are: {known}.")
        hidden = frozenset[str]() if all_models else self._parts.book().hidden()
        return TableReader(self._parts, table, hidden, to_ref(as_of))

    def pending(self) -> "Pending":
        """What each stage has yet to do; starts no JVM."""
        from headwater.flow.drive.pending import find_pending, has_stragglers, is_due
        from headwater.flow.log.identity import find_unread
        from headwater.storage.tables.read_progress import read_progress

        parts = self._parts
        return find_pending(
            lambda table: read_progress(self.settings, table),
            find_unread(parts.log, parts.ledger, read_progress(self.settings, tables.EVENTS).offsets),
            self._index_position(),
            retry_due=is_due(parts.ledger, parts.clock()) or has_stragglers(parts.ledger),
            steps_kept=parts.book().steps_kept(),
        )

    def _index_position(self) -> int:
        """Of an index that is down nothing is known, so it has everything yet to get; the other stages go on."""
        try:
            return self._parts.index.position()
        except Unavailable:
            return 0

    def run(
        self,
        *,
        once: bool = True,
        report: Callable[[str, int], None] | None = None,
        stop: threading.Event | None = None,
        listen: Callable[[str], None] | None = None,
    ) -> Ran:
        """Bring what is pending through the stages; with `once=False`, go on until `stop` is set.

        `listen` hears each line of logs/headwater.jsonl as it is written.
        """
        stop = stop or threading.Event()
        with work.alone(self._parts, "run", stop) as held:
            if once and not self.pending():
                return Ran(False, {})
            with work.recorded(self._parts, "run", listen) as entry:
                run = work.new_run(self._parts, held, entry, report, stop)
                done = run.once() if once else run.until_stopped()
                return Ran(True, done, entry.models)

    def plan_maintenance(self) -> "MaintenancePlan":
        """What `maintain` would do; starts no JVM."""
        from headwater.upkeep.maintenance.maintain import Maintain

        return Maintain(self._parts).plan()

    def maintain(self, report: Callable[[str], None] | None = None) -> "list[TableDone]":
        """Compact small files, expire old snapshots, organise the index; safe beside a run."""
        from headwater.upkeep.maintenance.maintain import maintain

        return maintain(self._parts, report or _silent)

    def quarantine(self, reason: str | None = None) -> dict[str, Any]:
        """What is set aside, by reason; and apart from it what was dismissed. Starts no JVM."""
        from headwater.upkeep.quarantine import list_quarantine

        return list_quarantine(self._parts.reader, self._parts.ledger, reason)

    def plan_dismissal(self, *ids: str, reason: str | None = None, undo: bool = False) -> "DismissalPlan":
        """The rows of these events or objects, or of a reason, that `dismiss` would let go; starts no JVM."""
        from headwater.upkeep.quarantine import plan_dismissal

        return plan_dismissal(self._parts.reader, self._parts.ledger, ids, reason, undo=undo)

    def dismiss(
        self, *ids: str, reason: str | None = None, because: str = "", by: str = "", undo: bool = False
    ) -> "DismissalPlan":
        """Let go of rows that nobody is going to mend, saying why and who says so; or with `undo` take that back."""
        from headwater.upkeep.quarantine import dismiss_rows

        return dismiss_rows(self._parts, ids, reason, because=because, by=by, undo=undo)

    def retry(
        self,
        reason: str | None = None,
        *,
        model: str | None = None,
        report: Callable[[str, int], None] | None = None,
    ) -> Retried:
        """Derive again what is quarantined, by another model if one is named; then carry what came of it on."""
        from headwater.upkeep.quarantine import check_reason, is_any_waiting

        reason, parts = check_reason(reason) if reason else None, self._parts
        if not is_any_waiting(parts.reader, parts.ledger, reason):
            return Retried(0, 0, 0)
        with work.alone(parts, "retry") as held, work.recorded(parts, "retry") as entry:
            retried = work.new_run(parts, held, entry, report).retry(reason, model)
        self.run(once=True, report=report)
        return retried

    @property
    def models(self) -> "Models":
        """Which models do which step: replay, compare, activate, retire."""
        from headwater.models import Models

        return Models(self._parts)

    def plan_rescan(self) -> "RescanPlan":
        """Raw objects that the tables do not know; starts no JVM."""
        from headwater.upkeep.rescan import Rescan

        return Rescan(self._parts).plan()

    def rescan(self, plan: "RescanPlan | None" = None) -> int:
        """Announce them again; returns how many."""
        from headwater.upkeep.rescan import rescan

        return rescan(self._parts, plan)

    def plan_backup(self, file: str | Path) -> "BackupPlan":
        """What `backup` would write; starts no JVM."""
        from headwater.upkeep.backup.backup import Backup

        return Backup(self._parts, Path(file)).plan()

    def backup(self, file: str | Path) -> dict[str, Any]:
        """Catalog and ledger in one file; safe beside a run. Starts no JVM."""
        from headwater.upkeep.backup.backup import back_up

        return back_up(self._parts, Path(file))

    def status(self) -> dict[str, Any]:
        from headwater.upkeep.health import status

        parts = self._parts
        return status(parts.reader, parts.log, parts.index, parts.ledger)

    def metrics(self) -> str:
        """The same numbers as OpenMetrics text; starts no JVM."""
        from headwater.upkeep.metrics import metrics
        from headwater.upkeep.quarantine import count_reasons

        parts = self._parts
        reasons = count_reasons(parts.reader, parts.ledger)
        return metrics(self.status(), self.pending(), reasons, parts.ledger, now=parts.clock())

    def trace(self, id: str, *, as_of: AsOf | None = None) -> dict[str, Any]:
        """`as_of` a time or a tag of all tables: what the tables told of it then."""
        from headwater.upkeep.lineage import trace

        parts = self._parts
        return trace(parts.reader, parts.index, parts.raw_store, id, to_ref(as_of)).to_dict()

    def sql(self, query: str, *, timeout_seconds: float | None = None, as_of: AsOf | None = None) -> dict[str, Any]:
        """One statement that only reads, in a process with the limits of `sql.timeout_seconds` and `sql.memory_mb`.

        `as_of` counts for every table that it names; the answer then says which snapshots were read.
        """
        from headwater.upkeep.runs_table import dismissals_table, runs_table

        parts = self._parts
        parts.queries.start()
        made = {"runs": runs_table, "dismissals": dismissals_table}
        others = {name: table(parts.ledger) for name, table in made.items() if name in query.lower()}
        hidden, ref = parts.book().hidden(), to_ref(as_of)
        return parts.queries.run(query, hidden, others, timeout_seconds=timeout_seconds, as_of=ref)


def open(directory: str | Path, options: dict[str, Value] | None = None) -> Lake:
    """Open a lake; raises NotFound where there is none, Conflict where its format is not this program's."""
    from headwater.upkeep.format import check_format

    components = Components(settings.load(Path(directory), options))
    check_format(components.ledger)
    return Lake(components)


def init(directory: str | Path) -> Lake:
    """Make a lake, or open the one that is there; starts no JVM. Conflict where one was that has lost a part."""
    from headwater.upkeep.init import make_lake, write_settings

    path = Path(directory)
    write_settings(path)
    make_lake(Components(settings.load(path)))
    return open(directory)


def _silent(*_: object) -> None:
    pass
