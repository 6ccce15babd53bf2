"""Bronze: one trusted row per event.

Reads   the pointer log, as the intake brings its lines
Writes  bronze.events, silver.quarantine
Key     customer and event_id; the same event a thousand times is one row and 999 counted duplicates.
The driver, which must know every key to judge it, reads the lines and carries the rows to the table. Where Spark
streams them, a batch with a long chat text is read, held and written in Spark's tasks, and only its keys travel.
Invariant: what was read of the log is committed with the rows, so a crash repeats nothing; a batch is committed only
on top of the position that its reader knows, so a table that is rolled back meanwhile loses nothing.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import faults
from headwater.clock import Clock
from headwater.domain.line import PAYLOAD_LETTERS
from headwater.domain.producers import Rules
from headwater.domain.progress import Progress
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.flow.corrections import CORRECTIONS, settle_claims
from headwater.flow.log.continuity import LogPosition, LogReplaced, Loss, PositionMoved, find_lost, record_losses
from headwater.flow.log.identity import name_logs, note_marks, same_identity
from headwater.flow.log.skipped import SkippedLine, read_skipped
from headwater.flow.log_lines import SEEN, parse_lines, read_batch, to_driver
from headwater.flow.verdict import Position, Verdict, are_among, judge
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import read_table, to_arrow
from headwater.storage.tables.writer import TableWriter

_ID_TAKEN: Final = "event_id: it was seen before with other content"
_NOT_SEEN: Final = "corrects: no event of this id was taken in before, and the object was announced by another one"
_ELSEWHERE: Final = "corrects: the event of this id is about another object"
_OBJECT_TAKEN: Final = "pointer.checksum: the object was announced before with another one"


@dataclass(frozen=True, slots=True)
class Taken:
    """What a micro-batch brought: new events, lines that were set aside, and what was gone before it was read."""

    events: int
    quarantined: int
    losses: Sequence[Loss]
    position: LogPosition  # how far the log is read now


def take(
    writer: TableWriter,
    lines: DataFrame | pa.Table,
    follows: LogPosition | None,
    *,
    log: PointerLog,
    ledger: Ledger,
    clock: Clock,
) -> Taken:
    """Bring a micro-batch of log lines, as `storage.log.stream` gives them, into bronze.

    `follows` is the position on which the batch follows; None is for who reads from where the table is. Raises
    PositionMoved where the table is elsewhere, and LogReplaced where the lines may be of another log than the one that
    the positions speak of.
    """
    since = read_progress(writer.tables, EVENTS)
    settle_claims(ledger, writer, since)
    begun = since.offsets
    skipped = read_skipped(ledger, log)
    lines = _passed_over(lines, skipped)
    if follows is not None and LogPosition.of(since) != follows:
        raise PositionMoved
    rules = Rules.of(writer.settings)
    with _seen(lines, _unread(to_driver(lines), begun), begun, rules) as (seen, rows):
        identity = same_identity(log, ledger)  # asked after they were read, and so true of when they were read
        if identity is None:
            raise LogReplaced
        ends = _ends(seen)
        note_marks(log, ledger, ends)
        losses = find_lost(log, ledger, lambda partition: _offsets(seen, partition), begun)
        if losses:
            record_losses(ledger, losses, clock())
        ends |= {loss.partition: max(loss.until or 0, ends.get(loss.partition, 0)) for loss in losses}
        verdict = judge(writer, seen, ledger, since)
        taken = _publish(writer, since, rows, verdict, {**begun, **ends}, identity, clock(), losses, skipped)
        if verdict.raw.get(CORRECTIONS):
            settle_claims(ledger, writer, read_progress(writer.tables, EVENTS))
        return taken


@contextmanager
def _seen(
    lines: DataFrame | pa.Table, sized: pa.Table, begun: Mapping[int, int], rules: Rules
) -> Iterator[tuple[pa.Table, DataFrame | pa.Table]]:
    """The batch as the driver judges it, and its rows to be written: the same, unless some texts are long."""
    if isinstance(lines, pa.Table) or pc.all(sized["small"], min_count=0).as_py():
        seen = pa.Table.from_batches([read_batch(batch, rules) for batch in sized.to_batches()], SEEN)
        yield seen, seen
        return
    # What is judged and what is written must be one reading of the log.
    rows = parse_lines(lines.where(_is_unread(begun)), rules).persist()
    try:
        short = {name: F.when(F.col("small"), F.col(name)) for name in ("text", "meta", "extra", "payload")}
        yield to_arrow(rows.withColumns(short)), rows
    finally:
        rows.unpersist()


def _publish(
    writer: TableWriter,
    since: Progress,
    rows: DataFrame | pa.Table,
    verdict: Verdict,
    ends: Mapping[int, int],
    identity: str,
    now: datetime,
    losses: Sequence[Loss],
    skipped: Mapping[Position, SkippedLine],
) -> Taken:
    faults.point("bronze.keyed")
    position = {"log": {str(partition): end for partition, end in ends.items()}}
    logs, quarantined = name_logs(identity, since.logs, ends), 0
    if verdict.unsound or verdict.conflicts:  # else its position, which only tells what it has already, stays behind
        set_aside = read_progress(writer.tables, QUARANTINE)
        refused = _refused(writer.spark, rows, verdict, set_aside.offsets, now, skipped)
        # A stage may set rows aside meanwhile, but nobody else moves how far the log was read.
        given = to_arrow(refused) if isinstance(rows, pa.Table) else refused
        quarantined = writer.publish(QUARANTINE, given, position, since=set_aside, stage="quarantine", logs=logs)
    faults.point("bronze.quarantined")
    accepted = _accepted(rows, verdict, now) if verdict.accepted else None
    duplicates = len(verdict.duplicates)
    events = writer.publish(
        EVENTS, accepted, position, since=since, stage="bronze", duplicates=duplicates, raw=verdict.raw, logs=logs
    )
    return Taken(events, quarantined, losses, LogPosition(since.generation, ends))


def _passed_over(lines: DataFrame | pa.Table, skipped: Collection[Position]) -> DataFrame | pa.Table:
    """The same places, but nothing stands there."""
    if not skipped:
        return lines
    if isinstance(lines, DataFrame):
        return lines.withColumn("value", F.when(~_among(skipped), F.col("value")))
    value = pc.if_else(are_among(lines, skipped), pa.scalar(None, lines["value"].type), lines["value"])
    return lines.set_column(lines.schema.get_field_index("value"), "value", value)


def take_again(writer: TableWriter, lines: pa.Table, *, ledger: Ledger, clock: Clock) -> int:
    """Lines that were set aside as they came, and are to be taken now; how many events came of them.

    At the places where they stood: who takes them twice, as after a crash, finds them in the table. What came first is
    still first, and what contradicts it is set aside as ever. How far the log is read does not move.
    """
    seen = pa.Table.from_batches([read_batch(batch, Rules({})) for batch in lines.to_batches()], SEEN)
    seen = seen.filter(pc.invert(_are_there(writer, seen)))
    since = read_progress(writer.tables, EVENTS)
    settle_claims(ledger, writer, since)
    verdict, now = judge(writer, seen, ledger, since), clock()
    if verdict.conflicts:
        refused = _refused(writer.spark, seen, verdict, {}, now, {})
        writer.publish(QUARANTINE, to_arrow(refused), {}, stage="quarantine")
    accepted = _accepted(seen, verdict, now)
    duplicates = len(verdict.duplicates)
    taken = writer.publish(EVENTS, accepted, {}, stage="bronze", duplicates=duplicates, raw=verdict.raw)
    settle_claims(ledger, writer, read_progress(writer.tables, EVENTS))
    return taken


def _are_there(writer: TableWriter, seen: pa.Table) -> pa.Array:
    """Which of these lines `bronze.events` has from the very place."""
    key = ("customer", "event_id", "log_partition", "log_offset")
    asked = writer.spark.createDataFrame(seen.select(key))
    near = read_table(writer.spark, EVENTS).where(F.col("event_id").isin(pc.unique(seen["event_id"]).to_pylist()))
    held = {tuple(row.values()) for row in to_arrow(near.join(asked, list(key), "left_semi").select(*key)).to_pylist()}
    return pa.array([tuple(row.values()) in held for row in seen.select(key).to_pylist()], pa.bool_())


def _is_unread(begun: Mapping[int, int]) -> Column:
    unread = F.lit(True)
    for partition, offset in begun.items():
        unread &= (F.col("log_partition") != partition) | F.col("log_offset").isNull() | (F.col("log_offset") >= offset)
    return unread


def _unread(seen: pa.Table, begun: Mapping[int, int]) -> pa.Table:
    """Seldom anything is dropped. Not a part of Spark's plan: other offsets would be other code, compiled each time."""
    for partition, offset in begun.items():
        read = pc.and_(pc.equal(seen["log_partition"], partition), pc.less(seen["log_offset"], offset))
        if pc.any(read, min_count=0).as_py():
            seen = seen.filter(pc.invert(pc.fill_null(read, False)))
    return seen


