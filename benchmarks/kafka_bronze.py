"""Kafka to queryable rows: Headwater's bronze beside Spark's plain Kafka → Iceberg stream, in one run.

Both read the same topic with the same bound on a micro-batch and write an Iceberg table; the plain stream parses the
events and appends, and promises less: no first-seen check, no quarantine, no progress in the table. Cost is the CPU of
the whole process tree after Spark's start. Goal: bronze at most 1.2 × the plain stream's cost.
Sustained is the same without the first micro-batch, in which the JVM warms up. Freshness is the time from an event's
publishing to the commit that makes it queryable, with a small load and the same trigger for both.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import corpus
from measure import Meter

from headwater.clock import parse_time, to_text, utc_now
from headwater.flow.land_text import text_event
from headwater.settings import Settings
from headwater.stack.stack import Stack, settings_text
from headwater.storage.log.pointer_log import PointerLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AT_ONCE = 5_000
EVENT_TYPE = """event_id string, modality string, customer string, occurred_at timestamp,
    pointer struct<path: string, offset: bigint, size: bigint, content_type: string, checksum: string,
        version_id: string, etag: string>, text string"""
FRESH_BURSTS, FRESH_EVENTS = 60, 10


def settings_of(lake: Path) -> Settings:
    from headwater import settings

    return settings.load(lake, {"run.freshness_seconds": 0})  # the trigger's own: a trickle is not gathered


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def drained(query: "StreamingQuery", rows: Callable[[], int]) -> None:
    """Before anything is stopped: the end of a process is not what is measured."""
    while query.isActive and not query.lastProgress:
        time.sleep(0.05)
    say(warm=int(query.lastProgress["numInputRows"]) if query.lastProgress else 0)
    query.awaitTermination()
    say(rows=rows())
    time.sleep(1)  # for the meter's last look
    os._exit(0)


def followed(spark: "SparkSession", query: "StreamingQuery", table: str) -> None:
    """Says when it is up to date, then waits to hear how many rows there must be, and tells how late each was."""
    while not query.lastProgress:
        time.sleep(0.05)
    say(following=True)
    expected, since = json.loads(sys.stdin.readline())
    while (there := spark.table(table).count()) < expected and query.isActive:
        time.sleep(0.5)
    say(rows=there, late=lateness(spark, table, since))
    os._exit(0)


def lateness(spark: "SparkSession", table: str, since: str) -> list[float]:
    """A batch holds what was published before it, so rows by their time and commits by theirs go together."""
    commits = spark.sql(
        f"select s.committed_at, cast(s.summary['added-records'] as long) rows from {table}.snapshots s "
        f"where s.snapshot_id in (select snapshot_id from {table}.history where is_current_ancestor) order by 1"
    ).collect()
    queryable = [at.timestamp() for at, rows in commits for _ in range(rows or 0)]
    sent = spark.table(table).where(f"occurred_at >= timestamp'{since}'").orderBy("occurred_at")
    published = [row[0].timestamp() for row in sent.select("occurred_at").collect()]
    pairs = zip(queryable[len(queryable) - len(published) :], published, strict=True)
    return [seen - at for seen, at in pairs]


def plain(lake: Path, *, follow: bool) -> None:
    """What a Spark user would write first."""
    from pyspark.sql import functions as F

    from headwater.storage.log.kafka_conf import KafkaPlace
    from headwater.storage.spark.session import start_spark

    settings = settings_of(lake)
    place = KafkaPlace.parse(settings.text("log.uri"))
    spark = start_spark(settings)
    say(started=True)
    spark.sql("create namespace if not exists lake.plain")
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", place.servers)
        .option("subscribe", place.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.whole("log.batch_events"))
        .load()
    )
    event = F.from_json(F.col("value").cast("string"), EVENT_TYPE).alias("event")
    rows = lines.select("partition", "offset", event).select("partition", "offset", "event.*")
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", str(lake / "plain-checkpoint"))
    if follow:
        writer = writer.trigger(processingTime=f"{settings.number('run.trigger_seconds')} seconds")
        followed(spark, writer.toTable("lake.plain.events"), "lake.plain.events")
    query = writer.trigger(availableNow=True).toTable("lake.plain.events")
    drained(query, lambda: int(spark.table("lake.plain.events").count()))


def bronze(lake: Path, *, follow: bool) -> None:
    from headwater.components import Components
    from headwater.domain.tables import EVENTS
    from headwater.flow.drive.run import Run
    from headwater.flow.drive.stream_intake import StreamIntake
    from headwater.lake import Lake
    from headwater.storage.tables.writer import TableWriter

    parts = Components(settings_of(lake))
    with Lake(parts):
        spark, index = parts.spark, parts.index  # the index is no part of bronze, and its import takes seconds
        say(started=True)
        writer = TableWriter(spark, parts.settings)
        run = Run(writer, parts.ledger, parts.log, index, parts.clock)
        run.begin()
        (intake,) = run.intakes
        assert isinstance(intake, StreamIntake)
        query = intake.begin(once=not follow)  # the first stage alone, as a run starts it
        if follow:
            followed(spark, query, f"lake.{EVENTS.name}")
        drained(query, lambda: int(spark.table(f"lake.{EVENTS.name}").count()))


ARMS = {"plain": plain, "bronze": bronze}


@dataclass(frozen=True, slots=True)
class Cost:
    """After Spark's start; the sustained rate is without the first micro-batch."""

    cpu: float
    wall: float
    rows: int
    sustained: float


