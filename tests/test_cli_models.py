"""The commands of models on the command line: what they say, in JSON and in sentences, and how they refuse."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Answer, answer
from lakes import CALL, CALL_BYTES, SCREEN, parts_of, small_lake
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.tables import QUARANTINE, TRANSCRIPTS
from headwater.settings import FILE_NAME
from headwater.storage.ledger.model_book import change_book

OLD, NEW, HALF, DOWN = "transcribe-print", "aaaa000011112222", "aaaa000033334444", "bbbb000011112222"
SECTIONS = """
[model.whisper]
kind = "openai-transcription"
url = "http://127.0.0.1:9/v1"
model = "whisper-1"
price = 0.5
price_unit = "call"

[model.keyed]
kind = "openai-transcription"
url = "http://127.0.0.1:9/v1"
model = "whisper-1"
key_env = "HEADWATER_TEST_KEY_THAT_NOBODY_SET"
"""
MODEL_KEYS = {"step", "state", "name", "model", "fingerprint", "since", "behind", "rows", "model_seconds", "tokens"}
QUOTE_KEYS = {"step", "model", "fingerprint", "objects", "bytes", "reads", "remembered", "calls", "model_seconds",
              "pace_of", "cost", "rows", "vectors", "seconds"}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One call, heard by the active model and by one beside it; a third was begun, and a fourth did not answer."""
    directory = small_lake(tmp_path_factory.mktemp("models") / "lake")
    with (directory / FILE_NAME).open("a", encoding="utf-8") as file:
        file.write(SECTIONS)
    heard = {"step": "transcribe", "model": "openai-transcription/whisper-1 1", "fingerprint": NEW}
    paid = {"model_seconds": 1.5, "cost": 0.0042, "attempts": 2}
    call = {"customer": "acme", "modality": "audio", "event_id": "e1", "object_id": CALL}
    down = {"event_id": "e1", "object_id": CALL, "customer": "acme", "step": "transcribe", "fingerprint": DOWN}
    waits = {**down, "reason": "MODEL_DOWN", "attempts": 3}
    given_up = {**down, "event_id": "e2", "object_id": SCREEN, "reason": "MODEL_DOWN", "attempts": 16}
    with lakes.open(directory) as opened:
        tables = parts_of(opened).catalog
        said = [{**call, **heard, **paid, "text": "the refund"}]
        append(tables.load_table(TRANSCRIPTS.name), rows(TRANSCRIPTS, said, 1), TRANSCRIPTS.day)
        append(tables.load_table(QUARANTINE.name), rows(QUARANTINE, [waits, given_up], 1), QUARANTINE.day)
    return directory


@pytest.fixture
def lake(made: Path) -> Path:
    """With the book as it was; nothing else is changed by these tests."""
    with lakes.open(made) as opened:
        change_book(parts_of(opened).ledger, lambda _: _book())
    return made


def _book() -> ModelBook:
    whisper = "openai-transcription/whisper-1 1"
    return ModelBook(
        (
            KnownModel("transcribe", "pocketsphinx", "pocketsphinx 5.1.1", OLD, State.ACTIVE, "2026-03-01T12:00:00Z"),
            KnownModel("transcribe", "heard", whisper, NEW, State.STANDBY, "2026-03-02T12:00:00Z"),
            KnownModel("transcribe", "half", whisper, HALF, State.BUILDING, "2026-03-03T12:00:00Z", replayed=True),
            KnownModel("transcribe", "down", "sleeper 1", DOWN, State.STANDBY, "2026-03-04T12:00:00Z"),
        )
    )


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], lake: Path) -> Callable[..., Answer]:
    return lambda *arguments: answer(capsys, *arguments, "--lake", lake)