def _ends(seen: pa.Table) -> dict[int, int]:
    """The next offset to read, by partition."""
    ends = seen.group_by("log_partition").aggregate([("log_end", "max")])
    return dict(zip(ends["log_partition"].to_pylist(), ends["log_end_max"].to_pylist(), strict=True))


def _offsets(seen: pa.Table, partition: int) -> list[int]:
    """Those that are known: a damaged line has none."""
    offsets: list[int] = seen.filter(pc.equal(seen["log_partition"], partition))["log_offset"].drop_null().to_pylist()
    return offsets


def _accepted(rows: DataFrame | pa.Table, verdict: Verdict, now: datetime) -> DataFrame | pa.Table:
    known = verdict.duplicates | verdict.conflicts
    if isinstance(rows, DataFrame):
        fresh = rows.where(F.col("sound") & ~_among(known))
        return fresh.withColumns({"first_of_object": ~_among(verdict.echoes), "bronze_at": F.lit(now)})
    new = rows.filter(pc.and_not(rows["sound"], are_among(rows, known)))
    new = new.append_column("first_of_object", pc.invert(are_among(new, verdict.echoes)))
    return new.append_column("bronze_at", pa.repeat(pa.scalar(now, EVENTS.schema.field("bronze_at").type), len(new)))


def _among(positions: Collection[Position]) -> Column:
    """Batches are mostly clean, so the usual case is the literal false."""
    if not positions:
        return F.lit(False)
    return F.concat_ws(":", "log_partition", "log_offset").isin([f"{p}:{offset}" for p, offset in positions])


