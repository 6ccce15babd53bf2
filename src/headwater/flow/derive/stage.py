"""Derive: what models make of each object.

Reads   bronze.events, the raw store
Writes  silver.quarantine, silver.metadata, silver.transcripts, silver.captions, silver.messages, and silver.embeddings
        where a model for pictures is kept
Key     object × step × model
Invariant: pointers travel, and the worker that needs bytes fetches them; a result is memoised before any table is
committed; every table remembers by itself how far into bronze.events it has come. Live, retry and replay differ only
in the set of objects that they pass in.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import faults
from headwater.domain.tables import EMBEDDINGS, EVENTS, METADATA, QUARANTINE, Table
from headwater.flow.derive.batch import INPUT, Cut, next_batch
from headwater.flow.derive.child import WHOLE_OBJECT
from headwater.flow.derive.outcome import SCHEMA, TABLES
from headwater.flow.derive.worker import Work, derive_batches
from headwater.flow.parts import deal, run_parts
from headwater.flow.spent import Spent, spent_by_tag
from headwater.settings import Settings
from headwater.storage.peek import peek_progress
from headwater.storage.publish import not_yet_in, publish


@dataclass(frozen=True, slots=True)
class Derived:
    """What a batch came to, by table, and what each model had to do for it, by tag."""

    events: int
    rows: Mapping[str, int]
    efforts: Mapping[str, Spent] = field(default_factory=dict)

    @property
    def quarantined(self) -> int:
        return self.rows.get(QUARANTINE.name, 0)


# Rows of an outcome that belong to a table, on their way into it; how many it took.
PublishRows = Callable[[Table, pa.Table], int]


def derive_next(spark: SparkSession, work: Work, cut: Cut, workers: int) -> Derived | None:
    """One batch of what is pending, in the order of arrival; None when there is nothing."""
    planned = work.planned()
    progress = {table.name: peek_progress(work.settings, table) for table in TABLES if _in_use(table, work)}
    reached = {name: told.seq_of(EVENTS.name) for name, told in progress.items()}
    batch = next_batch(spark, work.settings, _begin(reached), cut)
    if batch is None:
        return None
    # A model that a replay has yet to bring up to here waits for that replay.
    live = {tag for tag, step in planned.items() if progress[step.table].seq_of(step.position) >= reached[step.table]}

    def publish_live(table: Table, rows: pa.Table) -> int:
        if table.name not in reached:
            return 0
        seen = pc.less(rows["event_seq"], reached[table.name])
        unseen = rows.filter(pc.invert(seen)).select(table.columns)
        if table is QUARANTINE:
            # What went well before a kill may fail now, and must not be gone from everywhere.
            unseen = pa.concat_tables([unseen, _missing(spark, table, rows.filter(seen))])
            if not len(unseen):
                return 0  # its position only tells what it has already, so it may lag behind
        names = {planned[tag].position for tag in live if planned[tag].table == table.name} | {EVENTS.name}
        position = dict.fromkeys(names, max(batch.end, reached[table.name]))
        return publish(spark, table, unseen, position, stage="derive")

    return Derived(batch.events, *_derive(spark, batch.pending, work.only(live), workers, publish_live))


def is_cut_short(settings: Settings, *, pictures: bool) -> bool:
    """Whether a run was killed between the commits of a batch, so that some tables are ahead of others.

    `pictures` says that vectors of pictures are made.
    """
    tables = [table for table in TABLES if pictures or table is not EMBEDDINGS]
    reached = {table.name: peek_progress(settings, table).seq_of(EVENTS.name) for table in tables}
    return max(reached.values()) > _begin(reached)


def replay_next(spark: SparkSession, work: Work, tag: str, cut: Cut, workers: int, until: int) -> Derived | None:
    """One batch for a model that is behind, up to where its step's others are or to `until`; None when it is there.

    What it has already, from a retry or from a replay that was killed, is left alone.
    """
    step = work.planned()[tag]
    table = next(table for table in TABLES if table.name == step.table)
    progress = peek_progress(work.settings, table)
    reached = peek_progress(work.settings, METADATA if table is EMBEDDINGS else table).seq_of(EVENTS.name)
    batch = next_batch(spark, work.settings, progress.seq_of(step.position), cut, until=min(until, reached))
    if batch is None:
        return None
    pending, end = batch.pending, batch.end
    modalities = pa.array([modality for modality, steps in work.steps.items() if tag in {step.tag for step in steps}])
    pending = pending.filter(pc.is_in(pending["modality"], modalities))
    # An object that was no good as a whole is no better for another model.
    hopeless = spark.table(f"lake.{QUARANTINE.name}").where(F.col("step") == WHOLE_OBJECT).select("event_id").toArrow()
    pending = pending.filter(pc.invert(pc.is_in(pending["event_id"], hopeless["event_id"].combine_chunks())))

    def publish_missing(target: Table, rows: pa.Table) -> int:
        position = {step.position: end} if target is table else {}
        if position and table is EMBEDDINGS:  # nobody else moves it on before a first model for pictures is complete
            position[EVENTS.name] = max(end, progress.seq_of(EVENTS.name))
        return publish(spark, target, _missing(spark, target, rows), position, stage="derive")

    return Derived(batch.events, *_derive(spark, pending, work.only({tag}), workers, publish_missing))


def derive_again(spark: SparkSession, pending: DataFrame, work: Work, workers: int) -> Derived:
    """The same for any other set of objects: rows that a table has already are left alone.

    `pending` has seq (any number), the columns of an event, `attempts` so far and `only` (a step, a step's tag, or null
    for all).
    """

    def publish_missing(table: Table, rows: pa.Table) -> int:
        return publish(spark, table, _missing(spark, table, rows), {}, stage="derive")

    held = pending.select("seq", *INPUT, "attempts", "only").toArrow()
    return Derived(len(held), *_derive(spark, held, work, workers, publish_missing))


def _begin(reached: Mapping[str, int]) -> int:
    """Where derive goes on; quarantine, which moves only when it gets something, has no say in it."""
    return min(seq for name, seq in reached.items() if name != QUARANTINE.name)


def _in_use(table: Table, work: Work) -> bool:
    return table is not EMBEDDINGS or any(step.table == table.name for step in work.planned().values())


def _missing(spark: SparkSession, table: Table, rows: pa.Table) -> pa.Table:
    key = table.key if table is not QUARANTINE else ("event_id", "step", "fingerprint", "attempts")
    return not_yet_in(spark, table, rows.select(table.columns), key)


def _derive(
    spark: SparkSession, pending: pa.Table, work: Work, workers: int, publish_rows: PublishRows
) -> tuple[dict[str, int], dict[str, Spent]]:
    pointer = pending["pointer"].combine_chunks()
    # By content, so that equal bytes meet in one task and the second finds the first one's memo.
    parts = deal(pending, pointer.field("checksum"), pending["modality"], pointer.field("size"), workers)
    outcome = run_parts(spark, parts, derive_batches(work), SCHEMA)

    def publish_of(table: Table) -> int:
        return publish_rows(table, outcome.filter(pc.equal(outcome["table"], table.name)))

    published = {QUARANTINE.name: publish_of(QUARANTINE)}
    faults.point("derive.quarantined")
    # A commit is mostly waiting, and each table remembers by itself how far it has come.
    others = [table for table in TABLES if table is not QUARANTINE]
    with ThreadPoolExecutor(len(others), "publish") as pool:
        published |= zip((table.name for table in others), pool.map(publish_of, others), strict=True)
    return published, spent_by_tag(outcome)
