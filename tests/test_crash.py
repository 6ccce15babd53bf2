"""Killed anywhere and started again, a run gives what an undisturbed one does: no loss, no repeat, no second call."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

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


# A kill leaves no call to be made again, unless one was in hand: between a call and its memo, at a random moment, or
# where embed and index work on what an earlier run left while models are asked for the new.
CERTAIN = ("bronze", "quarantine", "derive.memoised", "derive.quarantined", "derive.staged", "derive.published")


def run_lake(lake: Path, calls: Path, kill: str | None = None) -> int:
    """`kill` is a named point, or `after N s`."""
    environment = {**os.environ, "HEADWATER_CALLS": str(calls)}
    environment.pop("HEADWATER_FAULT", None)
    seconds = 240.0
    if kill and kill.startswith("after "):
        seconds = float(kill.split()[1])
    elif kill:
        environment["HEADWATER_FAULT"] = kill
    process = subprocess.Popen([sys.executable, "-c", _DRIVE, str(lake)], env=environment)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@pytest.mark.kills
@pytest.mark.timeout(1500)
def test_killed_at_every_point_and_started_again_equals_one_undisturbed_run(tmp_path: Path) -> None:
    assert {kill.partition(":")[0] for kill in KILLS} <= set(faults.POINTS)
    disturb_and_compare(tmp_path, KILLS)


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_a_hundred_kills_at_random_points_and_moments_change_nothing(tmp_path: Path) -> None:
    random = Random(20_261_115)
    points = [f"{random.choice(KILLS).partition(':')[0]}:{random.randint(1, 3)}" for _ in range(50)]
    moments = [f"after {random.uniform(1, 25):.1f} s" for _ in range(50)]
    kills = [kill for pair in zip(points, moments, strict=True) for kill in pair]
    disturb_and_compare(tmp_path, kills, surely=False)


def disturb_and_compare(tmp_path: Path, kills: Sequence[str], *, surely: bool = True) -> None:
    """A round of media before each kill, on two lakes; one is killed each time, the other runs once at the end."""
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    calls, once = tmp_path / "calls", tmp_path / "calls-undisturbed"
    for lake in (disturbed, undisturbed):
        rounds.use_cheap_models(lake)
        lakes.init(lake).close()

    for number, kill in enumerate(kills):
        folder = rounds.make_media(tmp_path / "media", number)
        for lake in (disturbed, undisturbed):
            rounds.put_round(lakes.open(lake), folder, number)
        code = run_lake(disturbed, calls, kill)
        assert code == -signal.SIGKILL or (code == 0 and not surely), f"{kill} was not reached"
    assert run_lake(disturbed, calls) == 0
    assert run_lake(undisturbed, once) == 0

    with lakes.open(disturbed) as one, lakes.open(undisturbed) as other:
        found, expected = rounds.contents(one), rounds.contents(other)
        for name in expected:
            assert found[name] == expected[name], name
        rounds.check_raw_is_counted(one)
        assert one.status()["duplicates"] == other.status()["duplicates"] == len(kills)
        entries = {"entries": len(expected["silver.embeddings"]), "stale_by": 0}
        assert one.status()["index"] == other.status()["index"] == entries

    # Two calls and a picture a round, each for two customers: equal bytes are one call. A kill between a call and its
    # memo loses what was in hand: at most that round's three.
    made = Counter(calls.read_text().split())
    assert len(made) == 3 * len(kills) == Counter(once.read_text().split()).total()
    unremembered = sum(not kill.startswith(CERTAIN) for kill in kills) * 3
    assert made.total() <= len(made) + unremembered
