"""A reader plans, then compaction and expiry take its files away: it answers from a newer snapshot, or says so; the
count is never wrong."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zombies
from lakes import parts_of
from sample_rows import rows
from waiting import wait_until

from headwater import lake as lakes
from headwater.domain.tables import EVENTS, MESSAGES
from headwater.errors import NotFound, SnapshotExpired
from headwater.lake import Lake
from headwater.storage.io.local_path import local_path
from headwater.storage.query import reader as reading
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import HOUR_MS, Keep
from headwater.storage.tables.writer import TableWriter

if TYPE_CHECKING:
    from pyiceberg.table import Table

LINES = 4
COUNT = "select count(*) as n, count(distinct text) as texts from messages"


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        for number in range(LINES):
            add(made, number)
        yield made


def add(lake: Lake, number: int) -> None:
    row = {"object_id": f"o{number}", "event_id": f"e{number}", "customer": "acme", "text": f"line {number}"}
    given = rows(MESSAGES, [row]).select(MESSAGES.columns)
    TableWriter(lake.spark, lake.settings).publish(MESSAGES, given, {EVENTS.name: number + 1}, stage="derive")


def move_rows_to_other_files(lake: Lake) -> None:
    """As if hours had gone by: only the newest snapshot and what somebody named keep their files."""
    lake.maintain()
    last = int(Committer(lake.settings).tables.base(MESSAGES.name).metadata["last-updated-ms"])
    Committer(lake.settings, lambda: last + 9 * HOUR_MS).expire(MESSAGES.name, Keep(hours=1, newest=1, age=True))


def data_files(lake: Lake) -> list[Path]:
    table = parts_of(lake).catalog.load_table(MESSAGES.name)
    return [Path(local_path(task.file.file_path)) for task in table.scan().plan_files()]


@pytest.mark.parametrize(("tagged", "expected"), [(False, LINES + 1), (True, LINES)])
def test_a_query_whose_files_expire_under_it_plans_again_unless_a_tag_keeps_them(
    lake: Lake, tagged: bool, expected: int
) -> None:
    planned = data_files(lake)
    if tagged:
        table = parts_of(lake).catalog.load_table(MESSAGES.name)
        table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "keep-me").commit()  # type: ignore[union-attr]
    process, child = ask_and_freeze(lake, COUNT)
    try:
        add(lake, LINES)
        move_rows_to_other_files(lake)
        assert [path.exists() for path in planned] == [tagged] * LINES
        os.kill(child, signal.SIGCONT)
        told, errors = process.communicate(timeout=zombies.PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert json.loads(told)["rows"] == [{"n": expected, "texts": expected}]


def ask_and_freeze(lake: Lake, query: str) -> "tuple[subprocess.Popen[str], int]":
    """`headwater sql`, and the child of it that has planned and sleeps."""
    line = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), "--json", "sql", query]
    environment = {**os.environ, "HEADWATER_FAULT": "sql.planned:1:stop"}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    frozen = wait_until(lambda: [child for child in children(process.pid) if is_frozen(child)], process)
    return process, frozen[0]


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def is_frozen(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Restless:
    """A catalog whose table is rewritten and expired right after it was looked up, once for each number."""

    def __init__(self, lake: Lake, numbers: range) -> None:
        self._lake = lake
        self._numbers = iter(numbers)

    def load_table(self, identifier: str) -> "Table":
        table = parts_of(self._lake).reader.load_table(identifier)
        for number in islice(self._numbers, 1):
            add(self._lake, number)
            move_rows_to_other_files(self._lake)
        return table


def count_by_scan(reader: Tables) -> int:
    return reading.scan(reader, MESSAGES.name, ["seq"]).num_rows


def count_by_sql(reader: Tables) -> int:
    return int(reading.run_sql(reader, COUNT)["rows"][0]["n"])


@pytest.mark.parametrize("count", [count_by_scan, count_by_sql])
def test_a_table_that_moves_once_is_planned_again_and_one_that_always_moves_is_told(
    lake: Lake, count: Callable[[Tables], int]
) -> None:
    assert count(Restless(lake, range(LINES, LINES + 1))) == LINES + 1
    with pytest.raises(SnapshotExpired, match=r"is gone.*Ask again.*maintain\.keep_hours") as expired:
        count(Restless(lake, range(LINES + 1, 99)))
    assert expired.value.retryable


def test_a_file_that_nobody_expired_is_told_as_missing(lake: Lake) -> None:
    gone = data_files(lake)[0]
    gone.unlink()
    for ask in (lambda: lake.sql(COUNT), lambda: lake.table("messages").to_arrow()):
        with pytest.raises(NotFound, match=rf"{gone.name}.*still names it.*Bring it back"):
            ask()
