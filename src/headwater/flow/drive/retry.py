"""Retry: what is quarantined is derived again by the very code of the live flow.

Reads   silver.quarantine, bronze.events
Writes  what derive and embed write
Rows that a table has already are left alone, so a retry that is killed half-way can simply be run again. What was down
for a while is tried again by itself, later and later, and not for ever. What was dismissed is not.

Tables are read, and rows taken out of quarantine, by the portion; models work by the round. Portions double, so that
however much is tried again a file is read and written anew a handful of times.
"""

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater.clock import Clock, to_text
from headwater.domain.groups import grouped
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.quarantine import (
    FINAL,
    FORBIDDEN,
    RETRY_ATTEMPTS_MAX,
    RETRY_DUE,
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    TRANSIENT,
    Retried,
)
from headwater.domain.steps import EMBED
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.flow.derive.child import WHOLE_OBJECT
from headwater.flow.derive.plan import only_by, plan_work
from headwater.flow.derive.stage import derive_again
from headwater.flow.derive.work import Work
from headwater.flow.drive.retry_schedule import note_set_aside_in
from headwater.flow.embed.stage import embed_again
from headwater.flow.spent import Spent, add_efforts
from headwater.storage.ledger.claims import KEYS_PER_QUERY
from headwater.storage.ledger.dismissals import QuarantineKey, find_dismissals, read_dismissals
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import collect, is_empty, iterate, read_table
from headwater.storage.tables.rewrite_files import remove_seqs
from headwater.storage.tables.writer import TableWriter

_PORTION_ROWS: Final = 20_000  # whose events are read at once, to begin with
_ROWS_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 256 << 20
_OBJECTS_AT_ONCE: Final = 200  # whose texts, all of them, are in the driver's memory
_NOTING: Final = threading.Lock()  # who looked first must not write last


class _Held(NamedTuple):
    """A row of quarantine: its number, the size of its object, and whether it is taken out when it was tried."""

    number: int
    size: int
    goes: bool


