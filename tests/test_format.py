"""A lake's format version: an older lake is upgraded by a plan, a newer one is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import rounds
from behaviour_ledger import make_old_claims
from lakes import parts_of, small_lake

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.components import Components
from headwater.domain.progress import SNAPSHOT, STAMP
from headwater.domain.tables import EFFORT, EMBEDDINGS, QUARANTINE, TABLES, TEXT_TABLES
from headwater.errors import Conflict, NotFound
from headwater.settings import load
from headwater.storage.ledger.ledger import Ledger, open_ledger
from headwater.storage.tables.metadata import progress_in
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.snapshots import history_of
from headwater.upkeep.format import FORMAT, check_format, set_format
from headwater.upkeep.task import apply
from headwater.upkeep.upgrade import Upgrade, UpgradeLake, plan_upgrade


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    set_format(opened)
    yield opened
    opened.close()


def test_a_new_lake_has_this_programs_format_and_opens(ledger: Ledger) -> None:
    check_format(ledger)
    assert plan_upgrade(ledger).steps == ()


def test_a_newer_lake_is_refused_with_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        parts_of(lake).ledger.set_fact("format", str(FORMAT + 1))
    with pytest.raises(Conflict, match="Install a newer Headwater"):
        lakes.open(tmp_path / "lake")
    assert main(["--lake", str(tmp_path / "lake"), "status"]) == Conflict.exit_code
    assert f"format {FORMAT + 1}" in capsys.readouterr().err
    assert main(["--lake", str(tmp_path / "lake"), "upgrade"]) == Conflict.exit_code


def test_an_older_lake_must_be_upgraded_before_it_opens(ledger: Ledger) -> None:
    with pytest.raises(Conflict, match="headwater upgrade"):
        check_format(ledger, wanted=FORMAT + 1)


def test_an_upgrade_goes_step_by_step_and_a_killed_one_goes_on_where_it_was(tmp_path: Path) -> None:
    parts = Components(load(small_lake(tmp_path / "lake")))
    done: list[str] = []
    broken = [True]

    def second(*_: object) -> None:
        if broken:
            raise RuntimeError("killed")
        done.append("second")

    upgrades = {
        FORMAT: Upgrade("the first step", lambda *_: done.append("first")),
        FORMAT + 1: Upgrade("the second step", second),
    }
    task = UpgradeLake(parts, upgrades, FORMAT + 2)
    assert [step.purpose for step in task.plan().steps] == ["the first step", "the second step"]
    with pytest.raises(RuntimeError, match="killed"):
        apply(task, parts)

    broken.clear()
    said: list[str] = []
    applied = apply(task, parts, report=said.append)
    assert done == ["first", "second"]
    assert [step.to_dict()["purpose"] for step, _ in applied.resumed] == ["the first step", "the second step"]
    assert said == ["Going on where it was stopped: 1 of 2 steps are done."]
    check_format(parts.ledger, wanted=FORMAT + 2)


def test_a_gap_in_the_known_upgrades_is_refused_before_anything_is_done(ledger: Ledger) -> None:
    with pytest.raises(Conflict, match="No way is known"):
        plan_upgrade(ledger, {}, FORMAT + 1)


def test_a_place_without_a_lake_is_told_apart_from_an_old_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="headwater init"):
        check_format(open_ledger(f"sqlite:///{tmp_path}/empty.db"))


def test_a_lake_of_format_one_is_upgraded_and_goes_on(tmp_path: Path, engine: None) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        lake.put_text("written before", customer="acme")
        lake.run()
        catalog = parts_of(lake).catalog
        for table in (*TEXT_TABLES, EMBEDDINGS):
            with catalog.load_table(table.name).update_schema(allow_incompatible_changes=True) as update:
                for field in EFFORT:
                    update.delete_column(field.name)
        parts_of(lake).ledger.set_fact("format", "1")
        parts_of(lake).ledger.set_fact("models", "")
    with pytest.raises(Conflict, match="headwater upgrade"):
        lakes.open(tmp_path / "lake")
    assert main(["--lake", str(tmp_path / "lake"), "upgrade"]) == 0
    with lakes.open(tmp_path / "lake") as lake:
        lake.put_text("written after", customer="acme")
        lake.run()
        assert {hit.entry.text for hit in lake.search("written").hits} == {"written before", "written after"}
        rows = lake.sql("select text, attempts from messages order by text")["rows"]
        # Reads see the old row without an effort, the new one with.
        assert rows == [{"text": "written after", "attempts": 1}, {"text": "written before", "attempts": None}]


def test_a_lake_from_before_stamps_is_upgraded_and_can_be_rolled_back_from_then_on(tmp_path: Path) -> None:
    directory = small_lake(tmp_path / "lake")
    with lakes.open(directory) as lake:
        before = rounds.contents(lake)
        catalog = parts_of(lake).catalog
        with catalog.load_table(QUARANTINE.name).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("event_seq")
        make_old_claims(parts_of(lake).ledger, [("event", "seen-before", "h", 0, 1)])
        parts_of(lake).ledger.set_fact("format", "2")
    for _ in range(2):
        assert main(["--lake", str(directory), "upgrade"]) == 0
        open_ledger(f"sqlite:///{directory}/ledger.db").set_fact("format", "2")  # killed before it was noted
    assert main(["--lake", str(directory), "upgrade"]) == 0
    with lakes.open(directory) as lake:
        assert rounds.contents(lake) == before
        assert parts_of(lake).ledger.claim_first("event", [("seen-before", "h", 0, 9)])["seen-before"] == ("h", 0, 1)
        for table in TABLES:
            loaded = parts_of(lake).reader.load_table(table.name)
            stamps = [snapshot for snapshot in loaded.snapshots() if snapshot.summary and snapshot.summary.get(STAMP)]
            assert len(stamps) == 1, "once, however often it was done"
            assert any(spec.is_unpartitioned() for spec in loaded.specs().values())
            assert read_progress(lake.settings, table) == progress_in(history_of(loaded))
            assert loaded.properties[SNAPSHOT] == str(stamps[0].snapshot_id)
