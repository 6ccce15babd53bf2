"""A lake of cheap models, each of whose calls is a line in a file: for promises about what is asked again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import lake as lakes
from headwater.lake import Lake
from headwater.settings import FILE_NAME

MODELS = """\
[models]
transcribe = "speech"
caption = "cheap_models:CheapReader"
embed = "lexical"

[model.speech]
kind = "cheap_models:CheapSpeech"
calls = "{calls}"

[model.louder]
kind = "cheap_models:LouderSpeech"
calls = "{calls}"

[model.deaf]
kind = "cheap_models:DeafSpeech"

[model.near]
kind = "cheap_models:CheapEmbedder"
calls = "{calls}"
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Every call that a cheap model gets, as a line with the content's digest."""
    file = tmp_path / "calls"
    file.touch()
    return file


@pytest.fixture
def lake(calls: Path, engine: None, tmp_path: Path) -> Iterator[Lake]:
    directory = tmp_path / "lake"
    directory.mkdir()
    (directory / FILE_NAME).write_text(MODELS.format(calls=calls), encoding="utf-8")
    with lakes.init(directory) as made:
        yield made
