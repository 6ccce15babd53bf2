"""A run that is frozen, replaced and woken is refused wherever it was; nothing of it is written, the next is clean."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import rounds

from headwater import lake as lakes
from headwater.domain.tables import TABLES
from headwater.lake import Lake
from headwater.storage.peek import peek_progress

PATIENCE_SECONDS = 180
# Where a run may fall asleep: before and after it has read, claimed, staged, written and landed something.
POINTS = (
    "bronze.keyed",
    "bronze.staged",
    "bronze.published",
    "derive.quarantined",
    "derive.staged",
    "embed.staged",
    "index.upserted",
    "commit.proposed",
    "commit.written",
    "commit.landed",
)
SAMPLE = ("bronze.keyed", "derive.staged", "index.upserted", "commit.written")


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        rounds.put_round(made, rounds.make_media(tmp_path, 0), 0)
        made.run()
        rounds.put_round(made, rounds.make_media(tmp_path, 1), 1)
        yield made


@pytest.mark.parametrize("point", SAMPLE)
def test_a_frozen_run_that_was_replaced_writes_nothing_when_it_wakes(lake: Lake, tmp_path: Path, point: str) -> None:
    check(lake, tmp_path, point)


@pytest.mark.soak
@pytest.mark.parametrize("point", [*POINTS, *(f"commit.written:{number}" for number in range(2, 8))])
def test_a_frozen_run_is_harmless_wherever_it_fell_asleep(lake: Lake, tmp_path: Path, point: str) -> None:
    check(lake, tmp_path, point)


def check(lake: Lake, tmp_path: Path, point: str) -> None:
    zombie = freeze(lake, point)
    try:
        let_the_lease_run_out(lake)
        lake.run()
        replaced = rounds.contents(lake), positions(lake)
        zombie.send_signal(signal.SIGCONT)
        _, errors = zombie.communicate(timeout=PATIENCE_SECONDS)
    finally:
        zombie.kill()
        zombie.wait()
    assert zombie.returncode == 4, errors
    assert "Traceback" not in errors
    assert (rounds.contents(lake), positions(lake)) == replaced, "nothing of it was written"
    assert not lake.pending()
    lake.run()
    rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)
    lake.run()
    assert (rounds.contents(lake)) == undisturbed(tmp_path)
    assert lake._components.index.count() == lake.table("embeddings").to_arrow().num_rows


def freeze(lake: Lake, point: str) -> "subprocess.Popen[str]":
    """Asleep at a point, with no database locked: where another of its threads was just writing to SQLite, nobody else
    can write until it wakes or dies, which is another story."""
    for _ in range(5):
        zombie = start(lake, point)
        wait_until_frozen(zombie)
        if not any(is_locked(lake.settings.lake / name) for name in ("ledger.db", "catalog.db")):
            return zombie
        zombie.kill()
        zombie.wait()
    raise AssertionError("it never fell asleep without a lock")


def is_locked(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=1)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return True
        return False


def start(lake: Lake, point: str) -> "subprocess.Popen[str]":
    name, _, count = point.partition(":")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "HEADWATER_FAULT": f"{name}:{count or 1}:stop",
    }
    command = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), "run", "--once"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_until_frozen(process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert process.poll() is None, f"it ended before it froze: {process.communicate()[1]}"
        assert time.monotonic() < deadline, "it did not get there"
        time.sleep(0.05)


def let_the_lease_run_out(lake: Lake) -> None:
    """As if it had been silent for long."""
    with closing(sqlite3.connect(lake.settings.lake / "ledger.db")) as connection, connection:
        connection.execute("update leases set renewed_at = '2020-01-01T00:00:00Z' where name = 'run'")


def positions(lake: Lake) -> dict[str, tuple[int, object]]:
    found = {table.name: peek_progress(lake.settings, table) for table in TABLES}
    return {name: (told.next_seq, told.consumed) for name, told in found.items()}


def undisturbed(tmp_path: Path) -> object:
    """What three rounds come to where nobody slept."""
    directory = tmp_path / "undisturbed"
    rounds.use_cheap_models(directory)
    with lakes.init(directory) as other:
        for number in range(3):
            rounds.put_round(other, tmp_path / f"round-{number}", number)
        other.run()
        return rounds.contents(other)
