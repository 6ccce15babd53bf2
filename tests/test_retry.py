"""A retry beside everything else that writes: a replay, the stages, a run that was killed between two tables."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
import rounds
from counted import *  # noqa: F403
from lakes import parts_of
from test_replay import fill

from headwater import faults
from headwater.domain.model_book import State
from headwater.domain.tables import EVENTS, METADATA
from headwater.errors import Conflict, DataFault
from headwater.flow.drive.register_models import register_model
from headwater.flow.drive.run import Run
from headwater.flow.embed.stage import embed_again
from headwater.lake import Lake
from headwater.storage.ledger.model_book import change_book, read_book
from headwater.storage.tables.read_progress import read_progress
from headwater.upkeep.work import new_run, recorded


@pytest.fixture
def run(lake: Lake) -> Iterator[Run]:
    with recorded(parts_of(lake), "run") as entry:
        yield new_run(parts_of(lake), None, entry, None)


def times(lake: Lake, table: str, key: str) -> set[int]:
    """How often each key is there."""
    return set(Counter(row["key"] for row in lake.sql(f"select {key} as key from all_models.{table}")["rows"]).values())


def objects_of(lake: Lake) -> dict[str, datetime]:
    """Each with its time."""
    events = lake.table("events").to_arrow().sort_by("seq")
    return dict(zip(events["object_id"].to_pylist(), events["occurred_at"].to_pylist(), strict=True))


def test_what_a_model_under_replay_left_in_quarantine_waits_for_its_replay(lake: Lake, tmp_path: Path) -> None:
    fill(lake, tmp_path, 1)
    with pytest.raises(DataFault, match="failed on all 4"):
        lake.models.replay("transcribe", "deaf")
    ledger = parts_of(lake).ledger
    deaf = read_book(ledger).find("transcribe", "deaf")
    change_book(ledger, lambda book: book.with_model(replace(deaf, state=State.BUILDING)))
    assert lake.retry("BAD_OUTPUT").tried == 0
    assert len(lake.quarantine("BAD_OUTPUT")["rows"]) == 4
    change_book(ledger, lambda book: book.with_model(replace(deaf, state=State.STANDBY)))
    assert lake.retry("BAD_OUTPUT").tried == 4


def test_what_a_retry_embedded_is_not_embedded_again_by_a_replay(lake: Lake, run: Run, tmp_path: Path) -> None:
    fill(lake, tmp_path, 1)
    near = register_model(lake.settings, run.ledger, run.clock, "near")
    some = dict(list(objects_of(lake).items())[:4])
    made = embed_again(run.writer, [near], some, run.clock)
    assert 0 < made.vectors < 9
    assert lake.models.replay("embed", "near").finished
    assert times(lake, "embeddings", "chunk_id") == {1}
    assert lake.models.compare("embed", "ACTIVE", "near")["models"][1]["covered"] == 9


def test_a_retry_leaves_to_the_stage_what_it_has_yet_to_embed(lake: Lake, run: Run, tmp_path: Path) -> None:
    fill(lake, tmp_path, 1)
    rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)
    run.begin()
    run.intakes[0].drain()
    assert run.take_turn()
    kept = read_book(run.ledger).kept("embed")
    assert embed_again(run.writer, kept, objects_of(lake), run.clock).vectors == 0
    lake.run()
    assert times(lake, "embeddings", "chunk_id") == {1}


def stopped_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt(point)

    monkeypatch.setattr(faults, "point", stop)


def broken(lake: Lake) -> int:
    return sum("broken" in (row["object_id"] or "") for row in lake.quarantine()["rows"])


@pytest.fixture
def cut_short(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A run ended after a batch's quarantine was committed and before its other tables were."""
    rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
    with monkeypatch.context() as patched:
        stopped_at("derive.quarantined", patched)
        with pytest.raises(KeyboardInterrupt):
            lake.run()
    assert broken(lake) and not lake.sql("select * from transcripts")["rows"]
    return lake


def test_a_retry_after_a_kill_first_ends_the_batch_that_was_cut_short(cut_short: Lake) -> None:
    cut_short.retry()
    cut_short.run()
    for table, key in (("metadata", "object_id"), ("transcripts", "object_id"), ("messages", "event_id")):
        assert times(cut_short, table, key) == {1}, table
    assert len(cut_short.sql("select * from transcripts")["rows"]) == 4


def test_what_fails_only_after_a_kill_is_in_quarantine_all_the_same(cut_short: Lake) -> None:
    gone = next((cut_short.settings.lake / "raw").rglob("call-1-1.wav"))
    gone.unlink()
    cut_short.run()
    missing = [row["object_id"] for row in cut_short.quarantine("MISSING_OBJECT")["rows"]]
    assert missing == [str(gone.relative_to(cut_short.settings.lake / "raw"))], "another's copy of the bytes is there"
    assert broken(cut_short) == 2, "what was there before the kill is there once"


def test_progress_without_rows_is_refused_to_who_was_overtaken(lake: Lake, run: Run) -> None:
    before = read_progress(run.writer.tables, METADATA)
    run.writer.publish(METADATA, None, {EVENTS.name: 5}, stage="test")
    with pytest.raises(Conflict, match="Another writer"):
        run.writer.publish(METADATA, None, {EVENTS.name: 3}, since=before, stage="test")
    assert read_progress(run.writer.tables, METADATA).seq_of(EVENTS.name) == 5
