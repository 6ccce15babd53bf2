"""A run on a real standalone cluster gives what a run on one machine gives, and a machine that dies costs nothing."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import rounds
from lakes import parts_of
from waiting import wait_until

from headwater import lake as lakes
from headwater.settings import FILE_NAME
from headwater.stack.stack import Stack

ROUNDS = 2
TESTS = Path(rounds.__file__).parent
# A task that is late gets a twin: whichever is first counts.
CLUSTER = """
[spark.conf]
"spark.executorEnv.HEADWATER_CALLS" = "{calls}"
"spark.executorEnv.{variable}" = "{value}"
"spark.executor.memory" = "768m"
"spark.speculation" = "true"
"spark.speculation.interval" = "50ms"
"spark.speculation.quantile" = "0.1"
"spark.speculation.multiplier" = "1.05"
"spark.speculation.minTaskRuntime" = "0ms"
"""
# Appended to the section above.
ON_DEMAND = """
"spark.dynamicAllocation.enabled" = "true"
"spark.dynamicAllocation.shuffleTracking.enabled" = "true"
"spark.dynamicAllocation.minExecutors" = "0"
"spark.dynamicAllocation.initialExecutors" = "0"
"spark.dynamicAllocation.executorIdleTimeout" = "2s"
"spark.dynamicAllocation.shuffleTracking.timeout" = "2s"
"spark.eventLog.enabled" = "true"
"spark.eventLog.dir" = "file://{events}"
"spark.eventLog.rolling.enabled" = "false"
"spark.eventLog.compress" = "false"
"""
TOLD = ("SparkListenerJobStart", "SparkListenerExecutorAdded", "SparkListenerExecutorRemoved")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lakes.Lake]:
    """The same events on one machine, and what came of them."""
    directory = tmp_path_factory.mktemp("local")
    lake = make_lake(directory / "lake")
    for number in range(ROUNDS):
        rounds.put_round(lake, rounds.make_media(directory / "media", number), number)
    drive(directory / "lake")
    yield lakes.open(directory / "lake")


def make_lake(directory: Path) -> lakes.Lake:
    rounds.use_cheap_models(directory)
    return lakes.init(directory)


def for_the_cluster(directory: Path, variable: str = "PYTHONPATH", value: object = TESTS) -> Path:
    """A lake with the same events, before any run; executors get a variable."""
    lake = make_lake(directory / "lake")
    settings = directory / "lake" / FILE_NAME
    settings.write_text(
        settings.read_text() + CLUSTER.format(calls=directory / "calls", variable=variable, value=value)
    )
    for number in range(ROUNDS):
        rounds.put_round(lake, rounds.make_media(directory / "media", number), number)
    return directory / "lake"


def drive(lake: Path, *options: str, command: str = "run", timeout: float = 400) -> None:
    """In a process of its own: this one may have a Spark already."""
    line = [sys.executable, "-m", "headwater", command, "--once", "--lake", str(lake), *options]
    done = subprocess.run(line, check=False, timeout=timeout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def assert_same(lake: Path, local: lakes.Lake) -> None:
    with lakes.open(lake) as one:
        found, expected = rounds.contents(one), rounds.contents(local)
        for name in expected:
            assert found[name] == expected[name], name
        assert not one.pending()
        assert one.status()["index"] == local.status()["index"]


def left_by_executors(stack: Stack) -> int:
    """Bytes in all that workers keep: executors' directories and their blocks."""
    return sum(file.stat().st_size for file in stack.directory.glob("spark-worker-*/**/*") if file.is_file())


def test_a_run_on_the_cluster_gives_the_tables_of_a_local_run_with_twins_of_tasks(
    local: lakes.Lake, stack: Stack, cluster_url: str, tmp_path: Path
) -> None:
    lake, before = for_the_cluster(tmp_path), left_by_executors(stack)
    drive(lake, "--master", cluster_url)
    assert left_by_executors(stack) - before < 2 << 20, "what executors printed, and nothing that was sent to them"
    assert_same(lake, local)
    # Models were asked on the executors, and speculation may ask one again; nothing came out twice.
    assert len(set((tmp_path / "calls").read_text().split())) == 3 * ROUNDS


