"""What nobody is going to mend is dismissed: shown and counted apart, not tried again, until somebody takes it back."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import rounds
from calling import Answer, answer
from lakes import parts_of, small_lake
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.domain.quarantine import RETRY_DUE
from headwater.domain.tables import QUARANTINE
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.flow.drive import retry
from headwater.flow.drive.retry_schedule import schedule_retry
from headwater.lake import Lake
from headwater.storage.io.local_path import local_path
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import removed_files
from headwater.upkeep.quarantine import count_waiting_for, is_any_waiting

BAD = "audio/acme/2026-03-01/cut.wav"
WHY = "the customer lost the original"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With a broken file of event e3, and two lines that were no events."""
    made = small_lake(tmp_path / "lake")
    poison = {"step": "bronze", "reason": "BAD_EVENT", "attempts": 1}
    with lakes.open(made) as opened:
        table = parts_of(opened).catalog.load_table(QUARANTINE.name)
        given = [{**poison, "event_id": f"0:{number}"} for number in range(2)]
        append(table, rows(QUARANTINE, given, 1), QUARANTINE.day)
    return made


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], directory: Path) -> Callable[..., Answer]:
    return lambda *arguments: answer(capsys, *arguments, "--lake", directory)


def gauge(call: Callable[..., Answer], name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", call("metrics").out, re.MULTILINE)
    assert found is not None
    return float(found[1])


def counts(call: Callable[..., Answer]) -> tuple[int, int]:
    status = call("status", "--json").json
    assert (gauge(call, "headwater_quarantined"), gauge(call, "headwater_dismissed")) == (
        status["quarantined"], status["dismissed"],
    )  # fmt: skip
    return status["quarantined"], status["dismissed"]


def test_a_row_is_dismissed_with_a_name_and_a_reason_and_taken_back(call: Callable[..., Answer]) -> None:
    assert counts(call) == (3, 0)
    line = ("quarantine", "dismiss", BAD, "--because", WHY, "--by", "Ada")
    plan = call(*line, "--dry-run", "--json").json
    assert (plan["count"], plan["applied"]) == (1, False) and counts(call) == (3, 0)
    done = call(*line, "--json")
    assert done.code == 0 and (done.json["count"], done.json["applied"]) == (1, True)
    assert counts(call) == (2, 1)
    listed = call("quarantine", "--json").json
    assert {row["reason"] for row in listed["rows"]} == {"BAD_EVENT"}
    assert [each["reason"] for each in listed["reasons"]] == ["BAD_EVENT"]
    (apart,) = listed["dismissed"]
    assert (apart["event_id"], apart["dismissed_by"], apart["because"]) == ("e3", "Ada", WHY)
    drawn = call("quarantine").out
    assert "dismissed: 1 row" in drawn and "Ada" in drawn and WHY in drawn
    assert "2 rows, and 1 dismissed" in call("status").out
    told = call("sql", "select because, dismissed_by, dismissed_at from dismissals", "--json").json["rows"]
    assert [(row["because"], row["dismissed_by"]) for row in told] == [(WHY, "Ada")]
    assert call("quarantine", "dismiss", "e3", "--undo", "--dry-run").code == 0 and counts(call) == (2, 1)
    assert "1 row taken back" in call("quarantine", "dismiss", "e3", "--undo").out
    assert counts(call) == (3, 0)


def test_all_of_a_reason_go_at_once_and_the_journal_tells(call: Callable[..., Answer], directory: Path) -> None:
    assert call("quarantine", "dismiss", "--reason", "bad_event", "--because", WHY).code == 0
    assert counts(call) == (1, 2)
    with lakes.open(directory) as opened:
        (run,) = parts_of(opened).ledger.runs(1)
        assert (run.kind, run.outcome, run.detail["done"]) == ("dismiss", "done", {"dismissed": 2})
        assert {row["dismissed_by"] for row in opened.quarantine()["dismissed"]} != {""}
    again = call("quarantine", "dismiss", "--reason", "BAD_EVENT", "--because", "another", "--json").json
    assert again["count"] == 0, "twice is once"


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (("e3",), InvalidRequest, "--because"),
        (("--because", WHY), InvalidRequest, "--reason"),
        (("nobody", "--because", WHY), NotFound, "Nothing of nobody"),
        (("e3", "--undo"), NotFound, "Nothing of e3 has been dismissed"),
        (("--reason", "WHIM", "--because", WHY), InvalidRequest, "no reason for quarantine"),
    ],
)
def test_what_says_too_little_is_refused(
    call: Callable[..., Answer], line: tuple[str, ...], error: type[Any], words: str
) -> None:
    refused = call("quarantine", "dismiss", *line)
    assert refused.code == error.exit_code and words in refused.err, refused
    assert counts(call) == (3, 0)


