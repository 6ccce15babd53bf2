"""The flow inside somebody's own Spark: the same rows, whatever that is set to, and it is left as it was; where it
cannot be, a sentence says what is missing."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import rounds
from conftest import lake_settings
from printed_recipe import run_script

import headwater
from headwater.errors import InvalidRequest
from headwater.lake import Lake
from headwater.settings import resolve
from headwater.storage.spark.existing_session import sql_conf

MADE = 1_772_325_000  # half an hour after midnight, UTC
TABLES = (
    "bronze.events",
    "silver.metadata",
    "silver.captions",
    "silver.messages",
    "silver.embeddings",
    "silver.quarantine",
)

INSIDE = """
import json, sys, threading
import headwater
from pyspark import RDD
from pyspark.sql import SparkSession
from headwater.storage.spark.existing_session import cancel_jobs, session_inside, tagged_jobs
from waiting import wait_until

directory = sys.argv[1]
lake, other = (headwater.open(place, {"run.driver_rows": rows}) for place, rows in zip(sys.argv[1:], (0, 1)))
exec(lake.upkeep.connect("spark").code)
context = spark.sparkContext
ODD = {
    "spark.sql.session.timeZone": "Asia/Kolkata", "spark.sql.ansi.enabled": "false", "spark.sql.caseSensitive": "true",
    "spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "3",
    "spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
    "spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.other.type": "hadoop", "spark.sql.catalog.other.warehouse": directory + "/other",
}
for name, value in ODD.items():
    spark.conf.set(name, value)
spark.sql("create namespace other.mine")
spark.sql("use other.mine")
spark.range(7).createOrReplaceTempView("view")
PROPERTIES = ("spark.scheduler.pool", "spark.jobGroup.id", "spark.job.description", "spark.job.tags", "mine")
context.setJobGroup("group", "what I do")
context.setLocalProperty("spark.scheduler.pool", "pool")
context.setLocalProperty("mine", "yes")

def state():
    default = spark._jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return {
        "conf": dict(spark.conf.getAll), "default": default.equals(spark._jsparkSession),
        "place": spark.sql("select current_catalog(), current_database()").collect()[0],
        "properties": [context.getLocalProperty(name) for name in PROPERTIES], "view": spark.table("view").count(),
        "active": SparkSession.getActiveSession() is spark, "python": context.pythonExec,
        "frame": context.parallelize([(1,)]).toDF(["a"]).sparkSession is spark, "streams": len(spark.streams.active),
    }

before = state()
ran = [lake.run(spark=spark).done, other.run(spark=spark).done]
again = lake.run(spark=spark)
after = state()
assert before == after, (before, after)

# A stop of ours ends ours alone.
def busy(session, name, *, rdd=False):
    def work():
        try:
            context.setJobGroup(name, name)
            if rdd:
                with tagged_jobs(session):
                    context.parallelize([0], 1).map(lambda _: sum(number % 7 for number in range(1 << 40))).count()
            else:
                session.range(0, 1 << 40, 1, 1).selectExpr("sum(id % 7)").collect()
        except Exception:
            ended.add(name)
    threading.Thread(target=work, daemon=True).start()
    wait_until(lambda: context.statusTracker().getJobIdsForGroup(name))
ended = set()
with session_inside(spark, lake.settings) as ours:
    busy(spark, "theirs")
    busy(ours, "ours")
    busy(ours, "ours by hand", rdd=True)
    cancel_jobs(ours)
    wait_until(lambda: {"ours", "ours by hand"} <= ended)
    assert "theirs" not in ended
