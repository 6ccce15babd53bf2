"""Processes that fall asleep at a named point of their work, as a machine does that is paused or short of memory."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from waiting import PATIENCE_SECONDS, wait_until

from headwater.lake import Lake


def freeze(lake: Lake, point: str, *command: str) -> "subprocess.Popen[str]":
    """Asleep at a point, with no database locked: where another of its threads was just writing to SQLite, nobody else
    can write until it wakes or dies, which is another story."""
    for _ in range(12):
        zombie = start(lake, point, *(command or ("run", "--once")))
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


def start(lake: Lake, point: str, *command: str) -> "subprocess.Popen[str]":
    name, _, count = point.partition(":")
    environment = {
        **os.environ,
        "HEADWATER_FAULT": f"{name}:{count or 1}:stop",
    }
    line = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), *command]
    return subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_until_frozen(process: "subprocess.Popen[str]") -> None:
    wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", process)


def wake(process: "subprocess.Popen[str]") -> str:
    """Until it has ended; what it said. A point in a worker is passed by each worker, and sends it to sleep again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        process.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=1)[1]
    raise AssertionError("it did not end")


def let_the_lease_run_out(lake: Lake, name: str = "run") -> None:
    """As if it had been silent for long."""
    with closing(sqlite3.connect(lake.settings.lake / "ledger.db")) as connection, connection:
        connection.execute("update leases set renewed_at = '2020-01-01T00:00:00Z' where name = ?", (name,))