def test_the_global_options_stand_anywhere_and_json_is_one_document(
    capsys: pytest.CaptureFixture[str], directory: Path
) -> None:
    before = answer(capsys, "--json", "quarantine", "--lake", directory, "dismiss", "e3", "--because", WHY, "--dry-run")
    assert before.code == 0 and json.loads(before.out)["count"] == 1
    failed = answer(capsys, "quarantine", "--lake", directory, "dismiss", "--json")
    assert failed.code == InvalidRequest.exit_code and json.loads(failed.out)["error"]["kind"] == "InvalidRequest"


def test_a_dismissal_comes_back_with_a_backup(call: Callable[..., Answer], directory: Path, tmp_path: Path) -> None:
    assert call("quarantine", "dismiss", "e3", "--because", WHY, "--by", "Ada").code == 0
    assert call("backup", tmp_path / "lake.backup").code == 0
    for file in directory.glob("ledger.db*"):
        file.unlink()
    assert call("restore", tmp_path / "lake.backup").code == 0
    assert counts(call) == (2, 1)


def test_it_is_refused_while_the_lake_is_being_replaced(call: Callable[..., Answer], directory: Path) -> None:
    from headwater.clock import utc_now
    from headwater.upkeep.exclusion import alone

    with lakes.open(directory) as opened, alone(parts_of(opened).ledger, "restore", utc_now):
        refused = call("quarantine", "dismiss", "e3", "--because", WHY)
    assert refused.code == Conflict.exit_code and "headwater restore is already at work" in refused.err


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    """Six broken files and three lines that were no events."""
    rounds.use_cheap_models(tmp_path / "flow")
    with lakes.init(tmp_path / "flow") as made:
        for number in range(3):
            rounds.put_round(made, rounds.make_media(tmp_path, number), number)
        made.run()
        yield made


def attempts(lake: Lake, part: str) -> list[int]:
    listed = lake.quarantine()
    return sorted(row["attempts"] for row in listed[part] if row["reason"] == "UNREADABLE")


def removals(lake: Lake) -> int:
    metadata = Committer(lake.settings).tables.base(QUARANTINE.name).metadata
    return sum(removed_files(snapshot) for snapshot in metadata["snapshots"])


def test_what_is_dismissed_is_not_tried_again_and_what_is_tried_again_is_taken_out_by_the_portion(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row["event_id"] for row in lake.quarantine("UNREADABLE")["rows"]]
    assert len(ids) == 6
    lake.dismiss(*ids[:3], because=WHY, by="Ada")
    assert lake.retry("UNREADABLE").tried == 3
    assert (attempts(lake, "rows"), attempts(lake, "dismissed")) == ([2, 2, 2], [1, 1, 1])
    lake.maintain()
    assert (attempts(lake, "rows"), attempts(lake, "dismissed")) == ([2, 2, 2], [1, 1, 1])
    lake.dismiss(*ids[:3], undo=True)
    monkeypatch.setattr(retry, "_PORTION_ROWS", 2)
    monkeypatch.setattr(retry, "_ROWS_AT_ONCE", 1)
    before = removals(lake)
    assert lake.retry("UNREADABLE").tried == 6
    assert attempts(lake, "rows") == [2, 2, 2, 3, 3, 3]
    assert removals(lake) == before + 2, "two rows, then four: the files are not written anew for every round"


def test_a_dismissal_outlives_a_rollback_of_the_table(lake: Lake) -> None:
    ids = [row["event_id"] for row in lake.quarantine("UNREADABLE")["rows"]]
    lake.dismiss(*ids, because=WHY, by="Ada")
    table = parts_of(lake).catalog.load_table(QUARANTINE.name)
    first = table.metadata.snapshots[0].snapshot_id
    lake.spark.sql(f"call lake.system.rollback_to_snapshot('{QUARANTINE.name}', {first})")
    lake.run()
    listed = lake.quarantine("UNREADABLE")
    assert listed["rows"] == [] and {row["event_id"] for row in listed["dismissed"]} <= set(ids)


def test_what_waits_for_its_bytes_and_is_dismissed_wakes_no_run(lake: Lake, tmp_path: Path) -> None:
    results = lake.put(rounds.make_media(tmp_path, 7) / "call-7-0.wav", customer="acme")
    (lake.settings.lake / "raw" / results[0].event.pointer.path).unlink()  # type: ignore[union-attr]
    lake.run()
    ledger = parts_of(lake).ledger
    assert [row["reason"] for row in lake.quarantine("MISSING_OBJECT")["rows"]] == ["MISSING_OBJECT"]
    assert ledger.fact(RETRY_DUE)
    lake.dismiss(reason="MISSING_OBJECT", because=WHY, by="Ada")
    retry.note_due(lake.spark, ledger)
    assert not ledger.fact(RETRY_DUE), "nothing is due"
    lake.dismiss(reason="MISSING_OBJECT", undo=True)
    assert ledger.fact(RETRY_DUE), "it is tried again by itself"


