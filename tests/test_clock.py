"""Clocks that are ahead, behind, or set back during a run: rows, positions and leases do not mind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import rounds
from lakes import parts_of

from headwater import clock
from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.domain.tables import TABLES
from headwater.errors import Conflict
from headwater.lake import Lake
from headwater.storage.ledger.ledger import open_ledger

HOUR = timedelta(hours=1)


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


def run_elsewhere(lake: Lake, skew: timedelta) -> None:
    """By a process whose clock is off."""
    environment = {
        **os.environ,
        "HEADWATER_CLOCK_SKEW_SECONDS": str(skew.total_seconds()),
    }
    command = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), "run", "--once"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def undisturbed(directory: Path, media: Path, count: int) -> object:
    rounds.use_cheap_models(directory)
    with lakes.init(directory) as other:
        for number in range(count):
            rounds.put_round(other, media / f"round-{number}", number)
        other.run()
        return rounds.contents(other)


def test_machines_whose_clocks_differ_by_hours_take_turns_and_nothing_is_lost_or_doubled(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds.put_round(lake, rounds.make_media(tmp_path, 0), 0)
    run_elsewhere(lake, HOUR)
    rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
    run_elsewhere(lake, -HOUR)
    rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)

    def set_back(stage: str, done: int) -> None:
        monkeypatch.setattr(clock, "skew", -2 * HOUR)

    lake.run(report=set_back)
    assert not lake.pending()
    lake.maintain()
    assert rounds.contents(lake) == undisturbed(tmp_path / "other", tmp_path, 3)
    for table in TABLES:
        assert lake.spark.table(f"lake.{table.name}").count() == lake.table(table.name).to_arrow().num_rows
        times = [one.timestamp_ms for one in parts_of(lake).catalog.load_table(table.name).metadata.snapshots]
        assert times == sorted(times), "history is in order"


def test_a_lease_of_who_died_before_the_clock_was_set_back_is_not_waited_for(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    lost = ledger.acquire_lease("run", "a machine that was switched off", 60, utc_now() + HOUR)
    taken = ledger.acquire_lease("run", "another", 60, utc_now())
    assert taken.epoch > lost.epoch and taken.takeover
    with pytest.raises(Conflict):
        ledger.acquire_lease("run", "a third", 60, utc_now() - timedelta(seconds=30))
