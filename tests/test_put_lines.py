"""Lines on stdin: put as they come, each with its own result; the same input again adds nothing."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from calling import Answer, answer
from waiting import wait_until

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.event import Event
from headwater.errors import InvalidRequest, Unavailable
from headwater.flow.land_text import TEXT_BYTES_MAX, land_lines
from headwater.flow.landed import BATCH_EVENTS, Landed
from headwater.storage.log.directory_log import DirectoryLog


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "lake")]) == 0
    return tmp_path / "lake"


@pytest.fixture
def log(lake: Path) -> DirectoryLog:
    return DirectoryLog(lake / "log", 48)


def events(log: DirectoryLog) -> list[dict[str, Any]]:
    return [json.loads(line.value) for line in log.read(0, 0, 1_000_000)]


def put(lake: Path, data: bytes, *options: str) -> Answer:
    """As a process of its own, with a pipe."""
    line = [sys.executable, "-m", "headwater", "put", "-", "--customer", "acme", "--lake", str(lake), "--json"]
    done = subprocess.run([*line, *options], input=data, capture_output=True, check=False, timeout=120)
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def land(log: DirectoryLog, *lines: str | bytes | None, **options: Any) -> list[Landed]:
    return list(land_lines(log, lines, "acme", **options))


def test_a_line_is_in_the_log_while_the_input_is_still_open(lake: Path, log: DirectoryLog) -> None:
    line = [sys.executable, "-m", "headwater", "put", "-", "--customer", "acme", "--lake", str(lake), "--json"]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    wait_until(lambda: log.end() == {0: 1} or process.poll() is not None)
    process.stdin.write(b"second\nhalf a line, ")
    process.stdin.flush()
    wait_until(lambda: log.end() == {0: 2} or process.poll() is not None)
    assert [event["text"] for event in events(log)] == ["first", "second"]
    out, _ = process.communicate(b"and its end", timeout=60)
    assert [event["text"] for event in events(log)] == ["first", "second", "half a line, and its end"]
    assert (process.returncode, json.loads(out)["summary"]["stored"]) == (0, 3)


def test_a_bad_line_is_one_failed_result_and_the_others_go_on(lake: Path, log: DirectoryLog) -> None:
    long = b"x" * (TEXT_BYTES_MAX * 20)
    told = put(lake, b"one\r\n\n\xff\xfe\n" + long + b"\nfive\n   \nseven")
    assert told.code == InvalidRequest.exit_code
    assert told.json["summary"] == {"stored": 3, "already_there": 0, "failed": 2}
    results = [(result["source"], result["status"]) for result in told.json["results"]]
    assert results == [("-:1", "stored"), ("-:3", "failed"), ("-:4", "failed"), ("-:5", "stored"), ("-:7", "stored")]
    assert [event["text"] for event in events(log)] == ["one", "five", "seven"]
    messages = [result["error"]["message"] for result in told.json["results"] if result["error"]]
    assert "UTF-8" in messages[0] and str(TEXT_BYTES_MAX) in messages[1]


@pytest.mark.parametrize("line", ["a" + "€" * TEXT_BYTES_MAX, " " * TEXT_BYTES_MAX + " " * 10 + "words"])
def test_of_a_line_that_is_too_long_nothing_else_is_said(lake: Path, log: DirectoryLog, line: str) -> None:
    """Wherever it is cut, in the middle of a letter too."""
    told = put(lake, line.encode() + b"\nnext\n")
    (failed, stored) = told.json["results"]
    assert f"Line 1 has more than {TEXT_BYTES_MAX} bytes" in failed["error"]["message"]
    assert (stored["source"], [event["text"] for event in events(log)]) == ("-:2", ["next"])


def test_the_same_input_again_is_the_same_messages(lake: Path, log: DirectoryLog) -> None:
    first, second = (put(lake, b"yes\nno\nyes\n") for _ in range(2))
    ids = [result["id"] for result in first.json["results"]]
    assert ids == [result["id"] for result in second.json["results"]]
    assert len(set(ids)) == 3, "the same words at two places are two messages"
    mended = put(lake, b"yes\nno!\nyes\n")
    assert [one == other["id"] for one, other in zip(ids, mended.json["results"], strict=True)] == [True, False, True]
    other = land_lines(log, ["yes"], "globex")
    assert next(other).event.event_id not in ids  # type: ignore[union-attr]


def test_a_prefix_tells_one_input_from_another(lake: Path) -> None:
    told = [put(lake, b"yes\n\nno\n", "--id-prefix", name) for name in ("monday", "tuesday")]
    assert [result["id"] for each in told for result in each.json["results"]] == [
        "monday-1",
        "monday-3",
        "tuesday-1",
        "tuesday-3",
    ]


def test_one_id_is_for_one_line(lake: Path, log: DirectoryLog) -> None:
    assert put(lake, b"hello\n\n", "--id", "x").json["results"][0]["id"] == "x"
    refused = put(lake, b"hello\nyou\n", "--id", "y")
    assert refused.code == 2 and "--id" in refused.out
    assert log.end() == {0: 1}


def test_a_text_that_is_no_good_does_not_stop_the_others(
    lake: Path, log: DirectoryLog, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["--text", "one", "--text", " ", "--text", "three"]
    told = answer(capsys, "put", *texts, "--customer", "acme", "--lake", lake, "--json")
    assert (told.code, told.json["summary"]) == (2, {"stored": 2, "already_there": 0, "failed": 1})
    assert [event["text"] for event in events(log)] == ["one", "three"]


class _CountingLog(DirectoryLog):
    publishes = 0

    def publish(self, events: Sequence[Event]) -> None:
        self.publishes += bool(events)
        super().publish(events)


def test_lines_that_come_fast_are_published_in_batches_and_none_is_told_before(tmp_path: Path) -> None:
    log, told = _CountingLog(tmp_path / "log", 48), 0
    for landed in land_lines(log, (f"line {number}" for number in range(BATCH_EVENTS * 2 + 10)), "acme"):
        told += 1
        assert landed.status == "stored" and log.end()[0] >= told
    assert told == BATCH_EVENTS * 2 + 10
    assert log.publishes <= 10


def test_what_waits_goes_out_when_no_more_has_come_and_when_the_reader_goes_away(log: DirectoryLog) -> None:
    lines = land_lines(log, iter(["one", None, "two", "three"]), "acme")
    next(lines)
    assert log.end() == {0: 1}

    def broken_off() -> Iterator[str]:
        yield "four"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(land_lines(log, broken_off(), "acme"))
    assert [event["text"] for event in events(log)] == ["one", "four"]


def test_an_event_that_the_log_refuses_costs_only_itself(tmp_path: Path) -> None:
    class Choosy(DirectoryLog):
        def publish(self, events: Sequence[Event]) -> None:
            if any("bad" in (event.text or "") for event in events):
                raise InvalidRequest("An event is too large for the topic.")
            super().publish(events)

    log = Choosy(tmp_path / "log", 48)
    assert [landed.status for landed in land(log, "one", "bad", "three")] == ["stored", "failed", "stored"]
    assert [event["text"] for event in events(log)] == ["one", "three"]


def test_a_text_that_no_log_carries_is_refused_alone(log: DirectoryLog) -> None:
    results = land(log, "\x01" * (TEXT_BYTES_MAX - 10), "fine")
    assert [landed.status for landed in results] == ["failed", "stored"]


def test_a_log_that_is_down_is_the_failure_of_each_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where the log should be")
    results = land(DirectoryLog(tmp_path / "log", 48), "one", b"\xff", "three")
    assert [type(landed.error) for landed in results] == [Unavailable, InvalidRequest, Unavailable]


def test_a_stand_in_for_stdin_is_read_too(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo"))
    assert answer(capsys, "put", "-", "--customer", "acme", "--lake", lake).code == 0
    with lakes.open(lake) as opened:
        assert opened.pending().bronze == 2


def test_an_empty_input_is_no_failure(lake: Path) -> None:
    assert put(lake, b"").json == {
        "results": [],
        "summary": {"stored": 0, "already_there": 0, "failed": 0},
        "skipped": [],
        "unsupported": {},
    }