def test_who_sets_something_aside_while_others_look_when_to_try_again_is_not_forgotten(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = parts_of(lake).ledger
    ledger.set_fact(RETRY_DUE, "")
    looked = retry._due_at

    def aside_meanwhile() -> Any:
        schedule_retry(ledger, parts_of(lake).clock())
        return looked()

    monkeypatch.setattr(retry, "_due_at", aside_meanwhile)
    retry.note_due(lake.spark, ledger)
    assert ledger.fact(RETRY_DUE)


def test_a_kill_after_rows_were_set_aside_leaves_somebody_who_knows(tmp_path: Path) -> None:
    directory = tmp_path / "lake"
    with lakes.init(directory) as lake:
        results = lake.put(rounds.make_media(tmp_path, 7) / "call-7-0.wav", customer="acme")
        (directory / "raw" / results[0].event.pointer.path).unlink()  # type: ignore[union-attr]
    command = [sys.executable, "-m", "headwater", "--lake", str(directory), "run", "--once"]
    environment = {**os.environ, "HEADWATER_FAULT": "derive.quarantined"}
    killed = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    with lakes.open(directory) as lake:
        assert lake.quarantine()["rows"] and parts_of(lake).ledger.fact(RETRY_DUE)


def hide_files(lake: Lake, *but: str) -> None:
    """The data files of quarantine but those with one of these words in a row's event id."""
    table = parts_of(lake).catalog.load_table(QUARANTINE.name)
    for task in table.scan().plan_files():
        path = Path(local_path(task.file.file_path))
        if not set(pq.read_table(path)["event_id"].to_pylist()) & set(but):
            path.rename(path.with_suffix(".hidden"))


def test_what_waits_is_counted_once_for_a_state_of_quarantine_and_of_what_was_let_go(directory: Path) -> None:
    with lakes.open(directory) as lake:
        lake.dismiss("e3", because=WHY, by="Ada")
        first = lake.status()
        assert (first["quarantined"], first["dismissed"]) == (2, 1)
        hide_files(lake)
        assert lake.status() == first, "nothing of it is read again"
        assert 'headwater_quarantined_by_reason{reason="BAD_EVENT"} 2' in lake.metrics()
        with pytest.raises(NotFound):
            lake.dismiss("0:1", because=WHY, by="Ada")


def test_rows_are_found_by_their_ids_without_reading_those_of_others(directory: Path) -> None:
    with lakes.open(directory) as lake:
        hide_files(lake, "e3")
        assert [row["event_id"] for row in lake.plan_dismissal("e3").rows] == ["e3"]
        assert [row["event_id"] for row in lake.plan_dismissal("e3", BAD).rows] == ["e3"], "by either name, once"


def test_whether_anything_waits_is_known_by_the_first_row_that_does(directory: Path) -> None:
    with lakes.open(directory) as lake:
        parts = parts_of(lake)

        def waits(reason: str | None = None) -> bool:
            return is_any_waiting(parts.reader, parts.ledger, reason)

        assert waits() and waits("bad_event") and waits("TRUNCATED") and not waits("TIMEOUT")
        lake.dismiss("e3", because=WHY, by="Ada")
        assert waits() and waits("BAD_EVENT") and not waits("TRUNCATED")
        lake.dismiss(reason="BAD_EVENT", because=WHY, by="Ada")
        assert not waits() and lake.retry().tried == 0


def test_objects_that_wait_for_a_model_are_counted_without_reading_those_of_others(directory: Path) -> None:
    down = {"step": "transcribe", "fingerprint": "f00d", "reason": "MODEL_DOWN", "attempts": 1}
    given = [
        {**down, "event_id": "w0"},
        {**down, "event_id": "w1", "attempts": 16},
        {**down, "event_id": "w2", "reason": "SLOW", "attempts": 99},
        {**down, "event_id": "w3", "reason": "TIMEOUT"},
        {**down, "event_id": "w4", "fingerprint": "beef"},
    ]
    with lakes.open(directory) as lake:
        parts = parts_of(lake)
        append(parts.catalog.load_table(QUARANTINE.name), rows(QUARANTINE, given, 10), QUARANTINE.day)
        hide_files(lake, "w0")
        assert count_waiting_for(parts.reader, parts.ledger, "f00d") == 2
        assert count_waiting_for(parts.reader, parts.ledger, "abba") == 0
