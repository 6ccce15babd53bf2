"""Spark's JVM is killed under a run: one sentence, the exit code of what is unavailable, and the next run goes on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rounds
from waiting import wait_until

from headwater import lake as lakes
from headwater.errors import Unavailable
from headwater.lake import Lake

PATIENCE_SECONDS = 300


def start(lake: Lake, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    given = {**os.environ, **environment}
    line = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), *arguments]
    return subprocess.Popen(line, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def jvm_of(process: "subprocess.Popen[str]") -> int | None:
    """The Java that this process has started, if it has by now."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if b"org.apache.spark.deploy.SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return int(child)
    return None


def wait_for(sign: Path, process: "subprocess.Popen[str]", words: str) -> None:
    wait_until(lambda: sign.exists() and words in sign.read_text(), process, seconds=PATIENCE_SECONDS)


@pytest.fixture
def lake(tmp_path: Path) -> "lakes.Lake":
    rounds.use_cheap_models(tmp_path / "lake")
    made = lakes.init(tmp_path / "lake")
    rounds.put_round(made, rounds.make_media(tmp_path, 0), 0)
    return made


@pytest.mark.parametrize("moment", ["at rest", "in a job"])
def test_a_run_whose_jvm_is_killed_says_so_in_one_sentence(lake: Lake, tmp_path: Path, moment: str) -> None:
    sign = tmp_path / "sign"
    if moment == "at rest":
        running = start(lake, "run", "--json")
        wait_for(lake.settings.lake / "logs" / "headwater.jsonl", running, '"stage": "index"')
    else:
        running = start(lake, "run", "--json", HEADWATER_CALLS=str(sign), HEADWATER_SLOW_SECONDS="60")
        wait_for(sign, running, "\n")
    jvm = jvm_of(running)
    assert jvm is not None
    os.kill(jvm, signal.SIGKILL)
    out, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == Unavailable.exit_code, (out, errors)
    assert "Traceback" not in errors and "py4j" not in errors.lower(), errors
    error = json.loads(out)["error"]
    assert error["kind"] == "Unavailable" and error["retryable"]
    assert "JVM" in error["message"] and "un again" in error["message"]
    last = json.loads((lake.settings.lake / "logs" / "headwater.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "run.failed" and "JVM" in last["error"]


_AGAIN = """
import os, signal, sys
from headwater import lake as lakes
from headwater.errors import Unavailable
from headwater.storage.spark import session as spark

with lakes.open(sys.argv[1]) as lake:
    assert lake.run().started
    lake.put_text("one line more", customer="acme", id="later")
    os.kill(spark._engine.jvm.process.pid, signal.SIGKILL)
    spark._engine.jvm.process.wait()
    print("first", lake.run().done)
    os.kill(spark._engine.jvm.process.pid, signal.SIGKILL)
"""


@pytest.mark.soak
def test_a_program_whose_jvm_was_killed_starts_another_when_it_runs_again(lake: Lake) -> None:
    line = [sys.executable, "-c", _AGAIN, str(lake.settings.lake)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "'bronze': 1" in done.stdout and "Traceback" not in done.stderr, done