def _where_it_stands() -> tuple[Column, ...]:
    """So that who mends the producer finds the line; a damaged one has no offset."""
    partition, offset = (F.col(name).cast("string") for name in ("log_partition", "log_offset"))
    return F.lit(" (log partition "), partition, F.lit(", offset "), F.coalesce(offset, F.lit("unknown")), F.lit(")")


def _refused(
    spark: SparkSession,
    rows: DataFrame | pa.Table,
    verdict: Verdict,
    begun: Mapping[int, int],
    now: datetime,
    skipped: Mapping[Position, SkippedLine],
) -> DataFrame:
    if isinstance(rows, pa.Table):
        wanted = pc.or_(pc.invert(rows["sound"]), are_among(rows, verdict.conflicts))
        rows = spark.createDataFrame(rows.filter(wanted))
    conflict = F.col("sound") & _among(verdict.conflicts)
    # With what it says: in a log that is made anew, another line may come to stand at the same place.
    digest = F.substring(F.sha2(F.coalesce("payload", F.lit("")), 256), 1, 12)
    line = F.concat_ws(":", F.lit("log"), "log_partition", "log_offset", digest)
    sent = ("event_id", "modality", "customer", "occurred_at", "pointer", "text", "meta", "thread", "extra", "corrects")
    event = F.to_json(F.struct(*sent))
    reason = F.when(conflict, "CONFLICT").when(_among(skipped), "SKIPPED").otherwise(F.col("reason"))
    taken = F.when(_among(verdict.lies), _OBJECT_TAKEN).when(_among(verdict.not_seen), _NOT_SEEN)
    taken = taken.when(_among(verdict.elsewhere), _ELSEWHERE).otherwise(_ID_TAKEN)
    detail = F.when(conflict, taken)
    for place, passed_over in skipped.items():
        detail = detail.when(_among([place]), str(passed_over))
    detail = detail.otherwise(F.col("detail"))
    # A run that was killed between the two tables has quarantined these lines already.
    fresh = rows.where(_is_unread(begun))
    return fresh.where(~F.col("sound") | conflict).select(
        F.when(F.length("event_id") > 0, F.col("event_id")).otherwise(line).alias("event_id"),
        "object_id",
        "customer",
        "modality",
        F.lit("bronze").alias("step"),
        F.lit(None).cast("string").alias("model"),
        F.lit(None).cast("string").alias("fingerprint"),
        reason.alias("reason"),
        F.concat(detail, *_where_it_stands()).alias("detail"),
        F.lit(1).alias("attempts"),
        F.lit(None).cast("long").alias("event_seq"),
        "log_partition",
        "log_offset",
        "occurred_at",
        F.lit(now).alias("quarantined_at"),
        "pointer",
        F.when(conflict, F.substring(event, 1, PAYLOAD_LETTERS)).otherwise(F.col("payload")).alias("payload"),
    )
