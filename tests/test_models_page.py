"""docs/models.md tells every kind and every option that there is, and its examples are ones that load."""

import inspect
import re
import tomllib
from pathlib import Path

import pytest

from headwater.flow.models.registry import KIND, MODELS, find_place, load_model

PAGE = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
EXAMPLES = [example for example in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "[model." in example]
ADAPTERS = [name for name, place in MODELS.items() if re.search("endpoint|whisper|fastembed|moonshine", place)]


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_option_is_on_the_page(kind: str) -> None:
    assert f"`{kind}`" in PAGE
    options = inspect.signature(find_place(MODELS[kind])).parameters
    assert [name for name in options if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_ones_that_load(example: str) -> None:
    sections = tomllib.loads(example)["model"]
    assert sections and all(sections[name][KIND] in MODELS for name in sections)
    for name in sections:
        load_model(name, sections)
