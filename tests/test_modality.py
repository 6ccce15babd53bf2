"""A modality is one file and one line: a made-up one goes all the way; and what the registry says is so."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater.domain.modality import CONTENT_TYPES, Modality, modalities_with
from headwater.domain.steps import CHOICES, EMBED, PICTURE, STEPS, derived_tables
from headwater.domain.tables import EMBEDDINGS, METADATA, TEXT_TABLES
from headwater.errors import InternalError
from headwater.flow.derive.registry import function_of
from headwater.settings import BY_NAME

LINE = '    SUBTITLE = "subtitle", "subtitles", (PROBE, MESSAGE), {".srt": "application/x-subrip"}\n'
FILE = '''\
"""Subtitles: what was said in a film, with its times, as somebody has written it down."""

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Effort, StepResult, probed, said_result
from headwater.flow.models.inline import Inline
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import Said


def probe(source: Source, models: Models) -> StepResult:
    if b"-->" not in source.head(4096):
        raise DataFault("UNREADABLE", "No times are in it.")
    return probed(pages=1, codec="srt")


def message(source: Source, models: Models) -> StepResult:
    with source.open() as file:
        blocks = [block.splitlines() for block in file.read().decode().split("\\n\\n") if block.strip()]
    said = [Segment(" ".join(lines), Locator(start_ms=1000 * int(number))) for number, _, *lines in blocks]
    text = " ".join(part.text for part in said)
    return said_result(Said(text, "en", None, tuple(said)), Inline.card, Effort(0.0))
'''
FILM = "1\n00:00:01,000 --> 00:00:02,000\nThe lighthouse was dark.\n\n2\n00:00:02,000 --> 00:00:04,000\nNobody came.\n"
SCRIPT = """
import json, sys
import headwater
from headwater import lake as lakes

directory, film, broken = sys.argv[1:]
with lakes.init(directory) as lake:
    landed = [one.event.modality for one in lake.put(film, broken, customer="acme")]
    done = lake.run().done
    (hit,) = lake.search("lighthouse", modality="subtitle").hits
    told = {
        "source": headwater.__file__,
        "landed": landed,
        "done": done,
        "path": hit.entry.pointer["path"],
        "locator": hit.entry.locator["start_ms"],
        "facts": lake.sql("select modality, codec, content_type from metadata")["rows"],
        "refused": [row["reason"] for row in lake.quarantine()["rows"]],
        "pending": bool(lake.pending()),
    }
print(json.dumps(told))
"""


def test_a_modality_that_is_one_file_and_one_line_is_put_derived_embedded_and_found(tmp_path: Path) -> None:
    package = tmp_path / "site" / "headwater"
    source = Path(headwater.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "recordings"))
    registry = package / "domain" / "modality.py"
    chat = next(line for line in registry.read_text().splitlines(keepends=True) if line.startswith("    CHAT ="))
    registry.write_text(registry.read_text().replace(chat, chat + LINE))
    (package / "flow" / "derive" / "subtitle.py").write_text(FILE)
    (tmp_path / "film.srt").write_text(FILM)
    (tmp_path / "broken.srt").write_text("no times")
    command = [sys.executable, "-c", SCRIPT, *(str(tmp_path / name) for name in ("lake", "film.srt", "broken.srt"))]
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["source"].startswith(str(package)), "it was the copy that ran"
    assert told["landed"] == ["subtitle", "subtitle"] and told["path"].startswith("subtitles/acme/")
    assert (told["done"]["bronze"], told["done"]["derive"], told["locator"]) == (2, 2, 1000)
    assert told["facts"] == [{"modality": "subtitle", "codec": "srt", "content_type": "application/x-subrip"}]
    assert (told["refused"], told["pending"]) == (["UNREADABLE"], False)


@pytest.mark.parametrize("modality", Modality)
def test_every_step_of_a_modality_has_its_function(modality: Modality) -> None:
    assert modality.steps and all(callable(function_of(modality, step)) for step in modality.steps)
    assert all(CONTENT_TYPES[ending] == (modality, kind) for ending, kind in modality.content_types.items())


def test_a_step_without_a_function_says_where_it_is_missing() -> None:
    with pytest.raises(InternalError, match=r"flow\.derive\.chat has no function"):
        function_of(Modality.CHAT, PICTURE)


def test_the_registry_of_steps_is_sound() -> None:
    settings = [name for step in STEPS.values() for name in (step.setting, step.helper_setting) if name]
    assert sorted(settings) == sorted(name for name in BY_NAME if name.startswith("models."))
    assert all(bool(step.setting) != bool(step.fixed_model) for step in STEPS.values())
    assert all(modalities_with(step) for step in STEPS.values() if step is not EMBED)
    # By what a model takes and makes, a step is known; and embed reads what the others say.
    assert len({(step.accepts, step.produces) for step in CHOICES.values()}) == len(CHOICES)
    assert set(EMBED.reads) == set(TEXT_TABLES) == set(derived_tables(())) - {METADATA}
    assert set(derived_tables({PICTURE.name})) - set(derived_tables(())) == {EMBEDDINGS}
