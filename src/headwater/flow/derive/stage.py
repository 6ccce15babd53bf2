"""Derive: what models make of each object.

Reads   bronze.events, the raw store
Writes  silver.quarantine, silver.metadata, silver.transcripts, silver.captions, silver.messages, and silver.embeddings
        where a model for pictures is kept
Key     object × step × model
Invariant: pointers travel, and the worker that needs bytes fetches them; a result is memoised before any table is
committed; every table remembers by itself how far into bronze.events it has come. Live, retry and replay differ only
in the set of objects that they pass in; a batch that is large goes from table to table in Spark's tasks, and one that
is small meets in the driver, by the same steps.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headwater import faults
from headwater.domain.modality import Modality
from headwater.domain.model_book import ModelBook
from headwater.domain.progress import Progress
from headwater.domain.quarantine import SLOW, TRANSIENT
from headwater.domain.steps import STEPS, derived_tables
from headwater.domain.tables import EVENTS, QUARANTINE, Table
from headwater.flow import rows as batch_rows
from headwater.flow.derive.batch import INPUT, next_batch
from headwater.flow.derive.child import WHOLE_OBJECT
from headwater.flow.derive.corrected import Corrections
from headwater.flow.derive.outcome import SCHEMA, TABLES
from headwater.flow.derive.work import Work
from headwater.flow.derive.worker import derive_batches
from headwater.flow.models.spending import OVER_BUDGET
from headwater.flow.partitions import (
    balanced_partitions,
    map_partitions,
    partitions_in_order,
    persisted_on_disk,
    picklable_errors,
    repartition_balanced,
)
from headwater.flow.rows import BatchLimit
from headwater.flow.runner import Committed
from headwater.flow.spent import Spent, rows_by_tag, spent_by_tag
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import read_table, to_arrow
from headwater.storage.tables.writer import Rows, TableWriter


@dataclass(frozen=True, slots=True)
class Derived:
    """What a batch came to, by table, and what each model had to do for it, by tag."""

    events: int
    rows: Mapping[str, int]
    efforts: Mapping[str, Spent] = field(default_factory=dict)
    passing: int = 0  # of what was set aside, how many may mend themselves
    slow: int = 0  # and how many the batch did not wait for
    over: bool = False  # whether it ended where the money did
    bytes: int = 0  # of what was derived, where the driver had it in hand

    @property
    def quarantined(self) -> int:
        return self.rows.get(QUARANTINE.name, 0)

    def to_committed(self, labels: Mapping[str, str]) -> Committed:
        return Committed(self.events, self.quarantined, self.efforts, labels, {"tables": dict(self.rows)})


# Rows of an outcome that belong to a table, on their way into it; how many it took.
PublishRows = Callable[[Table, Rows], int]
# Told how many rows may mend themselves, and how many were too slow, before they are set aside.
OnSetAside = Callable[[int, int], None]


def derive_next(
    writer: TableWriter,
    work: Work,
    limit: BatchLimit,
    workers: int,
    on_set_aside: OnSetAside,
    corrections: Corrections,
) -> Derived | None:
    """One batch of what is pending, in the order of arrival; None when there is nothing. What was made of events that
    others of the batch correct is gone before.

    A model that is kept and behind, because the catalog was restored from before it was brought in, comes first: else
    nobody would do its step from here on.
    """
    planned = work.planned()
    moved = derived_tables({step.name for step in planned.values()})
    progress = {table.name: read_progress(writer.tables, table) for table in (QUARANTINE, *moved)}
    reached = {name: table.seq_of(EVENTS.name) for name, table in progress.items()}
    live = {tag for tag, step in planned.items() if progress[step.table].seq_of(step.position) >= reached[step.table]}
    for tag in planned.keys() - live:
        made = replay_next(writer, work, tag, limit, workers, reached[planned[tag].table], on_set_aside)
        if made is not None:
            return made
    begin, until = _begin(progress)
    batch = next_batch(writer, begin, limit, until)
    if batch is not None and corrections.settle(begin, batch.end):
        batch = next_batch(writer, begin, limit, until)
    if batch is None:
        return None

    def publish_live(table: Table, rows: Rows) -> int:
        if table.name not in reached:
            return 0
        unseen = batch_rows.select(batch_rows.at_least(rows, "event_seq", reached[table.name]), table.columns)
        if reached[table.name] > begin and (table is QUARANTINE or until is not None):
            # What went well before may fail now, or the other way round, and must not be gone from everywhere.
            seen = batch_rows.below(rows, "event_seq", reached[table.name])
            unseen = batch_rows.together(unseen, _missing(writer, table, seen, of_any_time=batch.repeats))
        if table is QUARANTINE and until is None and batch_rows.are_none(unseen):
            return 0  # its position only tells what it has already, so it may lag behind
        if batch.repeats:
            unseen = _missing(writer, table, unseen, of_any_time=True)
        names = {planned[tag].position for tag in live if planned[tag].table == table.name} | {EVENTS.name}
        position = dict.fromkeys(names, max(batch.end, reached[table.name]))
        return writer.publish(table, unseen, position, since=progress[table.name], stage="derive")

    outcome = _derive(writer, batch.pending, work.only(live), workers, publish_live, on_set_aside)
    return Derived(batch.events, *outcome, bytes=_bytes_of(batch.pending))


def _bytes_of(pending: Rows) -> int:
    if not isinstance(pending, pa.Table):
        return 0
    return int(pc.sum(pending["pointer"].combine_chunks().field("size")).as_py() or 0)


def is_cut_short(writer: TableWriter, book: ModelBook) -> bool:
    """Whether a run was killed between the commits of a batch, so that some tables are ahead of others."""
    progress = {
        table.name: read_progress(writer.tables, table) for table in (QUARANTINE, *derived_tables(book.steps_kept()))
    }
    return max(table.seq_of(EVENTS.name) for table in progress.values()) > _begin(progress)[0]


def replay_next(
    writer: TableWriter, work: Work, tag: str, limit: BatchLimit, workers: int, until: int, on_set_aside: OnSetAside
) -> Derived | None:
    """One batch for a model that is behind, up to where its step's others are or to `until`; None when it is there.

    What it has already, from a retry or from a replay that was killed, is left alone. Where `work` has a purse, as many
    workers as it is for take the objects in turn, and the model has come as far as the first that could not be paid.
    """
    step = work.planned()[tag]
    table = next(table for table in TABLES if table.name == step.table)
    progress = read_progress(writer.tables, table)
    reached = read_progress(writer.tables, STEPS[step.name].frontier).seq_of(EVENTS.name)
    batch = next_batch(writer, progress.seq_of(step.position), limit, until=min(until, reached))
    if batch is None:
        return None
    modalities = [modality for modality, steps in work.steps.items() if tag in {step.tag for step in steps}]
    pending = batch_rows.among(batch.pending, "modality", modalities)
    begin, end = progress.seq_of(step.position), batch.end
    held = held_objects(writer.spark, begin, end, batch_rows.bounds(pending, "occurred_at"))
    pending = batch_rows.without(pending, "object_id", held.select("object_id"))

    def only_paid(rows: Rows) -> Rows:
        nonlocal end
        end = min(end, _first_unpaid(rows, end))
        return batch_rows.below(rows, "event_seq", end) if end < batch.end else rows

    def publish_missing(target: Table, rows: Rows) -> int:
        position = {step.position: end} if target is table else {}
        if position and STEPS[step.name].optional:  # nobody else moves it on before a first model is complete
            position[EVENTS.name] = max(end, progress.seq_of(EVENTS.name))
        if target is not table or batch.repeats or progress.aside.get(tag):
            # By their own time once all that was rolled back is there again: each batch would read all of the table.
            rows = _missing(writer, target, rows, of_any_time=read_progress(writer.tables, EVENTS).repeats_without_end)
        since = progress if target is table else None
        return writer.publish(target, batch_rows.select(rows, target.columns), position, since=since, stage="derive")

    made = _derive(writer, pending, work.only({tag}), workers, publish_missing, on_set_aside, only_paid)
    return Derived(end - begin, *made, over=end < batch.end)


def held_objects(spark: SparkSession, first: int, end: int, times: tuple[datetime, datetime] | None) -> DataFrame:
    """Of events from `first` to before `end`, which occurred between `times`, those no good as a whole: they are no
    better for another model.

    Said so that Iceberg reads only the files of quarantine that can hold them. Old rows name no event, and neither do
    those of bronze and embed: of them only what is of the events' time is looked at. What may mend itself is not among
    them: it is tried again by the models that are kept, and one that a replay builds is none yet.
    """
    number = F.col("event_seq")
    near = (number >= first) & (number < end)
    if times is not None:
        near |= number.isNull() & F.col("occurred_at").between(*times)
    for_good = ~F.col("reason").isin(*TRANSIENT, SLOW)
    return read_table(spark, QUARANTINE).where(near & (F.col("step") == WHOLE_OBJECT) & for_good)


def derive_again(
    writer: TableWriter,
    pending: DataFrame,
    work: Work,
    workers: int,
    on_set_aside: OnSetAside,
    corrections: Corrections | None = None,
) -> Derived:
    """The same for any other set of objects: rows that a table has already are left alone. With `corrections` what was
    corrected meanwhile is left out.

    `pending` has seq (any number), the columns of an event, `attempts` so far and `only` (a step, a step's tag, or null
    for all).
    """

    def publish_missing(table: Table, rows: pa.Table) -> int:
        missing = _missing(writer, table, rows)
        aside = rows_by_tag(missing) if table is not QUARANTINE else {}
        return writer.publish(table, missing, {}, stage="derive", aside=aside)

    held = to_arrow(pending.select("seq", *INPUT, "attempts", "only"))
    publishing = corrections.publishing if corrections is not None else nullcontext
    return Derived(
        len(held), *_derive(writer, held, work, workers, publish_missing, on_set_aside, publishing=publishing)
    )


def _begin(progress: Mapping[str, Progress]) -> tuple[int, int | None]:
    """Where derive goes on. Quarantine, which moves only when it gets something, has no say in it, unless it was rolled
    back: then its rows up to where it had been, the second number, are to be made again before anything else."""
    aside, seq = progress[QUARANTINE.name], progress[QUARANTINE.name].seq_of(EVENTS.name)
    others = min(table.seq_of(EVENTS.name) for name, table in progress.items() if name != QUARANTINE.name)
    until = min(others, aside.redo.get(EVENTS.name, 0))
    return (seq, until) if seq < until else (others, None)


def _missing(writer: TableWriter, table: Table, rows: Rows, *, of_any_time: bool = False) -> Rows:
    key = table.key if table is not QUARANTINE else ("event_id", "object_id", "step", "fingerprint", "attempts")
    return writer.not_yet_in(table, batch_rows.select(rows, table.columns), key, of_any_time=of_any_time)


def _first_unpaid(rows: Rows, end: int) -> int:
    """Of a batch with a purse, which is the driver's."""
    if not isinstance(rows, pa.Table):
        return end
    first = pc.min(rows.filter(pc.equal(rows["reason"], OVER_BUDGET))["event_seq"]).as_py()
    return end if first is None else int(first)


