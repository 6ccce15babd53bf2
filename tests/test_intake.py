"""How an embedded log comes into bronze while a run goes on: losses are told, and failures passed on."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import rounds
from lakes import parts_of
from waiting import let_pass, wait_until

from headwater import lake as lakes
from headwater import telemetry
from headwater.cli.main import main
from headwater.clock import parse_time, utc_now
from headwater.domain.tables import EVENTS
from headwater.errors import Unavailable
from headwater.flow.drive.directory_intake import DirectoryIntake
from headwater.flow.drive.intake import MANY_EVENTS
from headwater.flow.land_text import land_text
from headwater.flow.log.offset_gaps import check_policy, find_compacted
from headwater.flow.runner import Committed, RunContext
from headwater.lake import Lake
from headwater.setting import Value
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.ledger.losses import LOST
from headwater.storage.log.directory_log import DirectoryLog
from headwater.storage.tables.read_progress import read_progress
from headwater.upkeep.work import new_run, new_writer, recorded

AT = parse_time("2026-03-01")
PATIENCE_SECONDS = 30


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


def say(lake: Lake, *ids: str) -> None:
    for name in ids:
        lake.put_text(f"line {name}", customer="acme", id=name, at=AT)


def test_what_expired_under_a_running_intake_is_told_as_lost(lake: Lake) -> None:
    parts = parts_of(lake)
    say(lake, "a", "b")
    with recorded(parts, "run") as entry:
        run = new_run(parts, None, entry, None)
        run.begin()
        run.intakes[0].drain()
        say(lake, "lost", "too")
        parts.log.expire(utc_now() + timedelta(days=400), {}, force=True)
        say(lake, "c")
        run.intakes[0].drain()
    assert read_progress(lake.settings, EVENTS).offsets == {0: 5}
    assert [run.detail for run in parts.ledger.unfinished(LOST)] == [
        {"partition": 0, "first": 2, "until": 4, "cause": "expired unread"}
    ]
    assert entry.done["lost"] == 2
    assert sorted(lake.table("events").to_arrow()["event_id"].to_pylist()) == ["a", "b", "c"]


@pytest.mark.parametrize("sound", [True, False])
def test_lines_that_are_refused_are_told_like_any_other_quarantine(
    lake: Lake, capsys: pytest.CaptureFixture[str], sound: bool
) -> None:
    """In the summary, its JSON, the journal and the log of events; also where nothing else is new."""
    log = parts_of(lake).log
    assert isinstance(log, DirectoryLog)
    log.publish_raw([f"no event {number}" for number in range(500)])
    if sound:
        say(lake, "a", "a")
        land_text(log, "other words", "acme", event_id="a", at=AT)  # a conflict, the other kind that is refused
    refused = 500 + sound
    assert main(["run", "--once", "--lake", str(lake.settings.lake), *(["--json"] if sound else [])]) == 0
    shown = capsys.readouterr()
    if sound:
        assert json.loads(shown.out)["done"]["quarantine"] == refused
    else:
        assert "Set aside by this run: 500 rows" in shown.out and "nothing new" not in shown.out
        assert "headwater quarantine" in shown.out
    (journal,) = parts_of(lake).ledger.runs(10)
    assert journal.detail["done"]["quarantine"] == refused
    lines = map(json.loads, (lake.settings.lake / "logs" / "headwater.jsonl").read_text().splitlines())
    (grew,) = [line for line in lines if line["event"] == "quarantine.grew"]
    assert (grew["level"], grew["stage"], grew["rows"]) == ("warning", "bronze", refused)
    assert lake.status()["quarantined"] == refused


@contextmanager
def following(
    lake: Lake, brought: Callable[[Committed], None], freshness: float = 0.0
) -> Iterator[tuple[Lake, DirectoryIntake]]:
    """The intake alone, on a lake that two lines wait in; `brought` hears of each commit."""
    say(lake, "one", "two")
    options: dict[str, Value] = {"run.trigger_seconds": 0.1, "run.freshness_seconds": freshness}
    with lakes.open(lake.settings.lake, options) as opened:
        parts = parts_of(opened)
        stop = threading.Event()
        context = RunContext(new_writer(parts, None), parts.ledger, parts.log, parts.index, parts.clock, stop)
        intake = DirectoryIntake(context, lambda _, made, __: brought(made), lambda *_: None)
        intake.resume()
        intake.start()
        yield opened, intake
        intake.stop()


def test_an_intake_that_follows_brings_what_comes_and_ends_when_stopped(lake: Lake) -> None:
    counts: list[int] = []
    with following(lake, lambda made: counts.append(made.rows)) as (opened, intake):
        say(opened, "three")
        wait_until(lambda: sum(counts) == 3)
        intake.check()
        intake.stop()
        intake.stop()
        say(opened, "four")
        assert sorted(opened.table("events").to_arrow()["event_id"].to_pylist()) == ["one", "three", "two"]
        assert "intake" not in [thread.name for thread in threading.enumerate()]


def test_who_waits_for_an_intake_hears_why_it_ended(lake: Lake) -> None:
    def brought(made: Committed) -> None:
        raise Unavailable("The catalog does not answer.")

    with following(lake, brought) as (_, intake):
        intake._following._thread.join(PATIENCE_SECONDS)
        with pytest.raises(Unavailable, match="catalog"):
            intake.check()


def test_few_events_wait_for_others_and_many_wait_for_nobody(lake: Lake) -> None:
    counts: list[int] = []
    with following(lake, lambda made: counts.append(made.rows), freshness=3_600) as (opened, intake):
        wait_until(lambda: counts == [2])
        say(opened, "three")
        let_pass(1, "ten looks, of which none may bring it")
        assert counts == [2], "the first are taken at once, and what follows soon after may wait"
        say(opened, *(f"more {number}" for number in range(MANY_EVENTS - 1)))
        wait_until(lambda: sum(counts) == 2 + MANY_EVENTS)
        intake.check()


def test_the_first_event_after_a_pause_waits_for_nobody(lake: Lake) -> None:
    counts: list[int] = []
    with following(lake, lambda made: counts.append(made.rows), freshness=3_600) as (opened, intake):
        wait_until(lambda: counts == [2])
        wait_until(lambda: intake._brought_at > 0)  # it has noted when that was
        intake._brought_at -= 3_600
        say(opened, "three")
        wait_until(lambda: counts == [2, 1])


def test_a_stream_commits_a_trickle_seldom_and_in_larger_batches(lake: Lake) -> None:
    """Every event is there at last, and between two commits of bronze there is always the time that they may wait."""
    directory, freshness, stop = lake.settings.lake, 3.0, threading.Event()
    lake.close()
    options: dict[str, Value] = {"run.trigger_seconds": 0.1, "run.freshness_seconds": freshness}
    with lakes.open(directory, options) as opened:
        assert opened.spark
        stream = threading.Thread(target=lambda: opened.run(once=False, stop=stop))
        stream.start()
        try:
            for number in range(40):
                say(opened, f"m{number}")
                let_pass(0.2, "a trickle")
            wait_until(lambda: not stream.is_alive() or len(opened.table("events").to_arrow()) == 40)
            wait_until(lambda: not stream.is_alive() or not opened.pending())
        finally:
            stop.set()
            stream.join(PATIENCE_SECONDS)
    lines = [json.loads(line) for line in (directory / "logs" / "headwater.jsonl").read_text().splitlines()]
    commits = [line for line in lines if line["event"] == "stage.committed" and line["stage"] == "bronze"]
    ends = [parse_time(line["at"]) for line in commits]
    begins = [end - timedelta(seconds=line["seconds"]) for end, line in zip(ends, commits, strict=True)]
    assert sum(line["rows"] for line in commits) == 40
    pauses = [(begin - end).total_seconds() for end, begin in zip(ends[:-1], begins[1:], strict=True)]
    assert len(pauses) >= 2 and min(pauses) > freshness - 0.5, pauses


class Topic(DirectoryLog):
    """A log that others may set up, and that leaves offsets without lines."""

    may_be_asked = True

    def check_policy(self) -> bool:
        return self.may_be_asked

    def uncommitted(self, partition: int, first: int, until: int) -> set[int]:
        return set()


@pytest.mark.parametrize("may_be_asked", [True, False])
def test_a_gap_in_a_topic_of_which_we_may_not_ask_is_told_once_a_run(tmp_path: Path, may_be_asked: bool) -> None:
    """It may be the mark of a transaction. It may as well be an event that a compaction dropped."""
    lines: list[dict[str, Any]] = []
    topic = Topic(tmp_path / "log", 24)
    topic.may_be_asked = may_be_asked
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    with telemetry.writing(telemetry.Sink(tmp_path, echo=lambda line: lines.append(json.loads(line)))):
        for _ in range(2):
            check_policy(topic, ledger)
            for _ in range(3):
                assert find_compacted(topic, ledger, 0, [*range(10), 12, 14], 0) == []
    told = [(line["event"], line["level"], line["first"], line["offsets"]) for line in lines]
    assert told == ([] if may_be_asked else [("log.gaps", "warning", 10, 3)] * 2)
