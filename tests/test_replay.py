"""A model is brought in beside another, compared, shown, taken back and let go; and nothing is called twice for it."""

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import rounds
from counted import *  # noqa: F403
from counted import MODELS
from lakes import parts_of
from sample_rows import NOON, append, rows

from headwater import lake as lakes
from headwater.domain.model_book import State
from headwater.domain.tables import QUARANTINE
from headwater.errors import Conflict, DataFault, InvalidRequest, NotFound
from headwater.facets.models import Budget
from headwater.flow.derive.stage import WHOLE_OBJECT, held_objects
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.storage.io.local_path import local_path

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEECH, LOUDER, DEAF = "speech", "louder", "deaf"


def fill(lake: Lake, tmp_path: Path, number: int) -> None:
    rounds.put_round(lake, rounds.make_media(tmp_path, number), number)
    lake.run()


def models_of(lake: Lake, table: str) -> Counter[str]:
    return Counter(row["model"] for row in lake.sql(f"select model from {table}")["rows"])


def heard_by(lake: Lake) -> set[str]:
    """Which speech models' texts a search shows."""
    hits = lake.search("call loudness", modality="audio", limit=50).hits
    return {hit.entry.source_model for hit in hits}


def test_a_model_is_replayed_beside_flipped_to_and_back_and_nobody_sees_two(lake: Lake, tmp_path: Path) -> None:
    fill(lake, tmp_path, 1)
    before = lake.search("call loudness", modality="audio").to_dict()
    replayed = lake.models.replay("transcribe", LOUDER)
    assert replayed.finished
    assert lake.models.book().find("transcribe", LOUDER).state is State.STANDBY

    # Beside: made, indexed, and seen by nobody who does not ask for it.
    assert models_of(lake, "all_models.transcripts") == {"cheap-speech 1": 4, "louder-speech 2": 4}
    assert models_of(lake, "transcripts") == models_of(lake, "silver.transcripts") == {"cheap-speech 1": 4}
    assert set(lake.table("transcripts").to_arrow()["model"].to_pylist()) == {"cheap-speech 1"}
    assert lake.table("transcripts", all_models=True).to_arrow().num_rows == 8
    assert {row["model"] for row in lake.table("transcripts").to_spark().select("model").collect()} == {
        "cheap-speech 1"
    }
    assert lake.search("call loudness", modality="audio").to_dict() == before

    # What arrives later is derived by both, so that a flip misses nothing.
    fill(lake, tmp_path, 2)
    assert models_of(lake, "all_models.transcripts") == {"cheap-speech 1": 8, "louder-speech 2": 8}

    assert lake.models.activate("transcribe", LOUDER)["before"] == "cheap-speech 1"
    assert models_of(lake, "transcripts") == {"louder-speech 2": 8}
    assert heard_by(lake) == {"louder-speech 2"}
    lake.models.activate("transcribe", SPEECH)
    assert models_of(lake, "transcripts") == {"cheap-speech 1": 8}
    assert heard_by(lake) == {"cheap-speech 1"}

    with pytest.raises(Conflict, match="is active"):
        lake.models.retire("transcribe", SPEECH)
    plan = lake.models.retire("transcribe", LOUDER)
    assert plan.rows["silver.transcripts"] == 8
    assert models_of(lake, "all_models.transcripts") == {"cheap-speech 1": 8}
    embedded = lake.sql("select distinct source_model from all_models.embeddings")["rows"]
    assert "louder-speech 2" not in {row["source_model"] for row in embedded}
    with pytest.raises(NotFound, match="knows no model louder"):
        lake.models.activate("transcribe", LOUDER)


def test_a_retired_model_comes_back_without_a_call(lake: Lake, calls: Path, tmp_path: Path) -> None:
    fill(lake, tmp_path, 1)
    first = lake.models.replay("transcribe", LOUDER)
    rows = _rows_of(lake, "louder-speech 2")
    lake.models.retire("transcribe", LOUDER)
    made = len(calls.read_text().split())
    quote = lake.models.quote("transcribe", LOUDER)
    assert (quote.objects, quote.remembered, quote.calls, quote.cost) == (4, 4, 0, 0)
    again = lake.models.replay("transcribe", LOUDER)
    assert again.finished and again.spent["cost"] == 0 and again.spent["remembered"] == 4
    assert first.spent["calls"] == 2
    assert made == 4  # two contents, by each of the two
    assert len(calls.read_text().split()) == made
    assert _rows_of(lake, "louder-speech 2") == rows


