"""The log of a run: one JSON document a line, rolled by size, never in the way of the work."""

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lakes import parts_of

from headwater import lake as lakes
from headwater import telemetry
from headwater.errors import InvalidRequest
from headwater.telemetry import FILE_NAME, KEPT_FILES, Sink, note, writing
from headwater.upkeep.work import recorded

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_when_how_bad_what_and_the_figures(tmp_path: Path) -> None:
    with writing(Sink(tmp_path / "logs", clock=lambda: NOON)):
        note("stage.committed", stage="bronze", rows=3, seconds=0.25)
        note("lease.lost", level="error", path=Path("a\nb"))
    assert lines_of(tmp_path / "logs" / FILE_NAME) == [
        {
            "at": "2026-03-01T12:00:00.000Z",
            "level": "info",
            "event": "stage.committed",
            "stage": "bronze",
            "rows": 3,
            "seconds": 0.25,
        },
        {"at": "2026-03-01T12:00:00.000Z", "level": "error", "event": "lease.lost", "path": "a\nb"},
    ]


def test_nobody_listening_nothing_is_written(tmp_path: Path) -> None:
    with writing(Sink(tmp_path / "logs")):
        pass
    note("run.started")
    assert list(tmp_path.iterdir()) == []


def test_what_is_below_the_level_is_left_out_and_an_echo_hears_the_rest(tmp_path: Path) -> None:
    heard: list[str] = []
    with writing(Sink(tmp_path, level="warning", echo=heard.append)):
        note("a", level="info")
        note("b", level="warning")
    assert [line["event"] for line in lines_of(tmp_path / FILE_NAME)] == ["b"] == [json.loads(heard[0])["event"]]


def test_files_roll_by_size_and_only_so_many_are_kept(tmp_path: Path) -> None:
    with writing(Sink(tmp_path, roll_bytes=300)):
        for number in range(60):
            note("tick", number=number)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files in (
        [f"{FILE_NAME}.{n}" for n in range(1, KEPT_FILES + 1)],
        [FILE_NAME, *(f"{FILE_NAME}.{n}" for n in range(1, KEPT_FILES + 1))],
    )
    assert all(path.stat().st_size < 500 for path in tmp_path.iterdir())
    kept = sorted(line["number"] for path in tmp_path.iterdir() for line in lines_of(path))
    assert kept == list(range(kept[0], 60))


def test_processes_that_write_and_roll_at_once_tear_no_line(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headwater.telemetry import Sink, note, writing\n"
        "with writing(Sink(Path(sys.argv[1]), roll_bytes=20_000)):\n"
        "    for n in range(200): note('tick', who=sys.argv[2], number=n)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = [(line["who"], line["number"]) for path in tmp_path.iterdir() for line in lines_of(path)]
    assert sorted(found) == [(name, number) for name in "abc" for number in range(200)]


def test_a_line_that_cannot_be_written_does_not_stop_the_work(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the directory should be")
    with writing(Sink(tmp_path / "logs")):
        note("run.started")


def test_a_level_that_does_not_exist_is_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ValueError), writing(Sink(tmp_path)):
        note("x", level="loud")
    assert telemetry._sinks == []


def test_a_run_tells_of_each_commit_and_of_its_end_and_the_journal_knows(engine: None, tmp_path: Path) -> None:
    heard: list[str] = []
    with lakes.init(tmp_path / "lake") as lake:
        lake.put_text("My router is broken", customer="acme", id="m1")
        ran = lake.run(listen=heard.append)
        (journal,) = parts_of(lake).ledger.runs(10)
        assert (journal.kind, journal.outcome, journal.detail["done"]) == ("run", "done", ran.done)
    lines = lines_of(tmp_path / "lake" / "logs" / FILE_NAME)
    assert [json.loads(line) for line in heard] == lines
    assert [line["event"] for line in lines] == ["run.started", *["stage.committed"] * 4, "run.stopped"]
    commits = {line["stage"]: line for line in lines if line["event"] == "stage.committed"}
    assert [(stage, line["rows"]) for stage, line in commits.items()] == [
        ("bronze", 1), ("derive", 1), ("embed", 1), ("index", 1),
    ]  # fmt: skip
    assert commits["bronze"]["next_seq"] == commits["index"]["next_seq"] == 1
    assert (commits["derive"]["left"], commits["derive"]["seconds_left"]) == (0, 0)
    assert all(line["seconds"] > 0 for line in commits.values())


def test_a_run_that_fails_says_why_in_the_log_and_in_the_journal(engine: None, tmp_path: Path) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        lake.put_text("My router is broken", customer="acme", id="m1")
    with lakes.open(tmp_path / "lake", {"models.caption": "nowhere:Model"}) as broken:
        with pytest.raises(InvalidRequest):
            broken.run()
        (journal,) = parts_of(broken).ledger.runs(10)
    last = lines_of(tmp_path / "lake" / "logs" / FILE_NAME)[-1]
    assert (last["event"], last["level"], last["done"]) == ("run.failed", "error", {})
    assert journal.outcome == "failed" and journal.detail["error"] == last["error"] and "nowhere" in last["error"]


def test_a_level_that_does_not_exist_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        lake.put_text("My router is broken", customer="acme", id="m1")
    with lakes.open(tmp_path / "lake", {"telemetry.level": "loud"}) as lake:
        with pytest.raises(InvalidRequest, match="debug, info, warning, error"):
            lake.run()
        assert parts_of(lake).ledger.runs(10) == []


def test_a_run_that_is_told_to_stop_before_it_is_done_was_interrupted(engine: None, tmp_path: Path) -> None:
    stop = threading.Event()
    with lakes.init(tmp_path / "lake") as lake:
        lake.put_text("My router is broken", customer="acme", id="m1")
        lake.run(stop=stop, report=lambda stage, count: stop.set())
        (journal,) = parts_of(lake).ledger.runs(10)
        assert (journal.kind, journal.outcome) == ("run", "interrupted")
        assert lake.pending()


def test_who_presses_ctrl_c_interrupts_and_fails_nothing(tmp_path: Path) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        with pytest.raises(KeyboardInterrupt), recorded(parts_of(lake), "maintain"):
            raise KeyboardInterrupt
        assert parts_of(lake).ledger.runs(1)[0].outcome == "interrupted"
