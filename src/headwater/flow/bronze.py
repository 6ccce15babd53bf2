"""Bronze: one trusted row per event.

Reads   the pointer log, through Spark Structured Streaming
Writes  bronze.events, silver.quarantine
Key     event_id; the same event a thousand times is one row and 999 counted duplicates.
Invariant: what was read of the log is committed with the rows, so a crash repeats nothing, and a lost checkpoint only
costs a second look at what the log still holds.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headwater import faults
from headwater.clock import Clock
from headwater.domain.event import EVENT_BYTES_MAX
from headwater.domain.modality import Modality
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.flow.continuity import Loss, expired, record_losses
from headwater.storage.ledger import Ledger
from headwater.storage.log_stream import read_log
from headwater.storage.pointer_log import PointerLog
from headwater.storage.publish import progress_of, publish

_POINTER = StructType(
    [
        StructField("path", StringType()),
        StructField("offset", LongType()),
        StructField("size", LongType()),
        StructField("content_type", StringType()),
        StructField("checksum", StringType()),
        StructField("version_id", StringType()),
        StructField("etag", StringType()),
    ]
)
EVENT_TYPE = StructType(
    [
        StructField("event_id", StringType()),
        StructField("modality", StringType()),
        StructField("customer", StringType()),
        StructField("occurred_at", TimestampType()),
        StructField("pointer", _POINTER),
        StructField("text", StringType()),
    ]
)


NAME_BYTES_MAX = 1024  # an S3 key's; Postgres has no room in an index for much more
Position = tuple[int, int]  # partition and offset of a line of the log


Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a batch; a sound line in none of these sets is a new event of a new object."""

    unsound: int
    accepted: int
    duplicates: frozenset[Position]
    conflicts: frozenset[Position]
    # New events about an object that is known already: kept as sent, derived from once.
    echoes: frozenset[Position]


def take(spark: SparkSession, lines: DataFrame, *, log: PointerLog, ledger: Ledger, clock: Clock) -> int:
    """Bring a micro-batch of log lines, as `storage.log_stream` gives them, into bronze; returns the new events."""
    begun = progress_of(spark, EVENTS).offsets
    parsed = _parse(lines.where(_unread(begun))).persist()
    try:
        seen = _collect(parsed)
        ends = _ends(seen)
        if not log.dense:
            record_losses(ledger, _lost(seen, begun, log.begin()), clock())
        elif missing := _missing(seen, begun, ends, log):
            # Spark's listing showed a later segment before an earlier one; moving on would lose that one for good.
            parsed = _parse(read_log(spark, log, missing)).unionByName(parsed)
            seen = _collect(parsed)
        return _bring(spark, parsed, _judge(seen, ledger), {**begun, **ends}, clock)
    finally:
        parsed.unpersist()


def _bring(spark: SparkSession, parsed: DataFrame, verdict: Verdict, ends: Mapping[int, int], clock: Clock) -> int:
    faults.point("bronze.keyed")
    position = {"log": {str(partition): end for partition, end in ends.items()}}
    now = F.lit(clock())
    # A run that was killed between the two tables has quarantined these lines already.
    fresh = parsed.where(_unread(progress_of(spark, QUARANTINE).offsets))
    refused = _refused(fresh, verdict, now) if verdict.unsound or verdict.conflicts else None
    publish(spark, QUARANTINE, refused, position, stage="quarantine")
    faults.point("bronze.quarantined")
    accepted = _accepted(parsed, verdict, now) if verdict.accepted else None
    return publish(spark, EVENTS, accepted, position, stage="bronze", duplicates=len(verdict.duplicates)).rows


def _parse(lines: DataFrame) -> DataFrame:
    event = F.from_json("value", EVENT_TYPE).alias("event")
    line = ("log_partition", "log_offset", "log_end", "value")
    fields = lines.select(*line, event).select(*line, "event.*", _is_event().alias("sound"))
    return fields.withColumn("content_hash", _content_hash())


def _unread(begun: Mapping[int, int]) -> Column:
    unread = F.lit(True)
    for partition, offset in begun.items():
        unread &= (F.col("log_partition") != partition) | F.col("log_offset").isNull() | (F.col("log_offset") >= offset)
    return unread


def _is_event() -> Column:
    """Everything that later stages rely on is there."""
    present = [
        F.octet_length("value") <= EVENT_BYTES_MAX,
        _is_name("event.event_id"),
        _is_name("event.customer"),
        F.col("event.modality").isin([modality.value for modality in Modality]),
        F.col("event.occurred_at").isNotNull(),
        _is_name("event.pointer.path"),
        F.col("event.pointer.size") >= 0,
        F.col("event.pointer.checksum").rlike("^[0-9a-f]{64}$"),
        (F.col("event.modality") == Modality.CHAT.value) == F.col("event.text").isNotNull(),
        F.col("log_offset").isNotNull(),
    ]
    sound = F.lit(True)
    for condition in present:
        sound &= F.coalesce(condition, F.lit(False))
    return sound


def _is_name(column: str) -> Column:
    """What databases and stores take as a key: some bytes, not too many, none of them zero."""
    return F.octet_length(column).between(1, NAME_BYTES_MAX) & ~F.contains(F.col(column), F.lit("\0"))


def _content_hash() -> Column:
    """What must agree when an id is seen again. Not its time: who sends a line twice sends it later."""
    pointer = ("pointer.path", "pointer.size", "pointer.checksum")
    return F.sha2(F.to_json(F.struct("event_id", "modality", "customer", *pointer, "text")), 256)


