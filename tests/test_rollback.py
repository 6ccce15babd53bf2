"""A table rolled back by Iceberg's own procedure: it is noticed, what is gone comes again, nothing is there twice."""

import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import rounds
from driving import streaming
from lakes import parts_of

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import EMBEDDINGS, EVENTS, MESSAGES, QUARANTINE, TABLES, TRANSCRIPTS, Table
from headwater.flow.land_text import land_text
from headwater.lake import Lake
from headwater.storage.tables.read_progress import read_progress

MORNING = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


def snapshot_of(lake: Lake, table: Table) -> int:
    current = parts_of(lake).catalog.load_table(table.name).current_snapshot()
    assert current is not None
    return current.snapshot_id


def roll_back(lake: Lake, table: Table, snapshot: int) -> None:
    lake.spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.name}', {snapshot})").collect()


@pytest.mark.parametrize("table", [EVENTS, MESSAGES, TRANSCRIPTS, EMBEDDINGS], ids=lambda table: table.short_name)
def test_what_a_rollback_took_away_comes_again_and_once(lake: Lake, tmp_path: Path, table: Table) -> None:
    rounds.put_round(lake, rounds.make_media(tmp_path, 0), 0)
    lake.run()
    then = snapshot_of(lake, table)
    rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
    lake.run()
    before, numbers = rounds.contents(lake), read_progress(lake.settings, table).next_seq
    index = parts_of(lake).index.count()
    roll_back(lake, table, then)
    assert lake.pending(), "it is noticed without a JVM"
    assert read_progress(lake.settings, table).generation == 1
    lake.run()
    assert rounds.contents(lake) == before
    rounds.check_raw_is_counted(lake)
    assert read_progress(lake.settings, table).next_seq > numbers, "no number is given twice"
    for other in TABLES:
        keys = lake.table(other.name, all_models=True).to_arrow().select(list(other.key)).to_pylist()
        assert set(Counter(tuple(row.values()) for row in keys).values()) <= {1}, other.name
    assert parts_of(lake).index.count() == index
    assert not lake.pending()
    rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)
    lake.run()
    assert len(rounds.contents(lake)["silver.messages"]) == 9


def test_what_is_announced_again_long_after_a_rollback_whose_log_is_gone_is_derived_once(lake: Lake) -> None:
    put = partial(lake.put_text, "the refund is late", customer="acme")
    put(id="a", at=MORNING)
    lake.run()
    then = snapshot_of(lake, EVENTS)
    put(id="b", at=MORNING)
    put(id="c", at=MORNING)
    lake.run()
    roll_back(lake, EVENTS, then)
    shutil.rmtree(lake.settings.lake / "log")
    put(id="d", at=MORNING)
    lake.run()
    put(id="b", at=MORNING)
    put(id="c", at=MORNING + timedelta(days=3))
    lake.run()
    objects = lake.table("messages").to_arrow()["object_id"].to_pylist()
    assert sorted(objects) == [f"chat/acme/{name}" for name in "abcd"]
    assert lake.table("events").to_arrow().num_rows == 4


def test_events_that_are_sent_again_after_a_rollback_are_no_duplicates(lake: Lake) -> None:
    for number in range(3):
        lake.put_text(f"line {number}", customer="acme", id=f"m{number}")
    lake.run()
    then = snapshot_of(lake, EVENTS)
    lake.put_text("line 3", customer="acme", id="m3")
    lake.run()
    roll_back(lake, EVENTS, then)
    lake.put_text("line 3", customer="acme", id="m3")
    lake.run()
    assert sorted(row["event_id"] for row in rounds.contents(lake)["bronze.events"]) == ["m0", "m1", "m2", "m3"]
    assert lake.status()["duplicates"] == 1
    assert {hit.entry.text for hit in lake.search("line 3").hits} >= {"line 3"}


def failures(lake: Lake) -> list[tuple[str, str, str]]:
    """Of objects; the lines that bronze refused are another matter."""
    rows = rounds.contents(lake)["silver.quarantine"]
    return sorted((row["event_id"], row["step"], row["reason"]) for row in rows if row["step"] != "bronze")


