"""Maintenance that meets others at the same files: one wins, the other is told, and no row is lost or doubled."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import zombies
from lakes import parts_of

from headwater import lake as lakes
from headwater.domain.tables import MESSAGES
from headwater.errors import Conflict
from headwater.lake import Lake
from headwater.storage.tables.writer import TableWriter
from headwater.upkeep.maintenance.compaction import compact

LINES = 8


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        for number in range(LINES):
            made.put_text(f"line {number}", customer="acme", id=f"e{number}")
            made.run()
        yield made


def lines(lake: Lake) -> list[str]:
    found: list[str] = lake.table("messages").to_arrow()["text"].to_pylist()
    assert lake.spark.table("lake.silver.messages").count() == len(found)
    return sorted(found)


def test_of_two_compactions_of_the_same_files_one_commits_and_the_other_is_refused(lake: Lake) -> None:
    before = lines(lake)
    zombie = zombies.freeze(lake, "commit.proposed", "maintain")
    try:
        zombies.let_the_lease_run_out(lake, "maintain")
        assert lake.maintain()
        files = data_files(lake)
        zombie.send_signal(signal.SIGCONT)
        _, errors = zombie.communicate(timeout=zombies.PATIENCE_SECONDS)
    finally:
        zombie.kill()
        zombie.wait()
    assert (zombie.returncode, "Traceback" in errors) == (Conflict.exit_code, False), errors
    assert data_files(lake) == files, "of the second there are orphans only"
    assert lines(lake) == before


def test_a_compaction_whose_files_are_gone_reports_a_conflict(lake: Lake) -> None:
    before, writer = lines(lake), TableWriter(lake.spark, lake.settings)
    plan = lake.plan_maintenance()
    (care,) = [care for care in plan.tables if care.table == MESSAGES.name]
    lake.maintain()
    with pytest.raises(Conflict, match="rewritten by somebody else"):
        compact(writer, MESSAGES, care.groups[0], plan.target_bytes)
    assert lines(lake) == before


def test_rows_that_come_while_files_are_compacted_stay(lake: Lake) -> None:
    before = lines(lake)
    process = zombies.freeze(lake, "commit.proposed:2", "maintain")
    try:
        lake.put_text("a late line", customer="acme", id="late")
        lake.run()
        process.send_signal(signal.SIGCONT)
        assert ended_well(process)
    finally:
        process.kill()
        process.wait()
    assert lines(lake) == sorted([*before, "a late line"])
    assert len(data_files(lake)) < LINES


def ended_well(process: "subprocess.Popen[str]") -> bool:
    _, errors = process.communicate(timeout=zombies.PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    return True


def data_files(lake: Lake) -> set[str]:
    table = parts_of(lake).catalog.load_table(MESSAGES.name)
    return {task.file.file_path for task in table.scan().plan_files()}