def test_models_tells_who_is_seen_what_each_cost_and_the_next_move(call: Callable[..., Answer]) -> None:
    listed = call("models", "--json").json["models"]
    assert all(set(model) == MODEL_KEYS | {"cost"} for model in listed)
    heard = [(m["state"], m["fingerprint"], m["rows"], m["cost"]) for m in listed if m["step"] == "transcribe"]
    beside = [("standby", NEW, 1, 0.0042), ("standby", DOWN, 0, 0)]
    assert heard == [("active", OLD, 1, 0), *beside, ("building", HALF, 0, 0)]
    drawn = call("models").out
    assert "heard (openai-transcription/whisper-1 1)" in drawn and "0.0042" in drawn
    assert "half is 3 behind. Go on: headwater replay transcribe --model half" in drawn
    assert f"headwater activate transcribe {NEW}" in drawn and f"headwater retire transcribe {NEW}" in drawn


def test_what_is_drawn_fits_a_hundred_columns(call: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cli.output._PIPE_WIDTH", 100)
    from headwater.cli.output import console

    console.cache_clear()
    try:
        for line in ("models", "compare transcribe ACTIVE heard", "replay transcribe --model whisper --dry-run"):
            answer = call(*line.split())
            assert answer.code == 0
            assert max(map(len, answer.out.splitlines())) <= 100, answer.out
            assert OLD in answer.out or "whisper-1" in answer.out
    finally:
        console.cache_clear()


def test_compare_stands_two_models_side_by_side(call: Callable[..., Answer]) -> None:
    found = call("compare", "transcribe", "ACTIVE", NEW[:10], "--json").json
    assert set(found) == {"step", "models", "disagreement", "sample"}
    assert [model["fingerprint"] for model in found["models"]] == [OLD, NEW]
    assert found["disagreement"]["pairs"] == 1 and found["disagreement"]["equal"] == 0
    drawn = call("compare", "transcribe", "pocketsphinx", "heard").out
    assert "objects covered" in drawn and "1 of 1" in drawn and CALL in drawn
    assert "\x1b" not in drawn  # what was heard drives no terminal
    same = call("compare", "transcribe", "ACTIVE", "pocketsphinx")
    assert same.code == 0 and "one and the same" in same.err


def test_a_flip_tells_the_way_back_and_a_second_one_that_nothing_changed(call: Callable[..., Answer]) -> None:
    flipped = call("activate", "transcribe", "heard", "--json").json
    assert flipped == {
        "step": "transcribe",
        "active": "openai-transcription/whisper-1 1",
        "fingerprint": NEW,
        "before": "pocketsphinx 5.1.1",
        "before_fingerprint": OLD,
    }
    assert call("sql", "select text from transcripts", "--json").json["rows"] == [{"text": "the refund"}]
    assert "nothing has changed" in call("activate", "transcribe", "heard").out
    back = call("activate", "transcribe", "pocketsphinx").out
    assert f"Flip back: headwater activate transcribe {NEW}" in back


def test_a_model_for_which_objects_wait_is_shown_only_by_force(call: Callable[..., Answer]) -> None:
    refused = call("activate", "transcribe", "down", "--json")
    assert (refused.code, refused.json["error"]["kind"]) == (4, "Conflict")
    assert "1 of the objects still wait for sleeper 1" in refused.json["error"]["message"]
    assert call("activate", "transcribe", "down", "--force").code == 0


def test_a_quote_is_told_without_doing_anything(call: Callable[..., Answer]) -> None:
    quote = call("replay", "transcribe", "--model", "whisper", "--dry-run", "--json").json["quote"]
    assert set(quote) == QUOTE_KEYS
    assert (quote["objects"], quote["calls"], quote["cost"]) == (1, 1, 0.5)
    assert quote["bytes"] == len(CALL_BYTES)
    drawn = call("replay", "transcribe", "--model", "whisper", "--dry-run").out
    assert "1 object to do" in drawn and "0.50" in drawn
    assert all(model["name"] != "whisper" for model in call("models", "--json").json["models"])


def test_money_is_not_spent_where_nobody_can_be_asked(call: Callable[..., Answer]) -> None:
    refused = call("replay", "transcribe", "--model", "whisper")
    assert refused.code == 2
    assert "It costs about 0.50, and nobody is there to ask. Add --yes, or a --budget." in refused.err


def test_who_says_no_spends_nothing(call: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal("n\n"))
    refused = call("replay", "transcribe", "--model", "whisper")
    assert refused.code == 130 and "Spend about 0.50?" in refused.err and "Nothing was done." in refused.err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_retire_plans_and_a_key_that_is_not_set_does_not_hinder_a_quote(call: Callable[..., Answer]) -> None:
    plan = call("retire", "transcribe", "heard", "--dry-run", "--json").json
    assert set(plan) == {"step", "model", "fingerprint", "state", "rows", "vectors", "steps", "applied"}
    assert plan["rows"]["silver.transcripts"] == 1 and not plan["applied"]
    drawn = call("retire", "transcribe", "heard", "--dry-run").out
    assert "To be removed" in drawn and f"Do it: headwater retire transcribe {NEW}" in drawn
    assert call("replay", "transcribe", "--model", "keyed", "--dry-run").code == 0


def test_a_retry_with_nothing_to_do_says_so_and_an_unknown_model_is_refused_first(call: Callable[..., Answer]) -> None:
    assert call("retry", "--reason", "TIMEOUT").out == "Nothing to retry.\n"
    unknown = call("retry", "--model", "whispr")
    assert unknown.code == 2 and "Did you mean whisper?" in unknown.err
    assert "Spark" not in unknown.err


def test_work_waits_its_turn(call: Callable[..., Answer], lake: Path) -> None:
    with lakes.open(lake) as opened:
        ledger = parts_of(opened).ledger
        lease = ledger.acquire_lease("run", "another", 60, utc_now())
        try:
            busy = [call("replay", "transcribe", "--model", "whisper", "--yes"), call("retire", "transcribe", "heard")]
        finally:
            ledger.release(lease)
    assert all(answer.code == 4 and "another" in answer.err for answer in busy)


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("replay transcibe --model whisper", 2, "Did you mean transcribe?"),
        ("replay probe --model whisper", 2, "has no model to choose. These have: transcribe, caption"),
        ("replay transcribe", 2, "--model"),
        ("replay transcribe --model nobody --dry-run", 2, "Unknown model nobody."),
        ("replay caption --model whisper --dry-run", 2, "caption needs a model that makes text of picture"),
        ("replay transcribe --model whisper --budget lots", 2, "neither money, such as 2.50, nor time"),
        ("replay transcribe --model whisper --budget -1", 2, "neither money"),
        ("replay transcribe --model whisper --budget nan", 2, "neither money"),
        ("compare dance ACTIVE heard", 2, "'dance' has no model to choose"),
        ("compare transcribe ACTIVE nobody", 3, "transcribe knows no model nobody; it knows pocketsphinx"),
        ("compare transcribe ACTIVE aaaa0000", 2, f"Say which fingerprint: {NEW}, {HALF}."),
        ("activate transcribe half", 4, "First: headwater replay transcribe --model half"),
        ("activate transcribe nobody", 3, "See: headwater models"),
        ("retire transcribe pocketsphinx", 4, "Activate another one first"),
        ("retire transcribe nobody --dry-run", 3, "knows no model nobody"),
        ("retry --reason BORED", 2, "is no reason for quarantine"),
    ],
)
def test_what_cannot_be_is_one_sentence_with_a_way_on(
    call: Callable[..., Answer], line: str, code: int, sentence: str
) -> None:
    answer = call(*line.split())
    assert (answer.code, answer.out) == (code, "")
    assert sentence in answer.err and len(answer.err.splitlines()) == 1
    assert call(*line.split(), "--json").json["error"]["message"]


@pytest.mark.parametrize("command", ["models", "replay", "compare", "activate", "retire", "retry"])
def test_help_is_there_and_wraps(call: Callable[..., Answer], command: str) -> None:
    helped = call(command, "--help")
    assert helped.code == 0 and helped.out.startswith(f"Usage: headwater {command}")
