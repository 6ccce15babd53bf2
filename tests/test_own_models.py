"""Models of one's own: found where the lake and the user stand, known by their code, missed before Spark is started."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lakes import parts_of

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.clock import utc_now
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.errors import Conflict, InvalidRequest
from headwater.flow.drive import register_models
from headwater.flow.drive.register_models import check_models
from headwater.flow.models.choice import card_of, fitting
from headwater.flow.models.loaded import models_of
from headwater.flow.models.own_code import code_digest, sources_of
from headwater.flow.models.port import ModelCard
from headwater.flow.models.registry import load_model
from headwater.lake import Lake
from headwater.storage.ledger.model_book import change_book, read_book

MODEL = """
from headwater.flow.models.port import ModelCard, Said
import {beside}

class Whisper:
    card = ModelCard("whisper-mine", "1", accepts="speech", produces="text"{more})

    def load(self):
        pass

    def run(self, batch):
        return [Said({beside}.WORDS) for _ in batch]
"""
NAMES = ("mine_a", "mine_b", "mine_c", "mine_d", "mine_e")


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition("_beside")[0] in NAMES]:
        del sys.modules[name]


def write(directory: Path, name: str, words: str = "hello", more: str = "") -> str:
    directory.mkdir(parents=True, exist_ok=True)
    beside = f"{name}_beside"
    (directory / f"{name}.py").write_text(MODEL.format(beside=beside, more=more), encoding="utf-8")
    (directory / f"{beside}.py").write_text(f"WORDS = {words!r}\n", encoding="utf-8")
    return f"{name}:Whisper"


def opened(directory: Path, model: str) -> Lake:
    lakes.init(directory).close()
    return lakes.open(directory, {"models.transcribe": model})


def checked(lake: Lake) -> None:
    parts = parts_of(lake)
    check_models(parts.settings, parts.ledger, utc_now)


def active(lake: Lake) -> KnownModel:
    found = read_book(parts_of(lake).ledger).active("transcribe")
    assert found is not None
    return found


def test_a_model_is_found_in_the_lakes_directory_and_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path / "lake", tmp_path):
        name = NAMES[place == tmp_path]
        with opened(tmp_path / "lake", write(place, name)) as lake:
            assert load_model(f"{name}:Whisper", lake.settings.models).run([None])[0].text == "hello"
            told = fitting(lake.settings, ModelBook()).models[f"{name}:Whisper"]
            assert told["source_directory"] == str(place), "workers and their children are told where it lies"


def test_a_run_with_a_model_that_is_not_there_says_nothing_of_spark(tmp_path: Path, capsys: Any) -> None:
    lakes.init(tmp_path / "lake").close()
    for given in (["put", "--text", "hello", "--customer", "acme"], ["run", "--once", "--set", "models.embed=nowhere"]):
        code = main(["--lake", str(tmp_path / "lake"), *given])
    shown = capsys.readouterr().err
    assert code == InvalidRequest.exit_code and "nowhere" in shown and "Starting" not in shown


def test_a_model_that_is_not_there_is_said_before_spark_is_started(tmp_path: Path) -> None:
    for wrong in ("mine_nowhere:Whisper", "json:Whisper"):
        with opened(tmp_path / "lake", wrong) as lake:
            lake.put_text("hello", customer="acme")
            with pytest.raises(InvalidRequest, match=f"Nothing stands at {wrong}"):
                lake.run()
            assert not (lake.settings.lake / "logs" / "spark.out").exists()


def test_a_model_whose_module_raises_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "mine_d.py").write_text("1 / 0", encoding="utf-8")
    with opened(tmp_path / "lake", "mine_d:Whisper") as lake, pytest.raises(InvalidRequest, match="ZeroDivisionError"):
        checked(lake)


def test_code_that_changed_is_another_model_and_so_is_code_beside_it(tmp_path: Path) -> None:
    lake_directory = tmp_path / "lake"
    with opened(lake_directory, write(lake_directory, "mine_c")) as lake:
        first = load_model("mine_c:Whisper").card.fingerprint
        assert first == load_model("mine_c:Whisper").card.fingerprint
        write(lake_directory, "mine_c", words="hello, all")
        assert load_model("mine_c:Whisper").card.fingerprint != first
        write(lake_directory, "mine_c")
        (lake_directory / "another.py").write_text("1", encoding="utf-8")
        assert load_model("mine_c:Whisper").card.fingerprint == first, "what it does not import is none of its code"
        lake.close()


def test_a_module_beside_the_directory_and_of_its_name_is_none_of_the_code(tmp_path: Path) -> None:
    """`from . import` in a module there names the directory itself, and not what lies beside that."""
    directory = tmp_path / "mine"
    directory.mkdir()
    (tmp_path / "mine.py").write_text("1", encoding="utf-8")
    name = write(directory, "mine_c")
    with (directory / "mine_c.py").open("a", encoding="utf-8") as file:
        file.write("\nif False:\n    from . import nothing\n")
    sys.path.append(str(directory))
    try:
        load_model(name)
        assert set(sources_of(name)) == {"mine_c.py", "mine_c_beside.py"} and code_digest(name)
    finally:
        sys.path.remove(str(directory))


def test_models_that_come_with_headwater_keep_their_fingerprints() -> None:
    assert load_model("inline").card.code == ""
    assert (
        ModelCard("a", "1", "speech", "text").fingerprint
        == replace(ModelCard("a", "1", "speech", "text"), code="").fingerprint
    )
    assert ModelCard("a", "1", "speech", "text").fingerprint == "a8fc9c1c31dca704"


def test_rows_from_before_code_counted_stay_that_models_until_its_code_is_seen_to_change(tmp_path: Path) -> None:
    directory = tmp_path / "lake"
    with opened(directory, write(directory, "mine_e")) as lake:
        bare = ModelCard("whisper-mine", "1", accepts="speech", produces="text")
        old = KnownModel("transcribe", "mine_e:Whisper", bare.label, bare.fingerprint, State.ACTIVE, "2026-01-01")
        ledger = parts_of(lake).ledger
        change_book(ledger, lambda book: book.with_model(old))
        models = models_of(fitting(lake.settings, read_book(ledger)))
        assert card_of(models, "transcribe", old.name).fingerprint == bare.fingerprint
        register_models.note_codes(ledger, register_models.codes_seen(lake.settings, read_book(ledger)))
        assert active(lake).code, "what its code is now is known from here on"
        write(directory, "mine_e", words="something else")
        models = models_of(fitting(lake.settings, read_book(ledger)))
        changed = card_of(models, "transcribe", old.name)
        assert changed.fingerprint != bare.fingerprint
        with pytest.raises(Conflict, match=r"code, options or weights have changed.*headwater replay transcribe"):
            register_models.require_same(active(lake), changed)
