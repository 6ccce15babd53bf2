"""The walk of docs/architecture.md is the code's own: each function that it names exists, and makes the calls named."""

import ast
import importlib
import inspect
import re
import textwrap
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parent.parent / "docs/architecture.md").read_text(encoding="utf-8")
WALK = re.search(r"^## A walk\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
# Who is found by a value and not by its name: the map names the runners of its stages, the registry a step's function.
BY_VALUE = ("by the map", "by the registry")


@dataclass(frozen=True)
class Row:
    file: str
    function: str
    calls: tuple[str, ...]
    note: str

    @property
    def name(self) -> str:
        return self.function.rpartition(".")[2]


def walks(text: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for title, body in re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL):
        rows = re.findall(r"^\| `([\w/.]+\.py)` \| `([\w.]+)` \| (.*?) ?\| (.*?) ?\|$", body, re.MULTILINE)
        assert len(rows) == len(re.findall(r"^\| `", body, re.MULTILINE)), "a row that is none"
        found[title] = [Row(file, name, tuple(re.findall(r"`(\w+)`", calls)), note) for file, name, calls, note in rows]
    return found


def resolve(row: Row) -> Any:
    module = importlib.import_module("headwater." + row.file.removesuffix(".py").replace("/", "."))
    found = reduce(getattr, row.function.split("."), module)
    return found.func if isinstance(found, cached_property) else inspect.unwrap(found)


def names_in(function: Any) -> set[str]:
    """Whatever a function's own code refers to, called there or handed on."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    return {node.id if isinstance(node, ast.Name) else node.attr for node in nodes}


def breaks(rows: list[Row]) -> list[str]:
    found, known = [], set[str]()
    for number, row in enumerate(rows):
        try:
            function = resolve(row)
        except (ImportError, AttributeError):
            found.append(f"{row.file} has no {row.function}")
            continue
        found += [f"{row.function} does not call {name}" for name in row.calls if name not in names_in(function)]
        is_known = row.name in known or any(words in row.note for words in BY_VALUE)
        # A stage begins with what people call, every other function is called by one that was named before it.
        if number and not is_known and not row.file.startswith(("lake.py", "facets/")):
            found.append(f"nobody before it calls {row.function}")
        known.update(row.calls)
    return found


def test_there_are_three_walks() -> None:
    assert WALK is not None
    found = walks(WALK[1])
    assert list(found) == ["From put to hit", "A replay to its flip", "A question by SQL"]
    assert all(len(rows) > 6 for rows in found.values())


@pytest.mark.parametrize("title", walks(WALK[1]) if WALK else [])
def test_each_step_of_a_walk_is_a_function_that_makes_the_calls_named(title: str) -> None:
    assert WALK is not None
    assert breaks(walks(WALK[1])[title]) == []


@pytest.mark.parametrize(
    "lie",
    [Row("flow/land.py", "land_none", (), ""), Row("flow/land.py", "land_many", ("derive_next",), ""),
     Row("flow/search.py", "search", (), "")],
)  # fmt: skip
def test_a_walk_that_lies_is_found(lie: Row) -> None:
    assert breaks([Row("lake.py", "Lake.put", ("land_many",), ""), lie]) != []
