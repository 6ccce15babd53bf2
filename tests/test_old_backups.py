"""A backup serves for as long as it says, however often the tables are committed to; afterwards it says what it is."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rounds
from backups import headwater, lose
from lakes import CALL, parts_of, small_lake
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.domain.tables import EVENTS, MESSAGES, TABLES, TRANSCRIPTS
from headwater.errors import Conflict, NotFound
from headwater.storage.io.local_path import local_path
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.expire_snapshots import HOUR_MS, Keep
from headwater.storage.tables.metadata import Edit
from headwater.storage.tables.writer import TableWriter

DAY_MS = 24 * HOUR_MS


def commit_often(lake: lakes.Lake, times: int, table: str) -> None:
    """Changes of a property: the cheapest commits there are."""
    committer = Committer(lake.settings)
    for number in range(times):

        def propose(number: int = number) -> tuple[Base, Edit]:
            return committer.tables.base(table), Edit({"test.number": str(number)})

        committer.commit(table, propose)


def let_go(lake: lakes.Lake, *, after_days: float) -> None:
    """What maintenance lets go of when it comes so many days later."""
    committer = Committer(lake.settings)
    start = committer.now_ms()
    later = Committer(lake.settings, lambda: start + int(after_days * DAY_MS))
    for table in TABLES:
        later.expire(table.name, Keep(hours=1, age=True))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake(tmp_path / "lake")


@contextmanager
def opened(lake: Path) -> Iterator[lakes.Lake]:
    with lakes.open(lake) as found:
        yield found


def add_transcripts(lake: Path, times: int) -> None:
    with opened(lake) as found:
        for number in range(times):
            table = parts_of(found).catalog.load_table(TRANSCRIPTS.name)
            append(table, rows(TRANSCRIPTS, [{"object_id": CALL, "text": f"later {number}"}], first_seq=1 + number))


def texts(lake: Path) -> list[str]:
    with opened(lake) as found:
        return sorted(found.table(TRANSCRIPTS.name).to_arrow()["text"].to_pylist())


def metadata_file(lake: Path, table: str) -> Path:
    with opened(lake) as found:
        return Path(local_path(parts_of(found).catalog.load_table(table).metadata_location))


def test_after_hundreds_of_commits_and_maintenance_a_backup_brings_back_its_state_and_a_run_repeats_nothing(
    engine: None, tmp_path: Path
) -> None:
    lake, file = tmp_path / "lake", tmp_path / "lake.backup"
    rounds.use_cheap_models(lake)
    media = [rounds.make_media(tmp_path / "media", number) for number in range(2)]
    with lakes.init(lake) as made:
        rounds.put_round(made, media[0], 0)
        made.run()
        then = rounds.contents(made)
        backed_up = headwater("backup", file, "--lake", lake)
        assert backed_up.code == 0 and backed_up.out["serves_until"] > backed_up.out["made_at"]
        rounds.put_round(made, media[1], 1)
        made.run()
        later = rounds.contents(made)
        writer = TableWriter(made.spark, made.settings)
        for number in range(110):
            row = {"object_id": f"o{number}", "event_id": f"e{number}", "customer": "acme", "text": f"line {number}"}
            writer.publish(MESSAGES, rows(MESSAGES, [row]).select(MESSAGES.columns), {}, stage="derive")
        for table in TABLES:
            commit_often(made, 100 if table is MESSAGES else 30, table.name)
        made.maintain()
        let_go(made, after_days=6)
        assert not Path(local_path(backed_up.out["tables"][MESSAGES.name])).exists(), "the metadata file is long gone"
    lose(lake, "catalog", "ledger")
    done = headwater("restore", file, "--lake", lake)
    assert (done.code, done.out["notes"]) == (0, [])
    assert {each["how"] for each in done.out["tables"]} == {"backup"}, "none is newer than the backup"
    with opened(lake) as found:
        assert rounds.contents(found) == then
        found.run()
        assert rounds.contents(found) == later
        found.run()
        assert rounds.contents(found) == later
        assert found.status()["index"]["stale_by"] == 0
        let_go(found, after_days=6)
    # Set back once more, from a lake that has moved on: what the backup names is kept for as long as it says.
    assert headwater("restore", file, "--lake", lake).code == Conflict.exit_code
    assert headwater("restore", file, "--lake", lake, "--force").code == 0
    with opened(lake) as found:
        assert rounds.contents(found) == then


def test_metadata_that_is_gone_comes_back_from_the_backup_itself(lake: Path, tmp_path: Path) -> None:
    file, then = tmp_path / "lake.backup", texts(lake)
    assert headwater("backup", file, "--lake", lake).code == 0
    metadata_file(lake, TRANSCRIPTS.name).unlink()
    done = headwater("restore", file, "--lake", lake)
    assert done.code == 0 and done.out["restored"]["tables"] == 1, "a table whose metadata is gone is lost"
    assert texts(lake) == then
    assert headwater("restore", file, "--lake", lake).out["restored"]["tables"] == 0, "twice is once"


def test_a_backup_that_is_too_old_brings_back_the_newest_there_is_and_says_so(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "lake.backup"
    assert headwater("backup", file, "--lake", lake).code == 0
    add_transcripts(lake, 30)
    now = texts(lake)
    with opened(lake) as found:
        let_go(found, after_days=8)
    too_old = headwater("restore", file, "--lake", lake, "--force")
    assert too_old.code == NotFound.exit_code and "backup.keep_days" in too_old.error
    assert texts(lake) == now, "nothing was changed"
    lose(lake, "catalog", "ledger")
    plan = headwater("restore", file, "--lake", lake, "--dry-run")
    assert plan.code == 0 and any(TRANSCRIPTS.name in note and "newest" in note for note in plan.out["notes"])
    assert headwater("restore", file, "--lake", lake).code == 0
    assert texts(lake) == now
    with opened(lake) as found:
        ledger = parts_of(found).ledger
        assert ledger.claim_first("object", [(CALL, "other", 0, 0)])[CALL] != ("other", 0, 0), "completed from bronze"
        assert ledger.runs(1)[0].kind == "restore" and ledger.runs(1)[0].detail["notes"]


def test_a_state_of_which_nothing_is_left_is_refused_by_name(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "lake.backup"
    assert headwater("backup", file, "--lake", lake).code == 0
    folder = metadata_file(lake, TRANSCRIPTS.name).parent
    for path in folder.iterdir():
        path.unlink()
    lose(lake, "catalog")
    gone = headwater("restore", file, "--lake", lake)
    assert gone.code == NotFound.exit_code and TRANSCRIPTS.name in gone.error


def test_a_tag_goes_when_it_is_as_old_as_it_may_get_and_takes_its_files_with_it(lake: Path, tmp_path: Path) -> None:
    backed_up = headwater("backup", tmp_path / "lake.backup", "--lake", lake, "--set", "backup.keep_days=3")
    tag = backed_up.out["tag"]
    add_transcripts(lake, 3)

    def tags() -> set[str]:
        with opened(lake) as found:
            return set(parts_of(found).catalog.load_table(TRANSCRIPTS.name).metadata.refs)

    with opened(lake) as found:
        let_go(found, after_days=2.9)
    assert tag in tags()
    with opened(lake) as found:
        let_go(found, after_days=3.1)
    assert tags() == {"main"}
    assert len(texts(lake)) == 4


def test_a_backup_of_the_version_before_is_restored(lake: Path, tmp_path: Path) -> None:
    import hashlib

    file, old, then = tmp_path / "lake.backup", tmp_path / "old.backup", texts(lake)
    assert headwater("backup", file, "--lake", lake).code == 0
    lines = []
    for line in file.read_text().splitlines()[:-1]:
        value = json.loads(line)
        if isinstance(value, dict):
            value |= {"headwater_backup": 1}
        elif value[0] == "table":
            value[1] = value[1][:2]
        lines.append(json.dumps(value, separators=(",", ":")) + "\n")
    end = {"lines": len(lines), "sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}
    old.write_text("".join(lines) + json.dumps(end, separators=(",", ":")) + "\n")
    lose(lake, "catalog", "ledger")
    assert headwater("restore", old, "--lake", lake).code == 0
    assert texts(lake) == then


def test_an_empty_lake_in_the_place_of_a_lost_one_is_refused_with_the_way_back(lake: Path, tmp_path: Path) -> None:
    file, then = tmp_path / "lake.backup", texts(lake)
    assert headwater("backup", file, "--lake", lake).code == 0
    for lost in (("catalog",), ("ledger",), ("catalog", "ledger")):
        lose(lake, *lost)
        for line in (("status",), ("run", "--once")):
            asked = headwater(*line, "--lake", lake)
            assert asked.code == NotFound.exit_code and "headwater restore" in asked.error, (lost, line)
        refused = headwater("init", lake)
        assert refused.code == Conflict.exit_code and "headwater restore" in refused.error, lost
        assert headwater("restore", file, "--lake", lake).code == 0
        assert texts(lake) == then


@pytest.mark.parametrize("lost", [("catalog",), ("ledger",), ("catalog", "ledger")])
def test_a_restore_after_an_empty_lake_was_made_in_its_place_works(
    lake: Path, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    from headwater.components import Components
    from headwater.settings import load
    from headwater.storage.tables.catalog import create_tables
    from headwater.upkeep.format import set_format

    file, then = tmp_path / "lake.backup", texts(lake)
    with opened(lake) as found:
        parts_of(found).ledger.claim_first("event", [("e1", "", 0, 0)])
    assert headwater("backup", file, "--lake", lake).code == 0
    lose(lake, *lost)
    parts = Components(load(lake))
    create_tables(parts.catalog)  # as `init` of an earlier version did
    set_format(parts.ledger)
    assert headwater("restore", file, "--lake", lake).code == 0
    assert texts(lake) == then
    with opened(lake) as found:
        claimed = parts_of(found).ledger.claim_first("object", [(CALL, "other", 0, 0)])
        assert claimed[CALL] != ("other", 0, 0)
        assert found.status()["tables"][0]["name"] == EVENTS.name
