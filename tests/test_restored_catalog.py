"""A catalog restored beside a ledger that knows more than it: what models lack is made, and nothing is passed over."""

from collections import Counter
from pathlib import Path

import rounds

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import EMBEDDINGS, EVENTS, MESSAGES, TRANSCRIPTS
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.storage.tables.read_progress import read_progress

MODELS = """\
[models]
transcribe = "speech"
caption = "cheap_models:CheapReader"
embed = "lexical"

[model.speech]
kind = "cheap_models:CheapSpeech"

[model.louder]
kind = "cheap_models:LouderSpeech"

[model.near]
kind = "cheap_models:CheapEmbedder"
"""


def say(lake: Lake, *ids: str) -> None:
    for name in ids:
        lake.put_text(f"line {name} of the story", customer="acme", id=name)
    lake.run()


def headwater(lake: Path, *arguments: object) -> None:
    assert main([*map(str, arguments), "--lake", str(lake), "--json"]) == 0


def vectors(lake: Lake, model: str) -> Counter[str]:
    rows = lake.table("embeddings", all_models=True).to_arrow().to_pylist()
    return Counter(row["event_id"] for row in rows if row["model"] == model)


def test_texts_wait_for_the_embedder_that_the_ledger_knows_and_none_is_passed(engine: None, tmp_path: Path) -> None:
    """The backup is from before the active embedder was brought in; the one that it knew has been retired since. Nobody
    has embedded up to where the table says that it was embedded, so that position must not move on without vectors."""
    lake, backup = tmp_path / "lake", tmp_path / "lake.backup"
    lake.mkdir()
    (lake / FILE_NAME).write_text(MODELS, encoding="utf-8")
    with lakes.init(lake) as opened:
        say(opened, "a", "b")
    headwater(lake, "backup", backup)
    with lakes.open(lake) as opened:
        assert opened.models.replay("embed", "near").finished
        opened.models.activate("embed", "near")
        opened.models.retire("embed", "lexical")
        say(opened, "c")
        assert vectors(opened, "cheap-embedder 1") == Counter("abc")
    for file in lake.glob("catalog.db*"):
        file.unlink()
    headwater(lake, "restore", backup)
    with lakes.open(lake) as opened:
        assert vectors(opened, "cheap-embedder 1") == Counter()
        assert read_progress(opened.settings, EMBEDDINGS).seq_of(MESSAGES.name) == 2
        say(opened, "d")
        assert vectors(opened, "cheap-embedder 1") == Counter("abcd"), "each once, and none is left out"
        assert {hit.entry.model for hit in opened.search("line c of the story").hits} == {"cheap-embedder 1"}
        assert not opened.pending()


def call(lake: Lake, folder: Path, *numbers: int) -> None:
    for number in numbers:
        lake.put(rounds.make_media(folder, number) / f"call-{number}-0.wav", customer="acme")
    lake.run()


def heard(lake: Lake, model: str) -> Counter[str]:
    rows = lake.table("transcripts", all_models=True).to_arrow().to_pylist()
    return Counter(row["object_id"].rpartition("/")[2] for row in rows if row["model"] == model)


def calls(*numbers: int) -> Counter[str]:
    return Counter(f"call-{number}-0.wav" for number in numbers)


def test_calls_wait_for_the_transcriber_that_the_ledger_knows_and_none_is_passed(engine: None, tmp_path: Path) -> None:
    """The same of a step of derive: whoever has yet to catch up comes first, and then does what arrives."""
    lake, backup = tmp_path / "lake", tmp_path / "lake.backup"
    lake.mkdir()
    (lake / FILE_NAME).write_text(MODELS, encoding="utf-8")
    with lakes.init(lake) as opened:
        call(opened, tmp_path, 0, 1)
    headwater(lake, "backup", backup)
    with lakes.open(lake) as opened:
        assert opened.models.replay("transcribe", "louder").finished
        opened.models.activate("transcribe", "louder")
        opened.models.retire("transcribe", "speech")
        call(opened, tmp_path, 2)
        assert heard(opened, "louder-speech 2") == calls(0, 1, 2)
    for file in lake.glob("catalog.db*"):
        file.unlink()
    headwater(lake, "restore", backup)
    with lakes.open(lake) as opened:
        assert heard(opened, "louder-speech 2") == Counter()
        assert read_progress(opened.settings, TRANSCRIPTS).seq_of(EVENTS.name) == 2
        call(opened, tmp_path, 3)
        assert heard(opened, "louder-speech 2") == calls(0, 1, 2, 3), "each once, and none is left out"
        assert not opened.pending()
        call(opened, tmp_path, 4)
        assert heard(opened, "louder-speech 2") == calls(0, 1, 2, 3, 4)
