"""Rows from table to table: how much of a large batch passes through the driver, and what it costs there.

A lake's bronze is filled with chat by Spark itself, then one batch of derive and one of embed take all of it: on the
stack's cluster, where Spark's tasks carry the rows, and on one machine, where they meet in the driver. Counted are the
bytes of results that tasks send to the driver (Spark's own event log) and of parts that the driver sends to tasks, and,
as the upper bound, all that the driver's JVM and Python read and wrote, jars and its own files among them; measured are
CPU and peak memory of both. Rows are proven equal.
Beside them, what passes through the driver by design: bronze, which judges every key there (`--bronze`: the lines come
from Kafka, in batches of log.batch_events), and the index, which one process writes (`--index`).
Goals: on the cluster less than 1 % of the batch's bytes through the driver; its CPU and memory flat from a tenth of the
rows to all of them.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from headwater.stack.stack import Stack

HERE = Path(__file__).parent
SETTINGS = """[models]
embed = "spread_models:SmallWords"
[run]
batch_rows = {rows}
driver_rows = {driver_rows}
[spark]
memory_mb = 2048
{master}
[spark.conf]
"spark.eventLog.enabled" = "true"
"spark.eventLog.dir" = "file://{events}"
"spark.eventLog.rolling.enabled" = "false"
"spark.eventLog.compress" = "false"
"spark.executorEnv.PYTHONPATH" = "{here}"
"spark.executor.memory" = "1g"
"""
KAFKA = """[log]
uri = "{uri}"
"""


class Peak:
    """The peak of this process's own memory and of its JVM's, the CPU of both, and what they read and wrote."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._java = next(child for child in self._own.children() if child.name() == "java")
        self.python_mb = self.jvm_mb = 0
        self._begun = self._cpu()
        self._passed = self._bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _cpu(self) -> tuple[float, float]:
        return sum(self._own.cpu_times()[:2]), sum(self._java.cpu_times()[:2])

    def _bytes(self) -> tuple[int, int]:
        """By system calls, on sockets and files alike."""
        counted = (process.io_counters() for process in (self._own, self._java))
        python, java = (each.read_chars + each.write_chars for each in counted)
        return python, java

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            self.python_mb = max(self.python_mb, self._own.memory_info().rss >> 20)
            self.jvm_mb = max(self.jvm_mb, self._java.memory_info().rss >> 20)

    def stop(self) -> dict[str, Any]:
        self._done.set()
        self._thread.join()
        python, java = (now - then for now, then in zip(self._cpu(), self._begun, strict=True))
        cpu = {"python_cpu_s": round(python, 1), "jvm_cpu_s": round(java, 1)}
        passed = [now - then for now, then in zip(self._bytes(), self._passed, strict=True)]
        memory = {"python_mb": self.python_mb, "jvm_mb": self.jvm_mb}
        return cpu | memory | {"python_io_bytes": passed[0], "jvm_io_bytes": passed[1]}


def fill(writer: Any, count: int) -> None:
    """Chat of a month, made by Spark's tasks."""
    from pyspark.sql import functions as F

    from headwater.domain.tables import EVENTS

    text = F.concat(F.lit("line "), F.col("id"), F.lit(": my parcel is late, and nobody at the "), F.lit("desk " * 20))
    name = F.concat(F.lit("m"), F.col("id"))
    customer = F.concat(F.lit("c"), F.col("id") % 50)
    pointer = F.struct(
        F.concat_ws("/", F.lit("chat"), customer, name).alias("path"),
        F.lit(0).cast("long").alias("offset"),
        F.length("text").cast("long").alias("size"),
        F.lit("text/plain").alias("content_type"),
        F.sha2("text", 256).alias("checksum"),
        F.lit(None).cast("string").alias("version_id"),
        F.lit(None).cast("string").alias("etag"),
    )
    made = (
        writer.spark.range(count)
        .withColumn("text", text)
        .select(
            name.alias("event_id"),
            F.concat_ws("/", F.lit("chat"), customer, name).alias("object_id"),
            F.lit("chat").alias("modality"),
            customer.alias("customer"),
            F.timestamp_seconds(F.lit(1_772_366_400) + F.col("id") % 250_000).alias("occurred_at"),
            pointer.alias("pointer"),
            "text",
            F.sha2(name, 256).alias("content_hash"),
            F.lit(True).alias("first_of_object"),
            F.lit(0).alias("log_partition"),
            F.col("id").alias("log_offset"),
            F.timestamp_seconds(F.lit(1_772_366_400)).alias("bronze_at"),
        )
    )
    writer.publish(EVENTS, made, {"log": {"0": count}}, stage="bronze")


