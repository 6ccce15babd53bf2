"""Kafka to queryable rows: Headwater's bronze beside Spark's plain Kafka → Iceberg stream, in one run.

Both read the same topic with the same bound on a micro-batch and write an Iceberg table; the plain stream parses the
events and appends, and promises less: no first-seen check, no quarantine, no progress in the table. Cost is the CPU of
the whole process tree after Spark's start. Goal: bronze at most 1.2 × the plain stream's cost.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import corpus
from measure import Meter

from headwater.clock import parse_time
from headwater.flow.land import text_event
from headwater.settings import Settings
from headwater.stack.stack import Stack, settings_text

AT_ONCE = 5_000


def settings_of(lake: Path) -> Settings:
    from headwater import settings

    return settings.load(lake)


def plain(lake: Path) -> int:
    """What a Spark user would write first."""
    from pyspark.sql import functions as F

    from headwater.flow.bronze import EVENT_TYPE
    from headwater.storage.log_stream import stream_log
    from headwater.storage.spark import start_spark

    spark = start_spark(settings_of(lake))
    print("started", flush=True)
    spark.sql("create namespace if not exists lake.plain")
    event = F.from_json("value", EVENT_TYPE).alias("event")
    rows = stream_log(spark, settings_of(lake)).select("log_partition", "log_offset", event)
    rows = rows.select("log_partition", "log_offset", "event.*")
    if not spark.catalog.tableExists("lake.plain.events"):
        rows.sparkSession.createDataFrame([], rows.schema).writeTo("lake.plain.events").create()
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", str(lake / "plain-checkpoint"))
    writer.trigger(availableNow=True).toTable("lake.plain.events").awaitTermination()
    return int(spark.table("lake.plain.events").count())


def bronze(lake: Path) -> int:
    from headwater.components import Components
    from headwater.domain.tables import EVENTS
    from headwater.flow.run import Run
    from headwater.lake import Lake

    parts = Components(settings_of(lake))
    with Lake(parts):
        spark = parts.spark
        print("started", flush=True)
        run = Run(spark, parts.settings, parts.ledger, parts.log, parts.index, parts.clock, lambda *_: None)
        run._begin()
        run._await(run._start_stream(once=True))  # the first stage alone, as `once` runs it
        return int(spark.table(f"lake.{EVENTS.name}").count())


def measured(arm: str, lake: Path) -> tuple[float, float, int]:
    """CPU and wall seconds after the start, and the rows."""
    process = subprocess.Popen([sys.executable, __file__, "--arm", arm, str(lake)], stdout=subprocess.PIPE, text=True)
    meter = Meter(process.pid)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    start, begun = meter.cpu, time.monotonic()
    answer = json.loads(process.stdout.readline())
    result = meter.cpu - start, time.monotonic() - begun, int(answer["rows"])
    process.wait()
    meter.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--arm", nargs=2, help="internal: run one arm")
    options = parser.parse_args()
    if options.arm:
        rows = {"plain": plain, "bronze": bronze}[options.arm[0]](Path(options.arm[1]))
        print(json.dumps({"rows": rows}), flush=True)
        time.sleep(1)  # for the meter's last look
        os._exit(0)
    directory = Path(tempfile.gettempdir()) / f"headwater-bench-stack-{os.getuid()}"
    stack = Stack(directory)
    stack.up(["kafka"], print)
    try:
        compare(stack, options.events)
    finally:
        stack.down(purge=True)


def compare(stack: Stack, count: int) -> None:
    from headwater import lake as lakes

    lake = corpus.SCRATCH / "kafka-lake"
    shutil.rmtree(lake, ignore_errors=True)
    lake.mkdir(parents=True)
    uri = stack.parts()["kafka"]["url"].rpartition("/")[0] + f"/bench-{os.getpid()}"
    (lake / "headwater.toml").write_text(settings_text({"log.uri": uri, "log.batch_events": 50_000}))  # type: ignore[dict-item]
    log = lakes.init(lake)._components.log
    at = parse_time("2026-03-01")
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        log.publish([text_event(f"line {n}: my parcel is late", f"c{n % 50}", f"e{n}", at) for n in numbers])
    print(f"{'arm':<28}{'wall s':>9}{'CPU s':>9}{'events per CPU s':>19}")
    spent = {}
    for arm in ("plain", "bronze"):
        cpu, wall, rows = measured(arm, lake)
        assert rows == count, f"{arm}: {rows} rows of {count}"
        spent[arm] = cpu
        print(f"{arm:<28}{wall:>9.1f}{cpu:>9.1f}{count / cpu:>19,.0f}", flush=True)
    print(f"bronze costs {spent['bronze'] / spent['plain']:.2f} × the plain stream (goal 1.2); both have every event")


if __name__ == "__main__":
    main()
