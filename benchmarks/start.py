"""How long Spark takes from nothing to the first committed rows: plain `spark.jars.packages` beside Headwater's start.

Each arm is a cold process that makes a session, a table and one append; the arms take turns, so a busy machine slows
both. The plain arm resolves from a warm Ivy cache, as a second start would. Goal: about a third of its time.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARMS = ("plain", "headwater")


def plain(lake: Path) -> "SparkSession":
    from pyspark.sql import SparkSession

    from headwater.settings import resolve
    from headwater.storage.spark.jars import EMBEDDED
    from headwater.storage.spark.session import catalog_conf

    packages = ",".join(f"{jar.group}:{jar.artifact}:{jar.revision}" for jar in EMBEDDED)
    builder = SparkSession.builder.master("local[*]").config("spark.jars.packages", packages)
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    for name, value in catalog_conf(resolve(lake, {}, {}, {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def headwater(lake: Path) -> "SparkSession":
    from headwater.settings import resolve
    from headwater.storage.spark.session import start_spark

    return start_spark(resolve(lake, {}, {}, {}))


def arm(name: str) -> dict[str, float]:
    """In a process of its own: to the first commit, wall and CPU seconds of it and its JVM."""
    with tempfile.TemporaryDirectory() as directory:
        start = time.monotonic()
        session = {"plain": plain, "headwater": headwater}[name](Path(directory))
        ready = time.monotonic()
        session.sql("create namespace lake.n")
        session.sql("create table lake.n.t (id bigint, name string) using iceberg")
        session.range(100).selectExpr("id", "cast(id as string) name").writeTo("lake.n.t").append()
        done = time.monotonic()
        me = psutil.Process()
        times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
        cpu = sum(spent.user + spent.system for spent in times)
        session.stop()
    return {"session": ready - start, "commit": done - start, "cpu": cpu}


def measured(name: str) -> dict[str, float]:
    child = subprocess.run([sys.executable, __file__, "--arm", name], capture_output=True, text=True, check=True)
    return {key: float(value) for key, value in json.loads(child.stdout.splitlines()[-1]).items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--arm", choices=ARMS)
    chosen = options.parse_args()
    if chosen.arm:
        print(json.dumps(arm(chosen.arm)))
        return
    measured("plain")  # warms Ivy's cache and the disk's; not counted
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    for _ in range(chosen.rounds):
        for name in ARMS:
            runs[name].append(measured(name))
    medians = {
        name: {key: statistics.median(run[key] for run in runs[name]) for key in ("session", "commit", "cpu")}
        for name in ARMS
    }
    print(f"{'start of Spark':<16}{'session s':>10}{'first commit s':>16}{'low-high':>14}{'CPU s':>8}")
    for name in ARMS:
        commits = sorted(run["commit"] for run in runs[name])
        row = medians[name]
        spread = f"{commits[0]:.1f}-{commits[-1]:.1f}"
        print(f"{name:<16}{row['session']:>10.1f}{row['commit']:>16.1f}{spread:>14}{row['cpu']:>8.1f}")
    wall, cpu = (medians["headwater"][key] / medians["plain"][key] for key in ("commit", "cpu"))
    print(
        f"headwater / plain: {wall:.2f} of the wall time, {cpu:.2f} of the CPU (median of {chosen.rounds}; goal 0.33)"
    )


if __name__ == "__main__":
    main()
