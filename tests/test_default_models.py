"""A new lake begins with what people would choose; one that has rows keeps what it has, and is offered the better."""

import importlib.util
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from calling import answer
from lakes import parts_of, small_lake
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.domain.model_book import ModelBook, State
from headwater.domain.progress import NEXT_SEQ
from headwater.domain.tables import MESSAGES
from headwater.flow.derive.plan import only_by, plan_work
from headwater.flow.drive.register_models import settle_models
from headwater.flow.models.choice import fitting, known_model
from headwater.flow.models.loaded import models_of
from headwater.lake import Lake
from headwater.settings import FILE_NAME, Settings, resolve
from headwater.storage.ledger.model_book import change_book, read_book
from headwater.storage.tables import catalog as catalogs

SINCE = datetime(2026, 3, 1, tzinfo=UTC)
NEW = {"transcribe": "moonshine", "caption": "pp-ocr", "extract": "pdfium", "embed": "static"}
EARLIER = {"transcribe": "pocketsphinx", "caption": "rapidocr", "extract": "pdfium", "embed": "lexical"}
EARLIER_SETTINGS = {f"models.{name}": model for name, model in EARLIER.items()} | {"models.scans": "rapidocr"}


def earlier_book(settings: Settings) -> ModelBook:
    """As an earlier Headwater wrote it, whose defaults these models were."""
    models = models_of(resolve(settings.lake, {}, EARLIER_SETTINGS, {}))
    return ModelBook(tuple(known_model(models, *pair, State.ACTIVE, SINCE) for pair in EARLIER.items()))


def settled_book(lake: Lake) -> ModelBook:
    """What a run finds or makes before it does anything."""
    parts = parts_of(lake)
    settle_models(parts.settings, parts.ledger, utc_now)
    return read_book(parts.ledger)


def actives(book: ModelBook) -> dict[str, str]:
    return {known.step: known.name for known in book.models if known.state is State.ACTIVE}


def make_earlier(directory: Path) -> None:
    with lakes.open(directory) as lake:
        change_book(parts_of(lake).ledger, lambda _: earlier_book(lake.settings))


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A lake with rows of every step whose settings name nothing, as an earlier Headwater left it."""
    directory = small_lake(tmp_path / "lake")
    make_earlier(directory)
    return directory


@pytest.fixture
def without_moonshine(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "moonshine_voice" else find(name))


def test_a_new_lake_begins_with_the_better_models(tmp_path: Path) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        assert actives(settled_book(lake)) == NEW
        assert lake.models.better() == []


def test_a_lake_with_rows_keeps_every_model_and_what_helps_it(earlier: Path) -> None:
    with lakes.open(earlier) as lake:
        before = read_book(parts_of(lake).ledger)
        assert settled_book(lake) == before == earlier_book(lake.settings)
        work = plan_work(lake.settings, before, now=utc_now())
        prints = {step.name: step.fingerprint for steps in work.steps.values() for step in steps if step.setting}
        assert prints == {known.step: known.fingerprint for known in before.models if known.step != "embed"}
        assert work.settings["models.scans"] == "rapidocr"
        alone = only_by(before, before.find("extract", "ACTIVE"))
        assert plan_work(lake.settings, alone, now=utc_now()).settings == work.settings


def test_a_lake_with_rows_of_one_step_keeps_the_models_of_the_others_too(tmp_path: Path) -> None:
    lakes.init(tmp_path / "lake").close()
    make_earlier(tmp_path / "lake")
    with lakes.open(tmp_path / "lake") as lake:
        catalog = parts_of(lake).catalog
        append(catalog.load_table(MESSAGES.name), rows(MESSAGES, [{"text": "hello"}]), MESSAGES.day)
        catalogs.set_properties_if(catalog, MESSAGES.name, {}, {NEXT_SEQ: "1"})
        assert settled_book(lake) == earlier_book(lake.settings)


def test_a_lake_without_a_row_has_nothing_to_keep(tmp_path: Path) -> None:
    lakes.init(tmp_path / "lake").close()
    make_earlier(tmp_path / "lake")
    with lakes.open(tmp_path / "lake") as lake:
        book = settled_book(lake)
        assert actives(book) == NEW
        assert fitting(lake.settings, book) == lake.settings


def test_who_names_a_model_gets_it_where_there_are_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_MODELS_EMBED", "lexical")
    with lakes.init(tmp_path / "lake") as lake:
        file = lake.settings.lake / FILE_NAME
        file.write_text('[models]\ntranscribe = "pocketsphinx"\ncaption = "rapidocr"\n', encoding="utf-8")
    with lakes.open(tmp_path / "lake") as lake:
        assert actives(settled_book(lake)) == EARLIER
        assert lake.models.better() == []  # it was asked for


def test_models_offers_what_is_better_with_its_quote_until_it_is_in_the_book(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = answer(capsys, "models", "--lake", earlier, "--json").json
    assert [offer["replay"] for offer in told["better"]] == [
        "headwater replay transcribe --model moonshine",
        "headwater replay caption --model pp-ocr",
        "headwater replay embed --model static",
    ]
    assert [offer["quote"]["objects"] for offer in told["better"]] == [1, 1, 3]
    drawn = answer(capsys, "models", "--lake", earlier).out
    assert "moonshine is better than pocketsphinx 5.1.1 for transcribe: 1 object to do" in drawn
    assert drawn.count("Bring it in: headwater replay") == 3
    with lakes.open(earlier) as lake:
        better = known_model(models_of(lake.settings), "embed", "static", State.BUILDING, utc_now(), replayed=True)
        change_book(parts_of(lake).ledger, lambda book: book.with_model(better))
        assert [offer.step for offer in lake.models.better()] == ["transcribe", "caption"]
        assert lake.models.better()[1].quote == lake.models.quote("caption", "pp-ocr")


def test_a_machine_without_moonshine_says_what_hears_instead(
    without_moonshine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "models.transcribe is pocketsphinx: moonshine, the default, has no package for this machine."
    made = answer(capsys, "init", tmp_path / "lake", "--json").json
    assert made["models"] == {**NEW, "transcribe": "pocketsphinx"} and made["fallbacks"] == [sentence]
    assert sentence in answer(capsys, "init", tmp_path / "other").out
    assert sentence in answer(capsys, "models", "--lake", tmp_path / "lake").out
    with lakes.open(tmp_path / "lake") as lake:
        assert actives(settled_book(lake))["transcribe"] == "pocketsphinx"


def test_a_lake_that_comes_to_a_machine_without_moonshine_keeps_it_in_its_book(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = small_lake(tmp_path / "lake")
    with lakes.open(directory) as lake:
        before = settled_book(lake)
        assert actives(before) == NEW
    request.getfixturevalue("without_moonshine")
    with lakes.open(directory) as lake:
        assert settled_book(lake) == before
