"""Corrected: what was made of an event goes before the event in whose place another one stands is derived.

Reads   bronze.events
Writes  every table of silver, the index, and the mark of the events that no longer count
Invariant: rows go before derive commits anything of the correction, so a kill in between goes through it once more, and
nothing is there twice, or of the wrong event, behind the position that derive commits. Embed and index rest meanwhile:
the one may have texts in hand that go, the other brings entries back by the same chunk ids.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater import faults, telemetry
from headwater.domain.groups import grouped
from headwater.domain.tables import EMBEDDINGS, EVENTS, METADATA, QUARANTINE, TEXT_TABLES
from headwater.errors import Conflict, Unavailable
from headwater.flow.corrections import CORRECTIONS
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import collect, iterate, read_table
from headwater.storage.tables.rewrite_files import change_rows, remove_rows
from headwater.storage.tables.writer import Rows, TableWriter

_AT_ONCE: Final = 500  # objects named in one condition
_BRONZE: Final = "bronze"  # whose rows of quarantine are lines that were refused, and stay
_ENTRIES_AT_ONCE: Final = 10_000
_LEASED: Final = "corrections.lease"  # a fact that is always empty


class IndexDown(Unavailable):
    """The index does not answer, so corrections wait, and what comes after them: search would show what is gone."""


@dataclass(frozen=True, slots=True)
class _Correction:
    seq: int
    event_id: str
    object_id: str


@dataclass(slots=True)
class Corrections:
    """What a run does about corrections. `rest` holds back who makes something of what derive made."""

    writer: TableWriter
    ledger: Ledger
    index: VectorIndex
    rest: Callable[[], AbstractContextManager[None]]
    settled: Callable[[int], None] = lambda _: None  # told of how many objects
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: dict[str, str] = field(default_factory=dict)  # by object, the event that was found to count

    def settle(self, begin: int, end: int) -> bool:
        """Take out what was made of events that those between correct; whether there was any such. Twice is once."""
        if not read_progress(self.writer.tables, EVENTS).raw.get(CORRECTIONS):
            return False
        found = _between(self.writer, begin, end)
        if not found:
            return False
        with self.rest():
            for some in grouped(found, lambda _: 1, most_bytes=_AT_ONCE, most_items=_AT_ONCE):
                self._settle(some)
        self.settled(len(found))
        return True

    @contextmanager
    def publishing(self, rows: Rows) -> Iterator[Rows]:
        """What was begun before a correction was settled, and is published now, beside the run: without what no longer
        counts. None is settled meanwhile."""
        with self._lock:
            yield _without(rows, self._counts)

    def _settle(self, some: Sequence[_Correction]) -> None:
        with self._lock:
            self._counts |= {one.object_id: one.event_id for one in some}
            gone = _made_of_others(some)
            self._forget_entries(gone)
            faults.point("corrected.unindexed")
            for table in (METADATA, *TEXT_TABLES, EMBEDDINGS):
                remove_rows(self.writer, table, gone)
            remove_rows(self.writer, QUARANTINE, gone & (F.col("step") != _BRONZE))
            faults.point("corrected.removed")
            change_rows(self.writer, EVENTS, self._losers(some), {"first_of_object": F.lit(False)})
            faults.point("corrected.marked")
        telemetry.note("correction.settled", objects=len(some))

    def _forget_entries(self, gone: Column) -> None:
        """While their vectors are there: who is killed here finds them again."""
        vectors = read_table(self.writer.spark, EMBEDDINGS)
        chunks = [row["chunk_id"] for row in iterate(vectors.where(gone).select("chunk_id"))]
        faults.point("corrected.found")
        try:
            for start in range(0, len(chunks), _ENTRIES_AT_ONCE):
                self._require_lease()  # the index knows none, and entries of the right event have the same ids
                self.index.delete(chunks[start : start + _ENTRIES_AT_ONCE])
            self._take_back_if_replaced()
        except Unavailable as error:
            raise IndexDown(str(error)) from error

    def _take_back_if_replaced(self) -> None:
        """Who slept between the two may have taken what another run brought: the next one brings all once more."""
        try:
            self._require_lease()
        except Conflict:
            self.index.set_position(0)
            raise

    def _require_lease(self) -> None:
        """Conflict where another run has it by now, as for every change of the ledger."""
        self.ledger.change_fact(_LEASED, lambda noted: noted or "")

    def _losers(self, some: Sequence[_Correction]) -> Column:
        """What was said before, which counts no more. What comes after is a correction that has yet to be settled."""
        until = {one.object_id: one.seq for one in some}
        there = F.col("object_id").isin(list(until)) & F.col("first_of_object")
        rows = collect(read_table(self.writer.spark, EVENTS).where(there).select("seq", "object_id"))
        losers = [row["seq"] for row in rows if row["seq"] < until[row["object_id"]]]
        return F.col("seq").isin(losers)


def _between(writer: TableWriter, begin: int, end: int) -> list[_Correction]:
    """Those that count, the last of each object."""
    there = F.col("seq").between(begin, end - 1) & F.col("corrects").isNotNull() & F.col("first_of_object")
    rows = collect(read_table(writer.spark, EVENTS).where(there).select("seq", "event_id", "object_id").orderBy("seq"))
    last = {row["object_id"]: _Correction(row["seq"], row["event_id"], row["object_id"]) for row in rows}
    return list(last.values())


def _made_of_others(some: Sequence[_Correction]) -> Column:
    """Rows about these objects that were not made of what counts now."""
    own = [f"{one.object_id}\0{one.event_id}" for one in some]
    about = F.col("object_id").isin([one.object_id for one in some])
    return about & ~F.concat("object_id", F.lit("\0"), "event_id").isin(own)


def _without(rows: Rows, counts: Mapping[str, str]) -> Rows:
    if not counts or not isinstance(rows, pa.Table):
        return rows
    named = zip(rows["object_id"].to_pylist(), rows["event_id"].to_pylist(), strict=True)
    return rows.filter(
        pa.array([counts.get(object_id, event_id) == event_id for object_id, event_id in named], pa.bool_())
    )