def test_a_replay_that_has_nothing_to_do_calls_nothing_and_starts_no_jvm(
    lake: Lake, calls: Path, tmp_path: Path
) -> None:
    fill(lake, tmp_path, 1)
    lake.models.replay("transcribe", LOUDER)
    made = calls.read_text()
    assert len(made.split()) == 4
    code = (
        "import sys, headwater\n"
        "lake = headwater.open(sys.argv[1])\n"
        "for model in ('louder', 'speech'):\n"
        "    replayed = lake.models.replay('transcribe', model)\n"
        "    assert replayed.finished and not replayed.done\n"
        "print('pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(lake.settings.lake)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    assert calls.read_text() == made


def test_a_budget_stops_a_replay_and_the_next_goes_on_where_it_was_left(lake: Lake, tmp_path: Path) -> None:
    for number in range(3):
        fill(lake, tmp_path, number)
    quote = lake.models.quote("transcribe", LOUDER)
    # Twelve calls of half a second, each content twice; what is paid is paid once for each.
    assert (quote.objects, quote.calls, quote.rows) == (12, 6, 12)
    assert quote.reads == {"standard": 12}
    assert quote.cost == pytest.approx(12 * 0.5 * 0.01)
    assert quote.pace_of == "cheap-speech 1"

    part = lake.models.replay("transcribe", LOUDER, budget=Budget(money=quote.cost / 3))
    assert not part.finished and 0 < part.done < 12
    assert part.spent["cost"] <= quote.cost / 3 + 1e-9
    assert lake.models.book().find("transcribe", LOUDER).state is State.BUILDING
    with pytest.raises(Conflict, match="not been made for all"):
        lake.models.activate("transcribe", LOUDER)
    # A run leaves it as it is: who set a budget does not want it spent by the next cron job.
    lake.put_text("one more", customer="acme")
    lake.run()
    assert models_of(lake, "all_models.transcripts")["louder-speech 2"] == part.done
    assert not lake.models.replay("transcribe", LOUDER, budget=Budget(seconds=0)).finished

    rest = lake.models.replay("transcribe", LOUDER)
    assert rest.finished and rest.done + part.done == 12
    assert models_of(lake, "all_models.transcripts") == {"cheap-speech 1": 12, "louder-speech 2": 12}
    bill = lake.sql("select sum(cost) as cost, sum(calls) as calls from runs where model = 'louder-speech 2'")["rows"]
    assert bill == [{"cost": pytest.approx(6 * 0.5 * 0.01), "calls": 6}]


def test_what_a_transcript_cost_can_be_told(lake: Lake, tmp_path: Path) -> None:
    fill(lake, tmp_path, 1)
    lake.models.replay("transcribe", LOUDER)
    lake.models.activate("transcribe", LOUDER)
    (row,) = lake.sql(
        "select cost, tokens, attempts, model_seconds > 0 as timed from transcripts where customer = 'acme' limit 1"
    )["rows"]
    assert row == {"cost": pytest.approx(0.005), "tokens": 7, "attempts": 1, "timed": True}


def test_a_killed_replay_goes_on_and_no_call_is_made_twice(lake: Lake, calls: Path, tmp_path: Path) -> None:
    for number in range(2):
        fill(lake, tmp_path, number)
    lake.close()
    made = Counter(calls.read_text().split())
    assert sorted(made.values()) == [1, 1, 1, 1]
    drive = "import sys, headwater; headwater.open(sys.argv[1]).models.replay('transcribe', 'louder')"
    told = []
    for kill in ("derive.memoised:2", "derive.staged", "derive.published"):
        environment = {**os.environ, "HEADWATER_FAULT": kill}
        assert subprocess.run(
            [sys.executable, "-c", drive, str(lake.settings.lake)], env=environment, check=False
        ).returncode
        told.append((Counter(calls.read_text().split()) - made).total())
    with lakes.open(lake.settings.lake) as again:
        assert again.models.replay("transcribe", LOUDER).finished
        assert models_of(again, "all_models.transcripts") == {"cheap-speech 1": 8, "louder-speech 2": 8}
    # Four contents. What is paid is remembered call by call, so the first kill costs at most what the other workers had
    # under way, and the later ones, after the memo, nothing.
    others = os.cpu_count() or 1
    assert told[1] <= 4 + others
    assert told[1:] == [told[1]] * 2
    again_made = Counter(calls.read_text().split()) - made
    assert again_made.total() == told[1] and set(again_made) == set(made)


def test_quarantined_objects_are_retried_by_another_model(calls: Path, engine: None, tmp_path: Path) -> None:
    directory = tmp_path / "lake"
    directory.mkdir()
    (directory / FILE_NAME).write_text(
        MODELS.format(calls=calls).replace('transcribe = "speech"', 'transcribe = "deaf"'), encoding="utf-8"
    )
    with lakes.init(directory) as lake:
        call = rounds.make_media(tmp_path, 2) / "call-2-0.wav"
        for customer in ("acme", "globex"):  # an id is its customer's: both calls are tried
            lake.put(call, customer=customer, id="c-1")
        fill(lake, tmp_path, 1)
        assert Counter(row["reason"] for row in lake.quarantine()["rows"])["BAD_OUTPUT"] == 6
        assert lake.retry("BAD_OUTPUT").recovered == 0
        assert {row["attempts"] for row in lake.quarantine("BAD_OUTPUT")["rows"]} == {2}
        with pytest.raises(InvalidRequest, match="Unknown model"):
            lake.retry(model="nobody")

        assert lake.retry("BAD_OUTPUT", model=LOUDER).recovered == 6
        assert len(lake.quarantine("BAD_OUTPUT")["rows"]) == 6, "who reads the first model's rows still misses them"
        assert models_of(lake, "all_models.transcripts") == {"louder-speech 2": 6}
        assert lake.models.book().find("transcribe", LOUDER).state is State.PARTIAL
        # Made whole and shown: what the retry made is not made again.
        made = len(calls.read_text().split())
        assert lake.models.replay("transcribe", LOUDER).finished
        assert len(calls.read_text().split()) == made
        lake.models.activate("transcribe", LOUDER)
        assert models_of(lake, "transcripts") == {"louder-speech 2": 6}


def test_a_model_that_failed_on_every_object_is_a_failure_and_is_not_shown_before_its_objects_are_let_go(
    lake: Lake, tmp_path: Path
) -> None:
    fill(lake, tmp_path, 1)
    before = models_of(lake, "transcripts")
    with pytest.raises(DataFault, match=r"failed on all 4 .* headwater retire transcribe deaf"):
        lake.models.replay("transcribe", DEAF)
    with pytest.raises(Conflict, match=r"miss 4 of the objects .* cheap-speech 1: deaf-speech 1 .*BAD_OUTPUT 4"):
        lake.models.activate("transcribe", DEAF)
    assert models_of(lake, "transcripts") == before
    lake.quarantine.dismiss(reason="BAD_OUTPUT", because="nobody will hear them", by="zoe")
    assert lake.models.activate("transcribe", DEAF)["before"] == "cheap-speech 1"
    # What the model that is active now failed on is missed with any.
    lake.models.activate("transcribe", SPEECH)
    assert models_of(lake, "transcripts") == before


def test_another_embedder_is_built_beside_and_search_comes_from_one_alone(
    lake: Lake, calls: Path, tmp_path: Path
) -> None:
    fill(lake, tmp_path, 1)
    made = len(calls.read_text().split())
    assert lake.models.replay("embed", "near").finished
    texts = {row["text"] for row in lake.sql("select text from all_models.embeddings")["rows"]}
    assert len(calls.read_text().split()) - made == len(texts)
    compared = lake.models.compare("embed", "ACTIVE", "near")
    assert [model["covered"] for model in compared["models"]] == [9, 9]
    assert 0 <= compared["disagreement"]["overlap_at_10"] <= 1

    assert {hit.entry.model for hit in lake.search("invoice is wrong").hits} == {"lexical 1"}
    lake.models.activate("embed", "near")
    assert {hit.entry.model for hit in lake.search("invoice is wrong").hits} == {"cheap-embedder 1"}
    fill(lake, tmp_path, 2)
    lake.models.activate("embed", "lexical")
    assert lake.search("round 2").stale_by == 0
    assert {hit.entry.model for hit in lake.search("round 2, line 1").hits} == {"lexical 1"}
    lake.models.retire("embed", "near")
    assert models_of(lake, "all_models.embeddings") == {"lexical 1": 18}


def test_a_name_that_stands_for_another_model_is_refused_and_replay_is_the_way_out(
    lake: Lake, calls: Path, tmp_path: Path
) -> None:
    fill(lake, tmp_path, 1)
    assert lake.models.replay("embed", "near").finished
    lake.models.activate("embed", "near")
    lake.close()
    newer = MODELS.replace("CheapEmbedder", 'CheapEmbedder"\nversion = "2').format(calls=calls)
    (lake.settings.lake / FILE_NAME).write_text(newer, encoding="utf-8")
    with lakes.open(lake.settings.lake) as changed:
        with pytest.raises(Conflict, match="headwater replay embed --model near"):
            changed.search("invoice")
        changed.put_text("later", customer="acme")
        with pytest.raises(Conflict, match="now stands for cheap-embedder 2"):
            changed.run()
        assert changed.models.replay("embed", "near").finished
        old, new = (m.fingerprint for m in changed.models.book().of("embed")[1:])
        changed.models.activate("embed", new)
        changed.models.retire("embed", old)
        changed.run()
        assert {hit.entry.model for hit in changed.search("later").hits} == {"cheap-embedder 2"}


def test_two_transcripts_are_compared_word_by_word_with_a_sample(lake: Lake, tmp_path: Path) -> None:
    fill(lake, tmp_path, 1)
    lake.models.replay("transcribe", LOUDER)
    found = lake.models.compare("transcribe", SPEECH, LOUDER)
    assert [(m["covered"], m["objects"]) for m in found["models"]] == [(4, 6), (4, 6)]
    assert [m["cost"] for m in found["models"]] == [0, pytest.approx(0.02)]
    # "a call of loudness N" → "one long call of loudness N": one word changed, one added, of five.
    assert found["disagreement"] == {"pairs": 4, "word_error": 0.4, "equal": 0}
    assert found["sample"][0]["other"].startswith("one long call")


@pytest.mark.parametrize(
    ("step", "model", "sentence"),
    [
        ("probe", LOUDER, "probe has no model to choose"),
        ("caption", LOUDER, "needs a model that makes text of picture"),
        ("transcribe", "louda", "Did you mean louder"),
    ],
)
def test_a_replay_that_cannot_be_is_refused_before_anything_starts(
    lake: Lake, step: str, model: str, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        lake.models.replay(step, model)


def _rows_of(lake: Lake, model: str) -> list[dict[str, Any]]:
    rows = lake.table("transcripts", all_models=True).to_arrow().to_pylist()
    kept = [{k: v for k, v in row.items() if k not in {"seq", "derived_at"}} for row in rows if row["model"] == model]
    return sorted(kept, key=lambda row: str(row["object_id"]))


def test_a_replay_reads_of_quarantine_only_the_files_of_its_events(lake: Lake) -> None:
    """The others are taken away, so that who reads them fails."""
    table = parts_of(lake).catalog.load_table(QUARANTINE.name)
    for first in (0, 100, 200):
        held = [{"event_id": f"e{first + n}", "event_seq": first + n, "step": WHOLE_OBJECT} for n in range(3)]
        append(table, rows(QUARANTINE, held), day="quarantined_at")
    for task in table.scan().plan_files():
        path = Path(local_path(task.file.file_path))
        if "e101" not in pq.read_table(path)["event_id"].to_pylist():
            path.unlink()
    found = held_objects(lake.spark, 100, 102, None).select("event_id").toArrow()["event_id"].to_pylist()
    assert sorted(found) == ["e100", "e101"]


def test_a_replay_reads_rows_that_name_no_event_only_where_they_are_of_its_time(lake: Lake) -> None:
    """Those of bronze and embed name none either, and compaction puts all of them together: the files of other times
    are taken away, so that who reads them fails."""
    table, day = parts_of(lake).catalog.load_table(QUARANTINE.name), timedelta(days=1)
    for number, at in enumerate((NOON, NOON + day, NOON + 2 * day)):
        held = [{"event_id": f"{step}-{number}", "event_seq": None, "step": step} for step in (WHOLE_OBJECT, "embed")]
        append(table, rows(QUARANTINE, [{**row, "occurred_at": at} for row in held]), day="quarantined_at")
    for task in table.scan().plan_files():
        path = Path(local_path(task.file.file_path))
        if f"{WHOLE_OBJECT}-1" not in pq.read_table(path)["event_id"].to_pylist():
            path.unlink()
    found = held_objects(lake.spark, 100, 102, (NOON + day, NOON + day)).select("event_id")
    assert found.toArrow()["event_id"].to_pylist() == [f"{WHOLE_OBJECT}-1"]


def test_what_may_mend_itself_is_not_left_out_of_a_replay(lake: Lake, tmp_path: Path) -> None:
    """It is tried again by the models that are kept; one that is being built would never have it."""
    fill(lake, tmp_path, 1)
    results = lake.put(rounds.make_media(tmp_path, 7) / "call-7-0.wav", customer="acme")
    missing = lake.settings.lake / "raw" / results[0].event.pointer.path  # type: ignore[union-attr]
    data = missing.read_bytes()
    missing.unlink()
    lake.run()
    assert lake.models.replay("transcribe", LOUDER).finished
    held = {row["step"] for row in lake.quarantine("MISSING_OBJECT")["rows"]}
    assert held == {"probe", "transcribe"}, "the new model has a row of its own"
    missing.write_bytes(data)
    assert lake.retry("MISSING_OBJECT").recovered == 2
    made = Counter(row["model"] for row in lake.sql("select model from all_models.transcripts")["rows"])
    assert len(made) == 2 and len(set(made.values())) == 1
