"""The demo on production parts: the same flow, the same answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_the_whole_demo_runs_on_the_servers(open_directory: Path) -> None:
    command = [sys.executable, "-m", "headwater", "demo", "--stack", "--lake", str(open_directory), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tour = json.loads(done.stdout)
    assert tour["derived"]["bronze.events"] == 21
    assert tour["derived"]["silver.transcripts"] == 6
    assert all(search["hits"] for search in tour["searches"])
    assert tour["trace"]["object"]["exists"]
    assert {row["reason"] for row in tour["quarantine"]["reasons"]} == {"TRUNCATED", "UNREADABLE"}