def _derive(
    writer: TableWriter,
    pending: Rows,
    work: Work,
    workers: int,
    publish_rows: PublishRows,
    on_set_aside: OnSetAside,
    choose: Callable[[Rows], Rows] = lambda rows: rows,
    publishing: Callable[[Rows], AbstractContextManager[Rows]] = nullcontext,
) -> tuple[dict[str, int], dict[str, Spent], int, int]:
    """`choose` takes what is published of the outcome; what it took to make, it all took."""
    with _outcome(writer, pending, work, workers) as made, publishing(choose(made)) as outcome:
        efforts = spent_by_tag(made)

        def publish_of(table: Table) -> int:
            return publish_rows(table, batch_rows.equal(outcome, "table", table.name))

        passing = batch_rows.count(batch_rows.among(outcome, "reason", TRANSIENT))
        slow = batch_rows.count(batch_rows.equal(outcome, "reason", SLOW))
        on_set_aside(passing, slow)
        published = {QUARANTINE.name: publish_of(QUARANTINE)}
        faults.point("derive.quarantined")
        # A commit is mostly waiting, and each table remembers by itself how far it has come.
        others = [table for table in TABLES if table is not QUARANTINE]
        with ThreadPoolExecutor(len(others), "publish") as pool:
            published |= zip((table.name for table in others), pool.map(publish_of, others), strict=True)
    return published, efforts, passing, slow


@contextmanager
def _outcome(writer: TableWriter, pending: Rows, work: Work, workers: int) -> Iterator[Rows]:
    """Rows for all tables. Equal contents meet in one task, so that the second finds the first one's memo."""
    if isinstance(pending, pa.Table):
        pointer = pending["pointer"].combine_chunks()
        contents = pointer.field("checksum")
        if work.purse is not None:
            parts = partitions_in_order(pending, contents, workers)
        else:
            parts = balanced_partitions(pending, contents, pending["modality"], pointer.field("size"), workers)
        yield map_partitions(writer.spark, parts, derive_batches(work), SCHEMA)
        return
    kinds = [modality.value for modality in Modality]
    dealt = repartition_balanced(pending, "pointer.checksum", "modality", kinds, "pointer.size", workers)
    made = dealt.mapInArrow(picklable_errors(derive_batches(work)), from_arrow_schema(SCHEMA))
    with persisted_on_disk(made) as outcome:
        yield outcome
