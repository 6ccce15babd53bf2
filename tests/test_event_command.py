"""An operator looks at one event and corrects it: by the log, so that a run brings it in like any other correction."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from calling import Answer, answer
from lakes import CALL, CHAT, parts_of, small_lake
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.domain.line import Line, read_line
from headwater.domain.tables import EVENTS
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.flow import log_lines
from headwater.upkeep.events import CorrectionPlan

Calling = Callable[..., Answer]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake(tmp_path / "lake")


@pytest.fixture
def call(lake: Path, capsys: pytest.CaptureFixture[str]) -> Calling:
    return partial(answer, capsys, "--lake", lake)


def sent(lake: Path) -> list[str]:
    with lakes.open(lake) as opened:
        return [line.value for line in parts_of(opened).log.read(0, 0, 100)]


def test_an_event_is_shown_by_its_id_its_objects_path_or_its_place_and_so_is_a_refused_line(call: Calling) -> None:
    shown = call("event", "show", "e1", "--json").json
    (event,) = shown["events"]
    assert (event["object_id"], event["corrected"], event["corrected_by"], event["extra"]) == (CALL, [], None, None)
    assert call("event", "show", CALL, "--json").json == shown
    place = f"{event['log_partition']}:{event['log_offset']}"
    assert event in call("event", "show", place, "--json").json["events"]
    assert CALL in call("event", "show", "e1").out
    assert [row["reason"] for row in call("event", "show", "e3", "--json").json["quarantined"]] == ["TRUNCATED"]
    for name in ("nobody", "7:7"):
        assert call("event", "show", name).code == NotFound.exit_code


def test_a_dry_run_tells_what_would_be_sent_and_the_same_command_sends_it_once(call: Calling, lake: Path) -> None:
    line = ("event", "correct", "e1", "--content-type", "audio/x-wav")
    planned = call(*line, "--dry-run", "--json").json
    assert planned["changes"] == {"content_type": ["audio/wav", "audio/x-wav"]} and not planned["sent"]
    assert "would be sent" in call(*line, "--dry-run").out and sent(lake) == []
    done = call(*line, "--json").json
    assert done == {**planned, "sent": True}
    assert call(*line).code == 0
    first, second = sent(lake)
    assert json.loads(first) == json.loads(second), "which bronze takes for one"
    event = json.loads(first)
    assert (event["corrects"], event["pointer"]["content_type"], event["customer"]) == ("e1", "audio/x-wav", "acme")
    with lakes.open(lake) as opened:
        journal = opened.sql("SELECT kind, outcome FROM runs")["rows"]
    assert [(row["kind"], row["outcome"]) for row in journal] == [("event", "done")] * 2


def test_what_the_lake_has_so_already_is_not_sent_and_what_the_bytes_contradict_is_refused(
    call: Calling, lake: Path
) -> None:
    assert "Nothing to correct" in call("event", "correct", "e1", "--from-bytes").out
    assert "Nothing to correct" in call("event", "correct", CALL, "--content-type", "audio/wav").out
    for wrong in (
        ("--checksum", "ab" * 32), ("--size", "3"), ("--checksum", "short"), ("--from-bytes", "--size", "3"), (),
    ):  # fmt: skip
        refused = call("event", "correct", "e1", *wrong)
        assert refused.code == InvalidRequest.exit_code, (wrong, refused)
    assert call("event", "correct", CHAT, "--size", "3").code == InvalidRequest.exit_code
    assert call("event", "correct", "e3", "--size", "3").code == InvalidRequest.exit_code
    assert call("event", "correct", "e2", "--customer", "acme", "--size", "3").code == NotFound.exit_code
    assert sent(lake) == []


def test_where_another_correction_came_in_since_the_plan_was_made_nothing_is_sent(lake: Path) -> None:
    with lakes.open(lake) as opened:
        plan: CorrectionPlan = opened.events.plan_correction("e1", content_type="audio/x-wav")
        other = {"event_id": "e1-again", "customer": "acme", "modality": "audio", "object_id": CALL, "corrects": "e1"}
        append(parts_of(opened).catalog.load_table(EVENTS.name), rows(EVENTS, [other], first_seq=9), EVENTS.day)
        with pytest.raises(Conflict, match="headwater event show e1"):
            opened.events.correct(plan)
        assert opened.events.show("e1")["events"][0]["corrected_by"] == "e1-again"
    assert sent(lake) == []


def test_a_line_that_stops_the_reading_is_passed_over_and_a_row_says_who_did(
    engine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "new"

    def faulty(value: bytes | None) -> Line:
        if value is not None and b"poison" in value:
            raise RuntimeError("a fault of ours")
        return read_line(value)

    monkeypatch.setattr(log_lines, "read_line", faulty)
    with lakes.init(directory) as lake:
        lake.put_text("before", customer="acme", id="m-1")
        parts_of(lake).log.publish_raw(["poison"])  # type: ignore[attr-defined]
        lake.put_text("after", customer="acme", id="m-2")
        with pytest.raises(RuntimeError):
            lake.run()
        skip = partial(answer, capsys, "--lake", directory, "event", "skip")
        assert skip("0:1").code == skip("here", "--because", "it").code == InvalidRequest.exit_code
        assert skip("0:9", "--because", "it").code == InvalidRequest.exit_code
        assert answer(capsys, "--lake", directory, "event", "show", "0:1", "--json").json["line"]["value"] == "poison"
        line = ("0:1", "--because", "it stops the run", "--by", "ann")
        assert skip(*line, "--dry-run", "--json").json["line"] == "poison"
        with pytest.raises(RuntimeError):
            lake.run()
        assert skip(*line).code == skip(*line).code == 0
        lake.run()
        (row,) = lake.quarantine()["rows"]
        assert (row["reason"], row["log_offset"], row["payload"]) == ("SKIPPED", 1, None)
        assert "skipped by ann: it stops the run" in row["detail"]
        assert lake.sql("SELECT text FROM messages ORDER BY text")["rows"] == [{"text": "after"}, {"text": "before"}]
        assert skip(*line).code == InvalidRequest.exit_code, "it was read"