def test_a_worker_that_is_killed_mid_run_costs_nothing(
    local: lakes.Lake, stack: Stack, cluster_url: str, tmp_path: Path
) -> None:
    lake = for_the_cluster(tmp_path)
    calls = tmp_path / "calls"

    def kill_one_when_models_are_at_work() -> None:
        wait_until(calls.exists, seconds=300)
        stack.kill("spark-worker-1")

    killer = threading.Thread(target=kill_one_when_models_are_at_work)
    killer.start()
    drive(lake, "--master", cluster_url)
    killer.join()
    assert calls.exists()
    assert_same(lake, local)


def test_spark_submit_runs_the_same_driver(local: lakes.Lake, cluster_url: str, tmp_path: Path) -> None:
    lake = for_the_cluster(tmp_path)
    drive(lake, "--master", cluster_url, command="submit")
    assert_same(lake, local)


def test_a_submitted_run_that_is_told_to_stop_stops_and_gives_its_lease_back(cluster_url: str, tmp_path: Path) -> None:
    lake = for_the_cluster(tmp_path)
    line = [sys.executable, "-m", "headwater", "submit", "--lake", str(lake), "--master", cluster_url]
    with (tmp_path / "said").open("w") as said, lakes.open(lake) as opened:
        parts = parts_of(opened)
        with subprocess.Popen(line, stdout=said, stderr=said) as waiting:
            wait_until((tmp_path / "calls").exists, waiting, seconds=300)
            held = parts.ledger.holder("run", parts.clock())
            waiting.terminate()
            assert waiting.wait(120) == 0, (tmp_path / "said").read_text()[-3000:]
        assert held is not None and held.process.surely_dead()
        assert parts.ledger.holder("run", parts.clock()) is None


def test_executors_come_when_there_is_work_and_go_when_there_is_none(
    local: lakes.Lake, cluster_url: str, tmp_path: Path
) -> None:
    lake = for_the_cluster(tmp_path)
    (tmp_path / "events").mkdir()
    with (lake / FILE_NAME).open("a") as settings:
        settings.write(ON_DEMAND.format(events=tmp_path / "events"))
    line = [sys.executable, "-m", "headwater", "run", "--lake", str(lake), "--master", cluster_url]
    with (tmp_path / "said").open("w") as said, subprocess.Popen(line, stderr=said) as running:
        wait_until(lambda: "SparkListenerExecutorRemoved" in told_in(tmp_path / "events"), running, seconds=300)
        happened = told_in(tmp_path / "events")
        running.terminate()
        assert running.wait(120) == 0, (tmp_path / "said").read_text()[-3000:]
    # The first job finds nobody there.
    assert happened[0] == "SparkListenerJobStart"
    assert "SparkListenerExecutorAdded" in happened
    drive(lake, "--master", cluster_url)  # whatever the stop left
    assert_same(lake, local)


def told_in(events: Path) -> list[str]:
    """What Spark's event log says, in order; its last line may be half written."""
    lines = [line for log in events.iterdir() for line in log.read_text().splitlines(keepends=True)]
    told = [json.loads(line)["Event"] for line in lines if line.endswith("\n")]
    return [event for event in told if event in TOLD]


@pytest.mark.soak
def test_a_packed_environment_is_all_that_an_executor_needs(
    local: lakes.Lake, cluster_url: str, tmp_path: Path
) -> None:
    # The interpreter that the environment was made from: it has no packages of ours.
    lake = for_the_cluster(tmp_path, "PATH", f"{Path(sys.executable).resolve().parent}:{os.defpath}")
    drive(lake, "--master", cluster_url, "--set", "spark.ship=packed", timeout=900)
    assert_same(lake, local)
