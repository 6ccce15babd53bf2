"""An embedder is replaced while another process searches: no answer is ever of two models, empty or an error.

It is `benchmarks/upgrade.py` itself, on a smaller lake.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NEWER = '[model.near]\nkind = "cheap_models:CheapEmbedder"\n'
OLD_LABEL, NEW_LABEL = "lexical 1", "cheap-embedder 1"


@pytest.fixture
def bench(engine: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("upgrade")


def promise(bench: Any, lake: Path, lines: int) -> None:
    bench.make_lake(lake, lines, NEWER)
    done = bench.upgrade(lake, "near", pause=1.0)
    assert not done.broken, done.broken[:3]
    first = [answer for answer in done.answers if answer.at < done.steps["activate"][0] - 1]
    assert {answer.models for answer in first} == {(OLD_LABEL,)}
    assert done.models_between("activate", "flip back") == {NEW_LABEL}
    assert done.models_between("flip back", "activate again") == {OLD_LABEL}
    assert done.models_between("activate again", None) == {NEW_LABEL}


def test_every_answer_is_wholly_of_one_embedder_while_it_is_replaced(bench: Any, tmp_path: Path) -> None:
    promise(bench, tmp_path / "lake", 1_000)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_every_answer_is_wholly_of_one_embedder_on_a_lake_of_fifty_thousand(bench: Any, tmp_path: Path) -> None:
    promise(bench, tmp_path / "lake", 50_000)