def begun(arm: str, lake: Path, how: str) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, "--arm", arm, str(lake), how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process


def heard(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


def measured(arm: str, lake: Path) -> Cost:
    process = begun(arm, lake, "drain")
    meter = Meter(process.pid)
    heard(process)
    start, at = meter.cpu, time.monotonic()
    warm, warm_cpu = int(heard(process)["warm"]), meter.cpu
    rows, cpu = int(heard(process)["rows"]), meter.cpu
    result = Cost(cpu - start, time.monotonic() - at, rows, (rows - warm) / (cpu - warm_cpu))
    process.wait()
    meter.stop()
    return result


def fresh(arm: str, lake: Path, log: PointerLog, already: int) -> list[float]:
    """A few events twice a second, while the arm follows the topic."""
    log.publish([text_event("wake up", "c0", f"wake-{arm}", utc_now())])
    process = begun(arm, lake, "follow")
    heard(process)
    heard(process)
    since, sent = utc_now(), 0
    for burst in range(FRESH_BURSTS):
        time.sleep(0.5)
        at = utc_now()
        log.publish([text_event("hello", f"c{n}", f"{arm}-{burst}-{n}", at) for n in range(FRESH_EVENTS)])
        sent += FRESH_EVENTS
    assert process.stdin is not None
    process.stdin.write(json.dumps([already + 1 + sent, to_text(since)]) + "\n")
    process.stdin.flush()
    told = heard(process)
    process.wait()
    assert len(told["late"]) == sent, f"{arm}: {len(told['late'])} of {sent} events"
    return sorted(told["late"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--arm", nargs=3, help="internal: run one arm")
    options = parser.parse_args()
    if options.arm:
        ARMS[options.arm[0]](Path(options.arm[1]), follow=options.arm[2] == "follow")
    directory = Path(tempfile.gettempdir()) / f"headwater-bench-stack-{os.getuid()}"
    stack = Stack(directory)
    stack.up(["kafka"], print)
    try:
        compare(stack, options.events)
    finally:
        stack.down(purge=True)


def compare(stack: Stack, count: int) -> None:
    from headwater import lake as lakes
    from headwater.components import Components

    lake = corpus.SCRATCH / "kafka-lake"
    shutil.rmtree(lake, ignore_errors=True)
    lake.mkdir(parents=True)
    uri = stack.parts()["kafka"]["url"].rpartition("/")[0] + f"/bench-{os.getpid()}"
    (lake / "headwater.toml").write_text(settings_text({"log.uri": uri, "log.batch_events": 50_000}))  # type: ignore[dict-item]
    log = Components(lakes.init(lake).settings).log
    at = parse_time("2026-03-01")
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        log.publish([text_event(f"line {n}: my parcel is late", f"c{n % 50}", f"e{n}", at) for n in numbers])
    print(f"{'arm':<12}{'wall s':>9}{'CPU s':>9}{'events per CPU s':>19}{'sustained':>12}")
    costs = {}
    for arm in ARMS:
        costs[arm] = cost = measured(arm, lake)
        assert cost.rows == count, f"{arm}: {cost.rows} rows of {count}"
        print(
            f"{arm:<12}{cost.wall:>9.1f}{cost.cpu:>9.1f}{count / cost.cpu:>19,.0f}{cost.sustained:>12,.0f}", flush=True
        )
    whole = costs["bronze"].cpu / costs["plain"].cpu
    sustained = costs["plain"].sustained / costs["bronze"].sustained
    print(f"bronze costs {whole:.2f} × the plain stream (goal 1.2), sustained {sustained:.2f} ×; both have every event")
    for turn, arm in enumerate(ARMS):
        late = fresh(arm, lake, log, count + turn * (1 + FRESH_BURSTS * FRESH_EVENTS))
        print(f"{arm:<12}fresh after {late[len(late) // 2]:.2f} s, p95 {late[len(late) * 95 // 100]:.2f} s", flush=True)


if __name__ == "__main__":
    main()