context.cancelJobGroup("theirs")
wait_until(lambda: "theirs" in ended)
lake.close()
other.close()
assert spark.range(3).count() == 3, "it is not stopped with the lake"
print(json.dumps([ran, again.started]))
"""

REFUSED = """
import sys
import headwater
from headwater.errors import InvalidRequest
from pyspark.sql import SparkSession
lake = headwater.open(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
def refusal():
    try:
        lake.run(spark=spark)
    except InvalidRequest as error:
        return str(error)
for _ in range(2):
    print(refusal())
    print("--")
print(spark.range(3).count())
try:
    lake.spark
except headwater.errors.Conflict as error:
    print(error)
spark.stop()
print(refusal())
"""


def filled(directory: Path) -> Lake:
    rounds.use_cheap_models(directory)
    lake = headwater.init(directory)
    files = directory.parent / "files"
    files.mkdir()
    (files / "note.md").write_text("# Refunds\n\nThe refund never arrived.\n\n## Then\n\nIt did.")
    (files / "broken.pdf").write_bytes(b"%PDF-1.7 and no more")
    lines = [
        {"id": f"m{number}", "customer": f"c{number % 3}", "at": f"2026-03-0{1 + number % 5}T23:{10 + number}:00+00:00",
         "text": f"line {number} about the bill"} for number in range(40)
    ]  # fmt: skip
    lake.put_rows(lines)
    for file in files.iterdir():
        os.utime(file, (MADE, MADE))
    lake.put(files, customer="acme")
    return lake


def rows_of(lake: Lake, table: str) -> list[str]:
    """All that is the same in every run: not when it was made and in what time, nor the number it came by."""
    found = lake.table(table).to_arrow().to_pylist()
    left_out = {"seq", "event_seq", "bronze_at", "derived_at", "embedded_at", "quarantined_at", "model_seconds"}
    return sorted(repr({name: value for name, value in row.items() if name not in left_out}) for row in found)


@pytest.mark.soak  # two minutes; on servers it is sampled by tests/stack/test_existing_session_on_servers.py
def test_a_run_inside_somebodys_spark_makes_the_same_rows_and_leaves_it_as_it_was(engine: None, tmp_path: Path) -> None:
    # Batches in the driver's hands, and batches that Spark's tasks carry: the second goes by what SQL is set to.
    inside = [filled(tmp_path / name / "lake") for name in ("small batches", "large batches")]
    said = run_script(INSIDE, tmp_path, *(lake.settings.lake for lake in inside))
    ran, again = json.loads(said.splitlines()[-1])
    assert all(done["bronze"] == done["derive"] == 42 for done in ran) and not again
    with filled(tmp_path / "plain" / "lake") as plain:
        plain.run()
        for lake in inside:
            for table in TABLES:
                assert rows_of(lake, table) == rows_of(plain, table), table
            assert [hit.entry.object_id for hit in lake.search("refund", customer="acme")]
            lake.close()


def test_a_session_without_the_jars_is_refused_with_what_gives_them_and_goes_on(tmp_path: Path) -> None:
    headwater.init(tmp_path / "lake").close()
    said = run_script(REFUSED, tmp_path, tmp_path / "lake")
    first, second, rest = said.split("--\n")
    with headwater.open(tmp_path / "lake") as lake:
        packages = lake.upkeep.connect("spark").conf["spark.jars.packages"]
    assert first == second and "lacks iceberg-spark-runtime-4.0_2.13 1.11.0" in first and "lacks sqlite-jdbc" in first
    assert f"spark.jars.packages={packages}" in first and "headwater connect --spark" in first
    count, conflict, stopped = rest.strip().splitlines()
    assert count == "3" and "lake.run(spark=session)" in conflict and "was stopped" in stopped


def test_workers_that_cannot_run_headwater_are_told_before_anything_is_done(tmp_path: Path) -> None:
    headwater.init(tmp_path / "lake").close()
    code = REFUSED.replace(
        "spark = SparkSession.builder.getOrCreate()", 'exec(lake.upkeep.connect("spark").code.rpartition("rows =")[0])'
    )
    said = run_script(code, tmp_path, tmp_path / "lake", python="/no/such/python")
    first = said.partition("--\n")[0]
    assert "its workers (/no/such/python) cannot run Headwater" in first
    assert f"PYSPARK_PYTHON={sys.executable}" in first and "spark.jars.packages" not in first


def test_a_session_of_spark_connect_is_refused_in_a_sentence(tmp_path: Path) -> None:
    # Its client is no dependency of ours; what tells it apart is where its class is from.
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with (
        headwater.init(tmp_path / "lake") as lake,
        pytest.raises(InvalidRequest, match=r"Spark Connect.*lake\.run\(\)"),
    ):
        lake.run(spark=remote)


def test_what_is_no_session_is_told_so(tmp_path: Path) -> None:
    other: Any = "local[2]"
    with (
        headwater.init(tmp_path / "lake") as lake,
        pytest.raises(InvalidRequest, match="SparkSession, and this is a str"),
    ):
        lake.run(spark=other)


def test_its_sql_is_set_as_ours_is_and_the_number_of_parts_as_a_cluster_needs(tmp_path: Path) -> None:
    own = "spark.sql.shuffle.partitions"
    settings = lake_settings(tmp_path)
    near, far = sql_conf(settings, "local[2]"), sql_conf(settings, "spark://cluster.example:7077")
    assert own in near and own not in far and near["spark.sql.session.timeZone"] == "UTC"
    assert all(name.startswith("spark.sql.") for name in near)
    chosen = resolve(tmp_path, {"spark": {"conf": {own: "700"}}}, {}, {})
    assert sql_conf(chosen, "yarn")[own] == sql_conf(chosen, "local")[own] == "700"


def test_a_session_of_our_own_is_one_to_run_in(engine: None, tmp_path: Path) -> None:
    with filled(tmp_path / "lake") as lake:
        assert lake.run(spark=lake.spark).done["bronze"] == 42
        assert lake.spark.range(2).count() == 2