def bronze_arm(directory: Path, count: int) -> None:
    """The intake of a stream: its batches, one after the other, as a run brings them in."""
    import threading

    from headwater import lake as lakes
    from headwater.components import Components
    from headwater.domain.tables import EVENTS
    from headwater.flow.drive.open_intake import open_intake
    from headwater.flow.land_text import text_event
    from headwater.flow.runner import RunContext
    from headwater.settings import load
    from headwater.upkeep import work

    lakes.init(directory / "lake").close()
    parts = Components(load(directory / "lake"))
    with lakes.Lake(parts) as lake:
        at = parts.clock()
        said = "my parcel is late, and nobody at the " + "desk " * 20
        for first in range(0, count, 10_000):
            numbers = range(first, min(count, first + 10_000))
            parts.log.publish([text_event(f"line {n}: {said}", f"c{n % 50}", f"m{n}", at) for n in numbers])
        context = RunContext(
            work.new_writer(parts, None), parts.ledger, parts.log, parts.index, parts.clock, threading.Event()
        )
        peak, begun, mark = Peak(), time.monotonic(), results_so_far(directory)
        intake = open_intake(context, lambda *_: None, lambda *_: None)
        intake.resume()
        intake.drain()
        told = {"wall_s": round(time.monotonic() - begun, 1), **peak.stop(), "sent_bytes": 0}
        told["result_bytes"] = results_so_far(directory) - mark
        read = lake.table(EVENTS.name).to_arrow()
        assert len(read) == count
        told["batch_bytes"] = read.nbytes
        told["keys_bytes"] = read.select(["event_id", "object_id", "content_hash"]).nbytes
    print(json.dumps({"rows": count, "bronze": told}), flush=True)


def arm(directory: Path, count: int, *, index: bool) -> None:
    from headwater import lake as lakes
    from headwater.components import Components
    from headwater.domain.tables import EMBEDDINGS, EVENTS, MESSAGES
    from headwater.flow import partitions as dealing
    from headwater.flow.derive.plan import plan_work
    from headwater.flow.derive.stage import derive_next
    from headwater.flow.drive.register_models import settle_models
    from headwater.flow.embed.stage import embed_next
    from headwater.flow.index import index_next
    from headwater.flow.rows import BatchLimit
    from headwater.settings import load
    from headwater.storage.ledger.model_book import read_book
    from headwater.upkeep import work

    sent = [0]
    pack = dealing._pack

    def counted(*arguments: Any) -> bytes:
        packed = pack(*arguments)
        sent[0] += len(packed)
        return packed

    dealing._pack = counted
    lakes.init(directory / "lake").close()
    components = Components(load(directory / "lake"))
    with lakes.Lake(components) as lake:
        writer = work.new_writer(components, None)
        settle_models(lake.settings, components.ledger, components.clock)
        fill(writer, count)
        book, workers = read_book(components.ledger), writer.spark.sparkContext.defaultParallelism
        told: dict[str, Any] = {"rows": count}
        for stage in ("derive", "embed", *(["index"] if index else [])):
            peak, begun, sent[0] = Peak(), time.monotonic(), 0
            mark = results_so_far(directory)
            if stage == "derive":
                planned = plan_work(lake.settings, book, now=components.clock(), share=workers)
                derived = derive_next(writer, planned, BatchLimit(count, 1 << 50), workers, lambda passing, slow: None)
                assert derived is not None and derived.events == count
            elif stage == "index":
                while index_next(writer, components.ledger, components.index, batch_rows=20_000):
                    pass
            else:
                made = embed_next(writer, book.kept("embed"), batch_rows=count, clock=components.clock)
                while made is not None:  # where rows meet, a batch is smaller
                    made = embed_next(writer, book.kept("embed"), batch_rows=count, clock=components.clock)
            told[stage] = {"wall_s": round(time.monotonic() - begun, 1), **peak.stop(), "sent_bytes": sent[0]}
            told[stage]["result_bytes"] = results_so_far(directory) - mark
        if index:
            told["index"]["batch_bytes"] = lake.table(EMBEDDINGS.name).to_arrow().nbytes
        tables = {EVENTS: "derive", MESSAGES: "derive", EMBEDDINGS: "embed"}
        for table, stage in tables.items():
            read = lake.table(table.name).to_arrow()
            told[stage]["batch_bytes"] = told[stage].get("batch_bytes", 0) + read.nbytes
            if table is not EVENTS:
                told[stage]["digest"] = digest(read, table.name)
    print(json.dumps(told), flush=True)


