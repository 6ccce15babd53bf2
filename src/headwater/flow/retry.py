"""Retry: what is quarantined is derived again by the very code of the live flow.

Reads   silver.quarantine
Writes  what derive and embed write
Rows that a table has already are left alone, so a retry that is killed half-way can simply be run again. What was down
for a while is tried again by itself, later and later, and not for ever.
"""

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.clock import Clock, to_text
from headwater.domain.groups import grouped
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.quarantine import (
    FINAL,
    RETRY_ATTEMPTS_MAX,
    RETRY_DUE,
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    TRANSIENT,
    Retried,
)
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.flow.derive.plan import only_by, plan_work
from headwater.flow.derive.stage import derive_again
from headwater.flow.embed.stage import embed_again
from headwater.flow.spent import Spent, add_efforts
from headwater.storage.ledger import Ledger
from headwater.storage.model_book import read_book
from headwater.storage.rewrite import remove_rows
from headwater.storage.table_writer import TableWriter

_ROWS_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 256 << 20
_OBJECTS_AT_ONCE: Final = 200  # whose texts, all of them, are in the driver's memory
_NOTING: Final = threading.Lock()  # who looked first must not write last


@dataclass(frozen=True, slots=True)
class Retrying:
    """Who tries again and with what. `model` does its step in place of the models that are kept."""

    writer: TableWriter
    book: ModelBook
    clock: Clock
    model: KnownModel | None = None
    afresh: str = ""

    def all_of(self, reason: str | None, spent: dict[str, Spent]) -> Retried:
        """Whatever can be tried again at all, for one reason or for all; who asks does not wait for a breaker."""
        chosen = ~F.col("reason").isin(*FINAL)
        chosen = chosen & (F.col("reason") == reason) if reason else chosen
        chosen = chosen & (F.col("step") == self.model.step) if self.model else chosen
        return replace(self, afresh=uuid.uuid4().hex)._rounds(chosen, spent)

    def due(self, spent: dict[str, Spent]) -> Retried:
        """What was down for a while and has waited long enough."""
        return self._rounds(_transient() & (_due_at() <= F.lit(self.clock())), spent)

    @property
    def _spark(self) -> SparkSession:
        return self.writer.spark

    def _rounds(self, chosen: Column, spent: dict[str, Spent]) -> Retried:
        held = self._spark.table(f"lake.{QUARANTINE.name}").where(chosen & _settled(self.book))
        size = F.coalesce("pointer.size", F.lit(0)).alias("size")
        total = Retried(0, 0, 0)
        # In the order of time, so that a round finds its objects' rows near one another; and not all at once.
        rows = held.select("seq", size).orderBy("occurred_at", "seq").toLocalIterator()
        for some in grouped(rows, lambda row: int(row["size"]), most_bytes=_BYTES_AT_ONCE, most_items=_ROWS_AT_ONCE):
            total += self._round([row["seq"] for row in some], spent)
        return total

    def _round(self, numbers: Sequence[int], spent: dict[str, Spent]) -> Retried:
        held = self._spark.table(f"lake.{QUARANTINE.name}").where(F.col("seq").isin(list(numbers))).persist()
        try:
            failed = self._derive(held.where(F.col("step") != "embed"), spent)
            failed += self._embed(held.where(F.col("step") == "embed"), spent)
            remove_rows(self.writer, QUARANTINE, F.col("seq").isin(list(numbers)))
        finally:
            held.unpersist()
        return Retried(len(numbers), max(0, len(numbers) - failed), failed)

    def _derive(self, held: DataFrame, spent: dict[str, Spent]) -> int:
        if held.isEmpty():
            return 0
        book = only_by(self.book, self.model) if self.model else self.book
        tasks = self._spark.sparkContext.defaultParallelism
        work = plan_work(self.writer.settings, book, now=self.clock(), share=tasks, afresh=self.afresh)
        tag = F.concat_ws("/", "step", "fingerprint")
        # A fault of the whole object was noted under its first step, so all its steps are tried again. A model that is
        # no longer kept is succeeded by those that are.
        known = F.when(tag.isin(list(work.planned())), tag).otherwise(F.col("step"))
        only = F.when(F.col("step") != "probe", known).alias("only")
        wanted = held.select("event_id", "attempts", only)
        pending = self._events_of(held).join(F.broadcast(wanted), "event_id")
        derived = derive_again(self.writer, pending, work, tasks)
        add_efforts(spent, derived.efforts)
        return derived.quarantined

    def _events_of(self, held: DataFrame) -> DataFrame:
        """By where they stand, as rows that were set aside say; for those that do not, all of their time."""
        events, numbers = self._spark.table(f"lake.{EVENTS.name}"), held.select("event_seq", "occurred_at").toArrow()
        known = numbers["event_seq"].drop_null().to_pylist()
        found = events.where(F.col("seq").isin(known))
        if len(known) == len(numbers):
            return found
        low, high = pc.min_max(numbers["occurred_at"]).as_py().values()
        return found if low is None else events.where(F.col("occurred_at").between(low, high))

    def _embed(self, held: DataFrame, spent: dict[str, Spent]) -> int:
        if held.isEmpty():
            return 0
        embedders = [self.model] if self.model else list(self.book.kept("embed"))
        objects = held.select("occurred_at", "object_id").distinct().orderBy("occurred_at").collect()
        quarantined = 0
        for start in range(0, len(objects), _OBJECTS_AT_ONCE):
            part = {row["object_id"]: row["occurred_at"] for row in objects[start : start + _OBJECTS_AT_ONCE]}
            made = embed_again(self.writer, embedders, part, self.clock, self.afresh)
            add_efforts(spent, made.efforts)
            quarantined += made.quarantined
        return quarantined


def expect_due(ledger: Ledger, now: datetime) -> None:
    """Something was set aside that may mend itself: it is due after the shortest wait, unless something is before."""
    soon = to_text(now + timedelta(seconds=RETRY_SECONDS_MIN))
    ledger.change_fact(RETRY_DUE, lambda found: min(found, soon) if found else soon)


def note_due(spark: SparkSession, ledger: Ledger) -> None:
    """Write down when the next one is due, so that a run that has nothing else to do knows without starting Spark.

    Reads all of quarantine: for when rows went, not for when some came.
    """
    with _NOTING:
        held = spark.table(f"lake.{QUARANTINE.name}").where(_transient() & _settled(read_book(ledger)))
        (row,) = held.agg(F.min(_due_at()).cast("long").alias("due")).collect()
        due = to_text(datetime.fromtimestamp(row["due"], UTC)) if row["due"] is not None else ""
        ledger.set_fact(RETRY_DUE, due)


def _settled(book: ModelBook) -> Column:
    """What a model left that is yet to catch up waits for its replay: no other could do it in its place."""
    building = [known.fingerprint for known in book.models if known.state is State.BUILDING]
    return ~F.coalesce(F.col("fingerprint"), F.lit("")).isin(building)


def _transient() -> Column:
    return F.col("reason").isin(*TRANSIENT) & (F.col("attempts") < RETRY_ATTEMPTS_MAX)


def _due_at() -> Column:
    """Twice as late after each attempt."""
    wait = F.least(F.lit(RETRY_SECONDS_MAX), F.lit(RETRY_SECONDS_MIN) * F.pow(F.lit(2), F.col("attempts") - 1))
    return (F.col("quarantined_at").cast("double") + wait).cast("timestamp")
