"""A log that is not the one that was read is noticed, told as lost and read from its beginning; nothing comes twice."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import rounds
from driving import read_log, streaming
from lakes import parts_of

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.clock import parse_time
from headwater.flow.log.continuity import resume
from headwater.flow.log.identity import IDENTITY
from headwater.lake import Lake
from headwater.storage.ledger.losses import LOST
from headwater.storage.tables.writer import TableWriter

AT = parse_time("2026-03-01")


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


def log_of(lake: Lake) -> Path:
    return Path(lake.settings.text("log.uri"))


def say(lake: Lake, *ids: str) -> None:
    for name in ids:
        lake.put_text(f"line {name}", customer="acme", id=name, at=AT)


def ids(lake: Lake) -> list[str]:
    return sorted(lake.table("events").to_arrow()["event_id"].to_pylist())


def losses(lake: Lake) -> list[tuple[int, int | None]]:
    return [(run.detail["first"], run.detail["until"]) for run in parts_of(lake).ledger.unfinished(LOST)]


def wipe(lake: Lake) -> None:
    shutil.rmtree(log_of(lake))


def set_back(lake: Lake, copy: Path) -> None:
    wipe(lake)
    shutil.copytree(copy, log_of(lake))


def test_a_log_that_was_wiped_and_filled_again_is_read_from_its_beginning(lake: Lake) -> None:
    say(lake, "a", "b", "c")
    read_log(lake)
    for new in ("d", "ef", "ghi", "jklm"):  # fewer than were read, as many, and more
        wipe(lake)
        say(lake, *new)
        assert lake.pending().bronze == len(new)
        assert lake.status()["log"] == {"lag": len(new), "lost": 1}
        assert read_log(lake)["lost"] == 1
        assert ids(lake) == sorted("abcdefghijklm"[: ord(new[-1]) - ord("a") + 1])
        assert lake.status()["log"] == {"lag": 0, "lost": 1}
        lake.rescan()
        assert lake.status()["log"] == {"lag": 0, "lost": 0}
    assert lake.status()["duplicates"] == 0


def test_a_log_that_was_wiped_and_is_empty_is_something_to_tell(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    say(lake, "a")
    lake.run()
    wipe(lake)
    assert lake.pending() and lake.pending().bronze == 0
    main(["status", "--lake", str(lake.settings.lake)])
    shown = capsys.readouterr().out
    assert "1 event lost by the log" in shown and "a log that is not the one that was read" in shown
    assert main(["run", "--once", "--lake", str(lake.settings.lake)]) == 0
    shown = capsys.readouterr().out
    assert "lost 1" in shown and "headwater rescan" in shown
    assert not lake.pending()
    assert (ids(lake), lake.status()["log"]) == (["a"], {"lag": 0, "lost": 1})


def test_a_log_that_was_lost_before_anybody_read_it_is_missed(lake: Lake) -> None:
    say(lake, "a", "b")
    wipe(lake)
    assert lake.pending()
    say(lake, "c")
    assert read_log(lake)["lost"] == 1
    assert (ids(lake), losses(lake)) == (["c"], [(0, None)])


def test_lines_that_somebody_deleted_unread_are_counted_one_by_one(lake: Lake) -> None:
    say(lake, "a")
    read_log(lake)
    say(lake, "b", "c")
    for segment in log_of(lake).glob("*.jsonl"):
        segment.unlink()
    say(lake, "d")
    read_log(lake)
    assert (ids(lake), losses(lake)) == (["a", "d"], [(1, 3)])


def test_a_log_set_back_to_an_older_copy_is_noticed_however_long_it_has_grown_since(lake: Lake, tmp_path: Path) -> None:
    say(lake, "a", "b")
    shutil.copytree(log_of(lake), tmp_path / "copy")
    known = {"a", "b"}
    for later, since in (("cd", ""), ("ef", "g"), ("hi", "jk"), ("lm", "nop")):
        say(lake, *later)
        read_log(lake)
        read_until = parts_of(lake).log.end()[0]
        set_back(lake, tmp_path / "copy")
        say(lake, *since)
        assert lake.pending().bronze == 2 + len(since)
        assert read_log(lake)["lost"] == 1
        known |= {*later, *since}
        assert ids(lake) == sorted(known)
        assert losses(lake) == [(read_until, None)]
        assert lake.pending().bronze == 0
        lake.rescan()
    assert lake.status()["duplicates"] == 2 * 4


def test_a_copy_of_the_whole_log_is_the_same_log(lake: Lake, tmp_path: Path) -> None:
    say(lake, "a", "b")
    read_log(lake)
    shutil.copytree(log_of(lake), tmp_path / "copy")
    set_back(lake, tmp_path / "copy")
    assert lake.pending().bronze == 0
    say(lake, "c")
    read_log(lake)
    assert (ids(lake), losses(lake), lake.status()["duplicates"]) == (["a", "b", "c"], [], 0)


def test_a_lake_of_an_earlier_version_goes_on_with_its_log_and_misses_nothing(lake: Lake) -> None:
    say(lake, "a", "b")
    read_log(lake)
    parts_of(lake).ledger.set_fact(IDENTITY, "directory")
    (log_of(lake) / ".identity").unlink()
    assert lake.pending().bronze == 0
    say(lake, "c")
    assert lake.pending().bronze == 1
    read_log(lake)
    assert (ids(lake), losses(lake), lake.status()["duplicates"]) == (["a", "b", "c"], [], 0)


def test_a_lake_of_an_earlier_version_whose_log_was_wiped_notices(lake: Lake) -> None:
    say(lake, "a", "b")
    read_log(lake)
    parts_of(lake).ledger.set_fact(IDENTITY, "directory")
    wipe(lake)
    say(lake, "c", "d")
    read_log(lake)
    assert (ids(lake), losses(lake)) == (["a", "b", "c", "d"], [(2, None)])


def test_a_run_killed_before_it_noted_the_new_log_tells_no_second_loss(lake: Lake) -> None:
    say(lake, "a", "b")
    read_log(lake)
    parts = parts_of(lake)
    before = parts.ledger.fact(IDENTITY)
    wipe(lake)
    say(lake, "c")
    for _ in range(2):
        resume(TableWriter(lake.spark, lake.settings), parts.log, parts.ledger, parts.clock)
        assert before is not None
        parts.ledger.set_fact(IDENTITY, before)
    assert losses(lake) == [(2, None)]
    read_log(lake)
    assert ids(lake) == ["a", "b", "c"]


def snapshot_of(lake: Lake, table: str = "bronze.events") -> int:
    current = parts_of(lake).catalog.load_table(table).current_snapshot()
    assert current is not None
    return current.snapshot_id


def roll_back(lake: Lake, snapshot: int, table: str = "bronze.events") -> None:
    lake.spark.sql(f"CALL lake.system.rollback_to_snapshot('{table}', {snapshot})").collect()


def say_nonsense(lake: Lake, name: str) -> None:
    parts_of(lake).log.publish_raw([json.dumps({"event_id": name, "modality": "chat"})])  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["replaced", "set back"])
def test_bronze_rolled_back_past_a_logs_replacement_reads_the_log_that_is_there_from_its_beginning(
    lake: Lake, tmp_path: Path, how: str
) -> None:
    say(lake, "a")
    shutil.copytree(log_of(lake), tmp_path / "copy")
    say(lake, "b", "c")
    read_log(lake)
    then = snapshot_of(lake)
    if how == "replaced":
        wipe(lake)
        kept = ["d", "e", "f", "g", "h"]
    else:
        set_back(lake, tmp_path / "copy")
        kept = ["a", "d", "e", "f", "g"]
    say(lake, *[name for name in kept if name != "a"])
    read_log(lake)
    before, duplicates = ids(lake), lake.status()["duplicates"]
    roll_back(lake, then)
    assert ids(lake) == ["a", "b", "c"]
    assert lake.pending().bronze == len(kept), "it is noticed without a JVM"
    read_log(lake)
    assert ids(lake) == before
    assert lake.status()["duplicates"] == duplicates
    assert lake.pending().bronze == 0
    say(lake, "i")
    read_log(lake)
    assert ids(lake) == sorted([*before, "i"])


def test_a_line_that_was_refused_after_a_replacement_is_refused_again_after_a_rollback_past_it(lake: Lake) -> None:
    say(lake, "a", "b", "c")
    read_log(lake)
    say_nonsense(lake, "bad")  # so that quarantine has a snapshot that knows of the first log
    read_log(lake)
    thens = {table: snapshot_of(lake, table) for table in ("bronze.events", "silver.quarantine")}
    wipe(lake)
    say_nonsense(lake, "worse")
    say(lake, "d", "e", "f", "g", "h")
    read_log(lake)
    refused = [row["payload"] for row in lake.quarantine()["rows"]]
    for table, then in thens.items():
        roll_back(lake, then, table)
    read_log(lake)
    assert sorted(row["payload"] for row in lake.quarantine()["rows"]) == sorted(refused)
    assert ids(lake) == list("abcdefgh")


@pytest.mark.parametrize("how", ["wiped", "swapped", "set back"])
def test_a_log_that_is_replaced_under_a_running_stream_is_told_and_read_on(
    lake: Lake, tmp_path: Path, how: str
) -> None:
    say(lake, "a")
    shutil.copytree(log_of(lake), tmp_path / "copy")
    with lakes.open(lake.settings.lake) as other, streaming(lake) as wait:
        say(other, "b", "c")
        wait(lambda: ids(other) == ["a", "b", "c"])
        if how == "set back":
            set_back(other, tmp_path / "copy")
        elif how == "wiped":
            wipe(other)
        else:
            log_of(other).rename(tmp_path / "away")
        new = ["d", "e", "f"]
        say(other, *new)
        wait(lambda: ids(other) == ["a", "b", "c", *new])
        say(other, "g")
        wait(lambda: ids(other) == ["a", "b", "c", *new, "g"])
        assert losses(other) == [(3, None)]
    lines = [json.loads(line) for line in (lake.settings.lake / "logs" / "headwater.jsonl").read_text().splitlines()]
    (told,) = [line for line in lines if line["event"] == "log.lost"]
    assert told["way_out"] == "headwater rescan"
    assert not lake.pending().log_anew