def results_so_far(directory: Path) -> int:
    """What tasks have sent to the driver, as Spark wrote it down."""
    time.sleep(2)  # its listeners are a moment behind
    total = 0
    for file in (directory / "events").iterdir():
        for line in file.open():
            if '"SparkListenerTaskEnd"' in line[:60]:
                total += (json.loads(line).get("Task Metrics") or {}).get("Result Size", 0)
    return total


def digest(rows: Any, name: str) -> str:
    """Of all rows, whatever their order, without what differs from run to run."""
    incidental = {"seq", "derived_at", "model_seconds"}
    kept = rows.select([column for column in rows.column_names if column not in incidental])
    key = "chunk_id" if "chunk_id" in kept.column_names else "object_id"
    ordered = kept.sort_by(key).combine_chunks()
    hashed = hashlib.sha256(name.encode())
    for batch in ordered.to_batches(max_chunksize=50_000):
        for row in batch.to_pylist():
            hashed.update(repr(sorted(row.items())).encode())
    return hashed.hexdigest()[:16]


@contextmanager
def cluster(*more: str) -> Iterator[dict[str, str]]:
    """Addresses by part."""
    stack = Stack(Path(tempfile.gettempdir()) / f"headwater-bench-spread-{os.getuid()}")
    stack.up(["spark", *more], print)
    try:
        yield {name: str(part["url"]) for name, part in stack.parts().items()}
    finally:
        stack.down(purge=True)


def run_arm(where: str, count: int, master: str, driver_rows: int, *options: str, log: str = "") -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix=f"headwater-{where}-"))
    (directory / "lake").mkdir()
    (directory / "events").mkdir()
    text = SETTINGS.format(
        rows=max(count, 1),
        driver_rows=driver_rows,
        master=f'master = "{master}"' if master else "",
        events=directory / "events",
        here=HERE,
    )
    (directory / "lake" / "headwater.toml").write_text((KAFKA.format(uri=log) if log else "") + text)
    command = [sys.executable, __file__, "--arm", str(directory), str(count), *options]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return told
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bronze", action="store_true", help="measure bronze, from Kafka on the cluster, and no more")
    parser.add_argument("--index", action="store_true", help="measure the index too")
    parser.add_argument("--arm", nargs=2, help="internal: run one arm")
    options = parser.parse_args()
    if options.arm:
        directory, count = Path(options.arm[0]), int(options.arm[1])
        bronze_arm(directory, count) if options.bronze else arm(directory, count, index=options.index)
        return
    if options.bronze:
        with cluster("kafka") as parts:
            for count in (options.rows // 10, options.rows):
                log = parts["kafka"].rpartition("/")[0] + f"/bench-{count}"
                show(f"cluster, {count}", run_arm("bronze", count, parts["spark-master"], 0, "--bronze", log=log))
        return
    more = ["--index"] if options.index else []
    with cluster() as parts:
        found = {
            "cluster, a tenth": run_arm("cluster", options.rows // 10, parts["spark-master"], 0, *more),
            "cluster": run_arm("cluster", options.rows, parts["spark-master"], 0, *more),
        }
    found["one machine, a tenth"] = run_arm("local", options.rows // 10, "", 0)
    # As before: all rows of a batch meet in the driver. A tenth of them, or it would need all memory that there is.
    found["in the driver, a tenth"] = run_arm("driver", options.rows // 10, "", 1 << 40)
    for name, told in found.items():
        show(name, told)
    for stage in ("derive", "embed"):
        tenths = {found[name][stage]["digest"] for name in found if "tenth" in name}
        assert len(tenths) == 1, f"{stage}: rows differ between the ways"
    print("rows are equal in all ways; goal: less than 1 % through the driver on the cluster")


def show(name: str, told: dict[str, Any]) -> None:
    for stage in ("bronze", "derive", "embed", "index"):
        if stage not in told:
            continue
        line = told[stage]
        through = line["result_bytes"] + line["sent_bytes"]
        print(
            f"{name:<24}{stage:<8}{told['rows']:>10,} rows{line['wall_s']:>8.1f} s  driver: Python "
            f"{line['python_cpu_s']:>6.1f} CPU s {line['python_mb']:>5} MB, JVM {line['jvm_cpu_s']:>6.1f} CPU s "
            f"{line['jvm_mb']:>5} MB; results and parts {through / 1e6:.2f} MB of {line['batch_bytes'] / 1e6:.1f} "
            f"({100 * through / line['batch_bytes']:.3f} %); all I/O: JVM {line['jvm_io_bytes'] / 1e6:.1f} MB, "
            f"Python {line['python_io_bytes'] / 1e6:.1f} MB"
            + (f"; keys and hashes {line['keys_bytes'] / 1e6:.1f} MB" if "keys_bytes" in line else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