@pytest.mark.parametrize("mended", [False, True], ids=["it fails again", "it goes well now"])
def test_an_object_whose_failure_a_rollback_took_away_is_derived_again(
    lake: Lake, tmp_path: Path, mended: bool
) -> None:
    """It had no row anywhere else, and quarantine has none now. Whatever becomes of it, it is in some table."""
    rounds.put_round(lake, rounds.make_media(tmp_path, 0), 0)
    lake.run()
    then = snapshot_of(lake, QUARANTINE)
    (landed,) = lake.put(rounds.make_media(tmp_path, 1) / "call-1-0.wav", customer="acme")
    assert landed.event is not None
    raw = lake.settings.lake / "raw" / landed.event.pointer.path
    data = raw.read_bytes()
    raw.write_bytes(b"RIFF, it says, and nothing follows"[: len(data)].ljust(len(data), b"."))
    lake.run()
    before, failed = rounds.contents(lake), failures(lake)
    assert landed.event.event_id in {event for event, _, _ in failed}
    say(lake, "later")
    lake.run()
    roll_back(lake, QUARANTINE, then)
    assert landed.event.event_id not in {event for event, _, _ in failures(lake)}
    assert lake.pending().derive == 1, "it is noticed without a JVM"
    if mended:
        raw.write_bytes(data)
    lake.run()
    heard = [row["event_id"] for row in rounds.contents(lake)["silver.transcripts"]]
    assert (failures(lake) == failed) is not mended
    assert (landed.event.event_id in heard) is mended and len(heard) == len(before["silver.transcripts"]) + mended
    assert not lake.pending()
    rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)
    lake.run()
    assert len(failures(lake)) == len(failed) - mended + 2 and not lake.pending()


def say(lake: Lake, *ids: str) -> None:
    for name in ids:
        lake.put_text(f"line {name}", customer="acme", id=name)


def ids(lake: Lake) -> list[str]:
    return sorted(lake.table("events").to_arrow()["event_id"].to_pylist())


@pytest.mark.parametrize("more", [True, False], ids=["something new comes", "nothing new comes"])
def test_events_that_a_rollback_takes_away_under_a_running_stream_are_read_again(lake: Lake, more: bool) -> None:
    """The stream knows by heart how far it has read; the table says that it has less."""
    assert lake.spark
    with streaming(lake) as wait:
        say(lake, "a", "b")
        wait(lambda: ids(lake) == ["a", "b"])
        then = snapshot_of(lake, EVENTS)
        say(lake, "c", "d")
        wait(lambda: ids(lake) == ["a", "b", "c", "d"] and not lake.pending())
        roll_back(lake, EVENTS, then)
        if more:
            say(lake, "e")
        wait(lambda: ids(lake) == ["a", "b", "c", "d", *(["e"] if more else [])])
        wait(lambda: not lake.pending())
    messages = Counter(row["event_id"] for row in rounds.contents(lake)["silver.messages"])
    assert messages == Counter(ids(lake)), "each once"
    assert lake.status()["duplicates"] == 0


def test_what_was_claimed_before_the_ledger_came_back_is_let_in_again_after_a_rollback(
    lake: Lake, tmp_path: Path
) -> None:
    """Claims that a restore took from the rows are of no position in the log, and no rollback forgets them. The lines
    that are read again, and those that are sent again, must not all count as known."""
    directory = lake.settings.lake
    rounds.put_round(lake, rounds.make_media(tmp_path, 0), 0)
    lake.run()
    then = snapshot_of(lake, EVENTS)
    assert main(["backup", str(tmp_path / "backup"), "--lake", str(directory)]) == 0
    rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
    lake.run()
    before = rounds.contents(lake)
    lake.close()
    for file in directory.glob("ledger.db*"):
        file.unlink()
    assert main(["restore", str(tmp_path / "backup"), "--lake", str(directory)]) == 0
    with lakes.open(directory) as restored:
        duplicates = restored.status()["duplicates"]
        restored.run()
        assert (rounds.contents(restored), restored.status()["duplicates"]) == (before, duplicates)
        roll_back(restored, EVENTS, then)
        # With other words, by who does not look first: what was first is read again before it, and still is.
        land_text(parts_of(restored).log, "line r1-0", "acme", event_id="r1-0", at=datetime.now(UTC))
        restored.run()
        after = rounds.contents(restored)
        assert {row["event_id"] for row in after["bronze.events"]} == {
            row["event_id"] for row in before["bronze.events"]
        }
        assert after["silver.messages"] == before["silver.messages"]
        assert after["silver.transcripts"] == before["silver.transcripts"]
        assert [row["event_id"] for row in after["silver.quarantine"] if row["reason"] == "CONFLICT"] == ["r1-0"]
        rounds.check_raw_is_counted(restored)
        assert not restored.pending()
