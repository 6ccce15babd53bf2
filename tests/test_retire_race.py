"""A model that becomes active while its retirement is under way stays; one whose retirement has begun stays hidden."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from calling import answer
from lakes import CALL, parts_of, small_lake
from sample_rows import append, rows
from zombies import wait_until_frozen

from headwater import lake as lakes
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.tables import TRANSCRIPTS
from headwater.errors import Conflict
from headwater.storage.ledger.model_book import change_book, read_book

OLD, NEW = "transcribe-print", "aaaa000011112222"
PATIENCE_SECONDS = 120


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """One call, heard by the active model and by one beside it."""
    directory = small_lake(tmp_path / "lake")
    call = {"customer": "acme", "modality": "audio", "event_id": "e1", "object_id": CALL, "text": "the refund"}
    heard = {**call, "step": "transcribe", "model": "new 2", "fingerprint": NEW}
    old = KnownModel("transcribe", "pocketsphinx", "pocketsphinx 5.1.1", OLD, State.ACTIVE, "2026-03-01T12:00:00Z")
    new = KnownModel("transcribe", "new", "new 2", NEW, State.STANDBY, "2026-03-02T12:00:00Z")
    with lakes.open(directory) as opened:
        table = parts_of(opened).catalog.load_table(TRANSCRIPTS.name)
        append(table, rows(TRANSCRIPTS, [heard], 1), TRANSCRIPTS.day)
        change_book(parts_of(opened).ledger, lambda _: ModelBook((old, new)))
    return directory


@contextmanager
def retiring(lake: Path, point: str) -> "Iterator[subprocess.Popen[str]]":
    """A process that retires the model beside, asleep at a point of it."""
    line = [sys.executable, "-m", "headwater", "--lake", str(lake), "retire", "transcribe", "new"]
    environment = {**os.environ, "HEADWATER_FAULT": f"{point}:1:stop"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            wait_until_frozen(process)
            yield process
        finally:
            process.kill()


def state_of(lake: Path, fingerprint: str) -> State:
    with lakes.open(lake) as opened:
        return read_book(parts_of(opened).ledger).find("transcribe", fingerprint).state


def heard_by_new(lake: Path) -> int:
    with lakes.open(lake) as opened:
        found = opened.sql(f"select count(*) as n from all_models.transcripts where fingerprint = '{NEW}'")
    return int(found["rows"][0]["n"])


def test_a_model_that_was_activated_after_the_plan_is_not_retired(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with retiring(lake, "retire.planned") as process:
        assert answer(capsys, "activate", "transcribe", "new", "--lake", lake).code == 0
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == Conflict.exit_code and "is active for transcribe" in errors, errors
    assert state_of(lake, NEW) is State.ACTIVE and heard_by_new(lake) == 1


def test_a_model_that_became_anything_else_after_the_plan_is_not_retired(lake: Path) -> None:
    with retiring(lake, "retire.planned") as process:
        with lakes.open(lake) as opened:
            ledger = parts_of(opened).ledger
            change_book(
                ledger, lambda book: book.with_model(replace(book.find("transcribe", NEW), state=State.BUILDING))
            )
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (
        process.returncode == Conflict.exit_code and "was standby when this was planned and is building now" in errors
    )
    assert heard_by_new(lake) == 1


def test_a_model_whose_retirement_has_begun_cannot_be_activated(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with retiring(lake, "retire.begun"):
        refused = answer(capsys, "activate", "transcribe", "new", "--lake", lake)
        assert refused.code == Conflict.exit_code and "is being removed" in refused.err
        assert state_of(lake, OLD) is State.ACTIVE and state_of(lake, NEW) is State.RETIRING


def test_what_is_retired_is_what_was_planned_whatever_the_name_means_by_now(lake: Path) -> None:
    """Between plan and apply another model of the same name came in."""
    with lakes.open(lake) as opened:
        plan = opened.models.plan_retire("transcribe", "new")
        second = replace(read_book(parts_of(opened).ledger).find("transcribe", NEW), fingerprint="f" * 16)
        change_book(parts_of(opened).ledger, lambda book: book.without(book.find("transcribe", NEW)))
        change_book(parts_of(opened).ledger, lambda book: book.with_model(second))
        with pytest.raises(Exception, match="knows no model aaaa000011112222"):
            opened.models.retire("transcribe", "new", plan=plan)
        assert read_book(parts_of(opened).ledger).find("transcribe", "new").state is State.STANDBY