@dataclass(frozen=True, slots=True)
class Retrying:
    """Who tries again and with what. `model` does its step in place of the models that are kept; what these left in
    quarantine stays there, since nothing became of it for who reads their rows."""

    writer: TableWriter
    ledger: Ledger
    book: ModelBook
    clock: Clock
    model: KnownModel | None = None
    reload: str = ""
    hurried: bool = False  # in a run that others wait for

    def all_of(self, reason: str | None, spent: dict[str, Spent]) -> Retried:
        """Whatever can be tried again at all, for one reason or for all; who asks does not wait for a breaker."""
        chosen = ~F.col("reason").isin(*FINAL, FORBIDDEN)
        chosen = chosen & (F.col("reason") == reason) if reason else chosen
        chosen = chosen & (F.col("step") == self.model.step) if self.model else chosen
        return replace(self, reload=uuid.uuid4().hex)._portions(chosen, spent)

    def due(self, spent: dict[str, Spent]) -> Retried:
        """What was down for a while and has waited long enough."""
        return self._portions(_transient() & (_due_at() <= F.lit(self.clock())), spent)

    @property
    def _spark(self) -> SparkSession:
        return self.writer.spark

    def _portions(self, chosen: Column, spent: dict[str, Spent]) -> Retried:
        held = read_table(self._spark, QUARANTINE).where(chosen & settled(self.book))
        size = F.coalesce("pointer.size", F.lit(0)).alias("size")
        # In the order in which they came, so that a round finds its objects' rows near one another.
        rows = iterate(held.select("seq", size, *QuarantineKey._fields).orderBy("seq"))
        waiting, total, most = self._not_dismissed(rows), Retried(0, 0, 0), _PORTION_ROWS
        while portion := list(islice(waiting, most)):
            total += self._portion(portion, spent)
            most *= 2
        return total

    def _not_dismissed(self, rows: Iterator[Row]) -> Iterator[_Held]:
        """Of each its number, the size of its object, and whether it goes when it was tried."""
        while some := list(islice(rows, KEYS_PER_QUERY)):
            let_go = find_dismissals(self.ledger, (QuarantineKey.of(row) for row in some))
            waiting = (row for row in some if QuarantineKey.of(row) not in let_go)
            yield from (_Held(row["seq"], int(row["size"]), self._is_tried_by_its_own(row)) for row in waiting)

    def _is_tried_by_its_own(self, row: Row) -> bool:
        """Or by those that came after it; a model that is named speaks for itself alone."""
        return self.model is None or row["fingerprint"] == self.model.fingerprint

    def _portion(self, rows: Sequence[_Held], spent: dict[str, Spent]) -> Retried:
        numbers = [row.number for row in rows]
        total = Retried(0, 0, 0)
        with self._read(numbers) as (held, pending):
            for some in grouped(rows, lambda row: row.size, most_bytes=_BYTES_AT_ONCE, most_items=_ROWS_AT_ONCE):
                within = F.col("held").between(some[0].number, some[-1].number)
                failed = self._derive(pending.where(within), spent)
                failed += self._embed(held.where(within & (F.col("step") == EMBED.name)), spent)
                total += Retried(len(some), max(0, len(some) - failed), failed)
            remove_seqs(self.writer, QUARANTINE, [row.number for row in rows if row.goes])
        return total

    @contextmanager
    def _read(self, numbers: Sequence[int]) -> Iterator[tuple[DataFrame, DataFrame]]:
        """The rows of quarantine that have these numbers, as `held`, and the events of those to derive again: each read
        once, and kept in the order of the numbers on the workers' disks."""
        given = self._spark.createDataFrame(pa.table({"seq": pa.array(numbers, pa.int64())}))
        table = read_table(self._spark, QUARANTINE).where(F.col("seq").between(numbers[0], numbers[-1]))
        columns = ("event_id", "object_id", "step", "fingerprint", "attempts", "event_seq", "occurred_at")
        found = table.join(given, "seq", "left_semi").select(F.col("seq").alias("held"), *columns)
        held = self._kept(found, numbers)
        again = pending_again(self.writer, held.where(F.col("step") != EMBED.name), self._work())
        pending = self._kept(again, numbers)
        try:
            yield held, pending
        finally:
            pending.unpersist()
            held.unpersist()

    def _kept(self, rows: DataFrame, numbers: Sequence[int]) -> DataFrame:
        """In as many parts as there are tasks. Where each begins is known: Spark would read all to find that out."""
        begins = ", ".join(f"{numbers[len(numbers) * part // self._tasks]}L" for part in range(self._tasks))
        part = F.expr(f"size(filter(array({begins}), begin -> held >= begin))")
        ordered = rows.repartition(self._tasks, part).sortWithinPartitions("held")
        return ordered.persist(StorageLevel.DISK_ONLY)

    def _derive(self, pending: DataFrame, spent: dict[str, Spent]) -> int:
        if self.model is not None:
            # Several models may have failed on an object, and this one is to try it once.
            tag = F.lit(f"{self.model.step}/{self.model.fingerprint}")
            most = {"held": F.min("held"), "attempts": F.max("attempts")}
            # By its object too: an event's id is its customer's, and another one may have the same.
            once = pending.groupBy("event_id", "object_id").agg(*(value.alias(name) for name, value in most.items()))
            pending = pending.drop("attempts", "only").join(once, ["event_id", "object_id", "held"])
            pending = pending.withColumn("only", tag)
        if is_empty(pending):
            return 0
        work = self._work()
        work = work.hurried() if self.hurried else work
        expect = note_set_aside_in(self.ledger, self.clock)
        derived = derive_again(self.writer, pending, work, self._tasks, expect)
        add_efforts(spent, derived.efforts)
        return derived.quarantined

    def _work(self) -> Work:
        book = only_by(self.book, self.model) if self.model else self.book
        return plan_work(self.writer.settings, book, now=self.clock(), share=self._tasks, reload=self.reload)

    @property
    def _tasks(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def _embed(self, held: DataFrame, spent: dict[str, Spent]) -> int:
        if is_empty(held):
            return 0
        embedders = [self.model] if self.model else list(self.book.kept(EMBED.name))
        objects = collect(held.select("occurred_at", "object_id").distinct().orderBy("occurred_at"))
        quarantined = 0
        for start in range(0, len(objects), _OBJECTS_AT_ONCE):
            part = {row["object_id"]: row["occurred_at"] for row in objects[start : start + _OBJECTS_AT_ONCE]}
            made = embed_again(self.writer, embedders, part, self.clock, self.reload)
            add_efforts(spent, made.efforts)
            quarantined += made.quarantined
        return quarantined


def pending_again(writer: TableWriter, held: DataFrame, work: Work) -> DataFrame:
    """The events of rows of quarantine, whose numbers are called `held`, as `derive_again` takes them.

    A fault of the whole object was noted under its first step, so all its steps are tried again. A model that is no
    longer kept is succeeded by those that are.
    """
    tag = F.concat_ws("/", "step", "fingerprint")
    known = F.when(tag.isin(list(work.planned())), tag).otherwise(F.col("step"))
    only = F.when(F.col("step") != WHOLE_OBJECT, known).alias("only")
    # Of a table that was set back, the same event may have come again with another number.
    numbered = read_progress(writer.tables, EVENTS).generation == 0
    events = read_table(writer.spark, EVENTS).where(_near(held, numbered=numbered))
    return events.join(held.select("held", "event_id", "object_id", "attempts", only), ["event_id", "object_id"])


def note_due(spark: SparkSession, ledger: Ledger) -> None:
    """Write down when the next one is due, so that a run that has nothing else to do knows without starting Spark.

    Reads four columns of what may mend itself: for when rows went, once for all of them, not for when some came.
    """
    with _NOTING:
        before = ledger.fact(RETRY_DUE) or ""
        held = read_table(spark, QUARANTINE).where(_transient() & settled(read_book(ledger)))
        held = _without(held, [key for key, _ in read_dismissals(ledger, TRANSIENT)])
        (row,) = collect(held.agg(F.min(_due_at()).cast("long").alias("due")))
        due = to_text(datetime.fromtimestamp(row["due"], UTC)) if row["due"] is not None else ""
        # Who has set something aside meanwhile was not seen by this look, and has said so.
        ledger.change_fact(RETRY_DUE, lambda found: due if (found or "") == before else _earlier(found or "", due))


def _earlier(one: str, other: str) -> str:
    return min(one, other) if one and other else one or other


def _without(held: DataFrame, keys: Sequence[QuarantineKey]) -> DataFrame:
    if not keys:
        return held
    schema = pa.schema([(name, pa.string()) for name in QuarantineKey._fields])
    given = held.sparkSession.createDataFrame(pa.Table.from_pylist([key._asdict() for key in keys], schema))
    same = [F.coalesce(held[name], F.lit("")) == given[name] for name in QuarantineKey._fields if name != "customer"]
    whose = given["customer"].isNull() | (F.coalesce(held["customer"], F.lit("")) == given["customer"])
    return held.join(given, [*same, whose], "left_anti")


def _near(held: DataFrame, *, numbered: bool) -> Column:
    """Where in bronze.events these rows' events are, by bounds that files are left out by: their times and, where they
    stand, their numbers, as far as all rows know them."""
    (bounds,) = collect(
        held.agg(
            F.min("event_seq").alias("first"),
            F.max("event_seq").alias("last"),
            F.count_if(F.col("event_seq").isNull()).alias("unknown"),
            F.min("occurred_at").alias("low"),
            F.max("occurred_at").alias("high"),
        )
    )
    near = F.lit(True)
    if bounds["low"] is not None:
        near = near & F.col("occurred_at").between(bounds["low"], bounds["high"])
    if numbered and bounds["first"] is not None and not bounds["unknown"]:
        near = near & F.col("seq").between(bounds["first"], bounds["last"])
    return near


def settled(book: ModelBook) -> Column:
    """What a model left that is yet to catch up waits for its replay: no other could do it in its place."""
    building = [known.fingerprint for known in book.models if known.state is State.BUILDING]
    return ~F.coalesce(F.col("fingerprint"), F.lit("")).isin(building)


def _transient() -> Column:
    return F.col("reason").isin(*TRANSIENT) & (F.col("attempts") < RETRY_ATTEMPTS_MAX)


def _due_at() -> Column:
    """Twice as late after each attempt."""
    wait = F.least(F.lit(RETRY_SECONDS_MAX), F.lit(RETRY_SECONDS_MIN) * F.pow(F.lit(2), F.col("attempts") - 1))
    return (F.col("quarantined_at").cast("double") + wait).cast("timestamp")
