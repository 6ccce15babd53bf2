"""Killed anywhere and started again, a run gives what an undisturbed one does: no loss, no repeat, no second call."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import rounds

from headwater import faults
from headwater import lake as lakes

# A kill at each named point that a run passes; ":2" is the second time, in another table of the same batch.
KILLS = (
    "bronze.keyed",
    "quarantine.staged",
    "quarantine.published",
    "bronze.quarantined",
    "bronze.staged",
    "bronze.published",
    "derive.called",
    "derive.called:3",
    "derive.memoised",
    "derive.memoised:2",
    "derive.quarantined",
    "derive.staged",
    "derive.staged:2",
    "derive.published",
    "derive.published:2",
    "derive.published:4",
    "embed.staged",
    "embed.published",
    "index.upserted",
    "bronze.published",
)
_DRIVE = "import sys, headwater.lake as lakes; lake = lakes.open(sys.argv[1]); lake.run(); lake.close()"


def run_lake(lake: Path, calls: Path, fault: str | None = None) -> int:
    environment = {**os.environ, "HEADWATER_CALLS": str(calls), "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop("HEADWATER_FAULT", None)
    if fault:
        environment["HEADWATER_FAULT"] = fault
    return subprocess.run(
        [sys.executable, "-c", _DRIVE, str(lake)], env=environment, timeout=240, check=False
    ).returncode


def remembered(lake: Path) -> set[str]:
    return {path.name for path in (lake / "memo").rglob("*.json")}


@pytest.mark.timeout(1500)
def test_killed_at_every_point_and_started_again_equals_one_undisturbed_run(tmp_path: Path) -> None:
    assert {kill.partition(":")[0] for kill in KILLS} <= set(faults.POINTS)
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    calls = tmp_path / "calls"
    for lake in (disturbed, undisturbed):
        rounds.use_cheap_models(lake)
        lakes.init(lake).close()

    for number, kill in enumerate(KILLS):
        folder = rounds.make_media(tmp_path / "media", number)
        for lake in (disturbed, undisturbed):
            rounds.put_round(lakes.open(lake), folder, number)
        assert run_lake(disturbed, calls, kill) == -signal.SIGKILL, f"{kill} was not reached"
        if kill == KILLS[-1]:
            shutil.rmtree(disturbed / "checkpoints")  # a hint, never the truth
    assert run_lake(disturbed, calls) == 0
    assert run_lake(undisturbed, tmp_path / "calls-undisturbed") == 0

    with lakes.open(disturbed) as one, lakes.open(undisturbed) as other:
        found, expected = rounds.contents(one), rounds.contents(other)
        for name in expected:
            assert found[name] == expected[name], name
        assert one.status()["duplicates"] == other.status()["duplicates"] == len(KILLS)
        assert (
            one.status()["index"]
            == other.status()["index"]
            == {"entries": len(expected["silver.embeddings"]), "stale_by": 0}
        )

    # Two calls and a picture a round, each for two customers: equal bytes are one call. A kill between a call and its
    # memo loses what was in hand: at most that round's three.
    made = Counter(calls.read_text().split())
    assert len(made) == 3 * len(KILLS)
    unremembered = sum(kill.startswith("derive.called") for kill in KILLS) * 3
    assert made.total() <= len(made) + unremembered
    assert Counter((tmp_path / "calls-undisturbed").read_text().split()).total() == 3 * len(KILLS)
