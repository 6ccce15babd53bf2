"""The memo's share of maintenance: files become few, and free answers leave when they have served.

What was paid for is kept for ever. A free answer goes once it is older than `memo.free_hours` and its rows are
committed: its model has nothing left to do, or has gone on since. A model that stands still with work before it (a
replay that was stopped, an endpoint that is down) keeps its answers, however old. Needs no Spark; safe while workers
put and look.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.progress import Progress
from headwater.domain.steps import STEPS
from headwater.domain.tables import Table
from headwater.settings import Settings
from headwater.storage.memo.memo import open_memo
from headwater.storage.tables.metadata import Metadata, progress_at, progress_in
from headwater.storage.tables.snapshots import history_of

if TYPE_CHECKING:
    from headwater.storage.tables.catalog import Tables

_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class ShelfCare:
    """What is to be done to one shelf: files to be merged, and free answers to drop, of days before `drop_before`."""

    step: str
    fingerprint: str
    files: int
    pack: int
    drop: int
    drop_before: int


@dataclass(frozen=True, slots=True)
class MemoDone:
    files_before: int = 0
    files_after: int = 0
    dropped: int = 0


def plan_memo(catalog: "Tables", settings: Settings, book: ModelBook, *, now: datetime) -> tuple[ShelfCare, ...]:
    """Pure: lists the shelves, and reads how old their free answers are."""
    horizon = now - timedelta(hours=settings.number("memo.free_hours"))
    history, memo, cares = _History(catalog, horizon), open_memo(settings), []
    for size in memo.sizes():
        served = history.has_served(book.get(size.step, size.fingerprint))
        before = int(horizon.timestamp()) // _DAY_SECONDS if served else 0
        plan = memo.shelf(size.step, size.fingerprint).plan(drop_before=before)
        cares.append(ShelfCare(size.step, size.fingerprint, plan.files, plan.objects, plan.drop, before))
    return tuple(cares)


def pack_shelf(settings: Settings, step: str, fingerprint: str, drop_before: int) -> MemoDone:
    packed = open_memo(settings).shelf(step, fingerprint).pack(drop_before=drop_before)
    return MemoDone(packed.files_before, packed.files_after, packed.dropped)


class _History:
    """How far models had come at a moment, by the stamps of the tables' snapshots; each table is loaded once."""

    def __init__(self, catalog: "Tables", horizon: datetime) -> None:
        self._catalog = catalog
        self._horizon_ms = int(horizon.timestamp() * 1000)
        self._loaded: dict[str, Metadata] = {}

    def has_served(self, model: KnownModel | None) -> bool:
        """Whether the rows of what a model answered until then are committed, as far as there will be any."""
        if model is None or model.state in {State.PARTIAL, State.RETIRING}:
            return True
        step = STEPS[model.step]
        now, then = progress_in(self._load(step.table)), self._then(self._load(step.table))
        moved = [now.seq_of(model.position_in(s.name)) > then.seq_of(model.position_in(s.name)) for s in step.reads]
        left = [progress_in(self._load(s)).next_seq > now.seq_of(model.position_in(s.name)) for s in step.reads]
        return any(moved) or not any(left)

    def _then(self, history: Metadata) -> Progress:
        """At the horizon, or at the oldest snapshot that is left; as it is now where none tells."""
        snapshots = sorted(history["snapshots"], key=lambda snapshot: int(snapshot["timestamp-ms"]))
        before = [snapshot for snapshot in snapshots if snapshot["timestamp-ms"] <= self._horizon_ms]
        then = before[-1] if before else snapshots[0] if snapshots else None
        stamped = progress_at(history, then["snapshot-id"]) if then is not None else None
        return stamped or progress_in(history)

    def _load(self, table: Table) -> Metadata:
        if table.name not in self._loaded:
            self._loaded[table.name] = history_of(self._catalog.load_table(table.name))
        return self._loaded[table.name]
