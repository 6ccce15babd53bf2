"""Maintenance of the memo: what was free leaves when it has served, what was paid for stays, and a plan tells first."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from behaviour_memo import checksums
from lakes import parts_of, small_lake

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.progress import CONSUMED, NEXT_SEQ
from headwater.domain.tables import CAPTIONS, EMBEDDINGS, EVENTS, TRANSCRIPTS
from headwater.lake import Lake
from headwater.storage.ledger.model_book import change_book, read_book
from headwater.storage.memo.memo import open_memo
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.schema_evolution import stamp_progress
from headwater.upkeep.maintenance.memo import ShelfCare, plan_memo

NOW = datetime.now(UTC)
KEYS = checksums(10)
PRINT = "0123456789abcdef"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lakes.open(small_lake(tmp_path / "lake")) as opened:
        yield opened


def know(lake: Lake, step: str, state: State, *, replayed: bool = False) -> None:
    model = KnownModel(step, "mine", "mine 1", PRINT, state, "2026-01-01T00:00:00.000Z", replayed)
    change_book(parts_of(lake).ledger, lambda _: ModelBook((model,)))


def answer(lake: Lake, step: str, *, days_ago: int, paid: bool = False, keys: list[str] = KEYS) -> None:
    memo = open_memo(lake.settings, lambda: NOW - timedelta(days=days_ago))
    memo.shelf(step, PRINT).put({key: {"text": "x"} for key in keys}, paid=paid)


def plan(lake: Lake, now: datetime = NOW) -> ShelfCare:
    parts = parts_of(lake)
    (care,) = plan_memo(parts.catalog, lake.settings, read_book(parts.ledger), now=now)
    return care


def come(lake: Lake, table: Any, consumed: Mapping[str, int]) -> None:
    catalogs.set_properties_if(parts_of(lake).catalog, table.name, {}, {CONSUMED: json.dumps(consumed)})


def arrive(lake: Lake, events: int) -> None:
    catalogs.set_properties_if(parts_of(lake).catalog, EVENTS.name, {}, {NEXT_SEQ: str(events)})


def test_old_free_answers_of_a_model_that_has_nothing_left_to_do_go_and_young_ones_stay(lake: Lake) -> None:
    know(lake, "transcribe", State.ACTIVE)
    answer(lake, "transcribe", days_ago=20, keys=KEYS[:6])
    answer(lake, "transcribe", days_ago=1, keys=KEYS[6:])
    assert plan(lake).drop == 6
    assert plan(lake, NOW + timedelta(days=30)).drop == 10
    assert len(open_memo(lake.settings).shelf("transcribe", PRINT).find(KEYS)) == 10, "a plan drops nothing"


def test_what_was_paid_for_is_never_dropped(lake: Lake) -> None:
    answer(lake, "transcribe", days_ago=2_000, paid=True)
    assert plan(lake, NOW + timedelta(days=9_999)).drop == 0


def test_a_model_that_stands_still_with_work_before_it_keeps_its_answers(lake: Lake) -> None:
    know(lake, "transcribe", State.ACTIVE)
    answer(lake, "transcribe", days_ago=20)
    arrive(lake, 9)
    assert plan(lake).drop == 0
    # It has gone on since the snapshot before the horizon: what is old was committed, though more is to do.
    stamp_progress(parts_of(lake).catalog, TRANSCRIPTS.name, aside={})
    assert plan(lake, NOW + timedelta(days=30)).drop == 0
    come(lake, TRANSCRIPTS, {"bronze.events": 5})
    assert plan(lake, NOW + timedelta(days=30)).drop == 10


def test_a_replay_that_was_stopped_keeps_its_answers_and_a_model_that_is_gone_does_not(lake: Lake) -> None:
    answer(lake, "caption", days_ago=20)
    know(lake, "caption", State.BUILDING, replayed=True)
    come(lake, CAPTIONS, {"bronze.events": 3, f"bronze.events/caption/{PRINT}": 2})
    assert plan(lake).drop == 0
    know(lake, "caption", State.RETIRING, replayed=True)
    assert plan(lake).drop == 10
    change_book(parts_of(lake).ledger, lambda _: ModelBook())
    assert plan(lake).drop == 10


def test_an_embedder_has_served_when_it_has_read_every_text(lake: Lake) -> None:
    know(lake, "embed", State.ACTIVE)
    answer(lake, "embed", days_ago=20)
    assert plan(lake).drop == 10
    come(lake, EMBEDDINGS, {"silver.transcripts": 1, "silver.captions": 0, "silver.messages": 1})
    assert plan(lake).drop == 0


def test_maintain_tells_what_it_will_drop_then_drops_it_and_counts_it(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = lake.settings.lake
    know(lake, "transcribe", State.ACTIVE)
    for days_ago, paid, keys in ((20, False, KEYS[:4]), (1, False, KEYS[4:6]), (20, True, KEYS[6:])):
        answer(lake, "transcribe", days_ago=days_ago, paid=paid, keys=keys)
    told = [json.loads(_json(directory, capsys, *words)) for words in (("--dry-run",), ("--dry-run",), (), ())]
    assert [each.get("memo_dropped") for each in told] == [4, 4, None, None]
    assert told[0]["memo_objects"] == 3
    (done,) = (table for table in told[2]["tables"] if table["table"] == "memo")
    assert (done["files_before"], done["files_after"], done["dropped"]) == (3, 1, 4)
    assert not any(table["table"] == "memo" for table in told[3]["tables"])
    assert set(open_memo(lake.settings).shelf("transcribe", PRINT).find(KEYS)) == set(KEYS[4:])
    parts_of(lake).ledger.set_fact("unused", "")
    answer(lake, "transcribe", days_ago=20, keys=KEYS[:4])
    assert main(["--lake", str(directory), "maintain", "--dry-run"]) == 0
    assert "4 free answers of the memo are older than memo.free_hours" in capsys.readouterr().out


def _json(directory: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["--lake", str(directory), "--json", "maintain", *words]) == 0
    return capsys.readouterr().out