def _collect(parsed: DataFrame) -> list[Line]:
    """What the driver needs to judge a batch: keys and positions, no payload."""
    keys = parsed.select(
        "sound",
        "log_partition",
        "log_offset",
        "log_end",
        "event_id",
        F.col("pointer.path").alias("object_id"),
        F.col("pointer.checksum").alias("checksum"),
        "content_hash",
    )
    lines: list[Line] = keys.toArrow().to_pylist()
    return lines


def _ends(seen: Sequence[Line]) -> dict[int, int]:
    """The next offset to read, by partition."""
    ends: dict[int, int] = {}
    for line in seen:
        ends[line["log_partition"]] = max(line["log_end"], ends.get(line["log_partition"], 0))
    return ends


def _missing(
    seen: Sequence[Line], begun: Mapping[int, int], ends: Mapping[int, int], log: PointerLog
) -> list[Position]:
    """Offsets are dense, so what lies below a batch's end and was not read before must be in the batch."""
    first = {partition: max(offset, begun.get(partition, 0)) for partition, offset in log.begin().items()}
    expected = sum(end - first.get(partition, 0) for partition, end in ends.items())
    if len(seen) >= expected:
        return []
    there = {_position(line) for line in seen}
    wanted = ((partition, offset) for partition, end in ends.items() for offset in range(first[partition], end))
    return [position for position in wanted if position not in there]


def _lost(seen: Sequence[Line], begun: Mapping[int, int], begin: Mapping[int, int]) -> list[Loss]:
    """What expired while the stream was behind: below the log's beginning, and not in this batch either."""
    first: dict[int, int] = {}
    for line in seen:
        partition = line["log_partition"]
        first[partition] = min(line["log_offset"], first.get(partition, line["log_offset"]))
    return expired({p: min(begin.get(p, 0), offset) for p, offset in first.items()}, begun)


def _judge(seen: Sequence[Line], ledger: Ledger) -> Verdict:
    """Who is first for each id and each object; the ledger answers by key, whatever the table's size."""
    sound = [line for line in seen if line["sound"]]
    duplicates, conflicts = _claim(ledger, "event", sound, "event_id", "content_hash")
    known = duplicates | conflicts
    new = [line for line in sound if _position(line) not in known]
    echoes, lies = _claim(ledger, "object", new, "object_id", "checksum")
    return Verdict(
        unsound=len(seen) - len(sound),
        accepted=len(new) - len(lies),
        duplicates=frozenset(duplicates),
        conflicts=frozenset(conflicts | lies),
        echoes=frozenset(echoes),
    )


def _claim(
    ledger: Ledger, kind: Literal["event", "object"], lines: Sequence[Line], key: str, content: str
) -> tuple[set[Position], set[Position]]:
    """Positions that came second for their key: with the same content, and with other content."""
    firsts = ledger.claim_first(kind, [(line[key], line[content], *_position(line)) for line in lines])
    same: set[Position] = set()
    other: set[Position] = set()
    for line in lines:
        first_content, *first_position = firsts[line[key]]
        if first_content != line[content]:
            other.add(_position(line))
        elif tuple(first_position) != _position(line):
            same.add(_position(line))
    return same, other


def _position(line: Line) -> Position:
    return line["log_partition"], line["log_offset"]


def _among(positions: Collection[Position]) -> Column:
    """Batches are mostly clean, so the usual case is the literal false."""
    if not positions:
        return F.lit(False)
    return F.concat_ws(":", "log_partition", "log_offset").isin([f"{p}:{offset}" for p, offset in positions])


def _accepted(parsed: DataFrame, verdict: Verdict, now: Column) -> DataFrame:
    return parsed.where(F.col("sound") & ~_among(verdict.duplicates | verdict.conflicts)).select(
        "event_id",
        F.col("pointer.path").alias("object_id"),
        "modality",
        "customer",
        "occurred_at",
        F.col("pointer").withField("offset", F.coalesce("pointer.offset", F.lit(0))).alias("pointer"),
        "text",
        "content_hash",
        (~_among(verdict.echoes)).alias("first_of_object"),
        "log_partition",
        "log_offset",
        now.alias("bronze_at"),
    )


def _refused(parsed: DataFrame, verdict: Verdict, now: Column) -> DataFrame:
    conflict = F.col("sound") & _among(verdict.conflicts)
    line = F.concat_ws(":", F.lit("log"), "log_partition", F.coalesce("log_offset", F.xxhash64("value")))
    return parsed.where(~F.col("sound") | conflict).select(
        F.when(F.length("event_id") > 0, F.col("event_id")).otherwise(line).alias("event_id"),
        F.col("pointer.path").alias("object_id"),
        "customer",
        "modality",
        F.lit("bronze").alias("step"),
        F.lit(None).cast("string").alias("model"),
        F.lit(None).cast("string").alias("fingerprint"),
        F.when(conflict, "CONFLICT").otherwise("BAD_EVENT").alias("reason"),
        F.when(conflict, "id or object seen before with other content")
        .otherwise("not an event: a field is missing or malformed")
        .alias("detail"),
        F.lit(1).alias("attempts"),
        "occurred_at",
        now.alias("quarantined_at"),
        F.when(F.col("sound"), F.col("pointer")).alias("pointer"),
        F.substring("value", 1, 4000).alias("payload"),
    )
