"""Writes docs/python.md, from the signatures and docstrings of what is public.

Call it by `.venv/bin/python scripts/python_page.py`; `tests/test_python_page.py` holds the page to what this makes.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import headwater
from headwater.facets.events import LakeEvents
from headwater.facets.former_names import FormerNames
from headwater.facets.models import LakeModels
from headwater.facets.quarantine import LakeQuarantine
from headwater.facets.upkeep import LakeUpkeep
from headwater.lake import Lake
from headwater.remote_lake import RemoteJob, RemoteLake, RemoteTable
from headwater.table_reader import TableReader

PAGE: Final = Path(__file__).parent.parent / "docs" / "python.md"
HEAD: Final = """\
# Python

Everything public, by its signature and its docstring; this page is made by `scripts/python_page.py`. What is a
command's twin is told in [cli.md](cli.md#from-python). Times are taken as `"2026-01-31"`, `"2026-01-31T09:30:00Z"`, a
`datetime` or a `date`. Each error is one of six kinds of `headwater.errors`, whose sentence ends with the next move.
"""
FACETS: Final = {
    "lake.models": LakeModels,
    "lake.quarantine": LakeQuarantine,
    "lake.events": LakeEvents,
    "lake.upkeep": LakeUpkeep,
}

REMOTE: Final = (
    ("A lake elsewhere", "remote", RemoteLake),
    ("A table of it", 'remote.table("…")', RemoteTable),
    ("A job of it", "job", RemoteJob),
)


def python_page() -> str:
    functions = [(f"headwater.{name}", getattr(headwater, name)) for name in headwater.__all__ if name[0].islower()]
    parts = [("Functions", "", functions), ("A lake", Lake.__doc__, list(members("lake", Lake)))]
    parts += [(name, kind.__doc__, list(members(name, kind))) for name, kind in FACETS.items()]
    parts += [("A table", TableReader.__doc__, list(members('lake.table("…")', TableReader)))]
    parts += [(title, kind.__doc__, list(members(name, kind))) for title, name, kind in REMOTE]
    return HEAD + "".join(f"\n## {title}\n\n{section(told, found)}" for title, told, found in parts)


def members(prefix: str, kind: type) -> Iterator[tuple[str, Any]]:
    """What is public, in the order of the alphabet, without the names that went to a facet."""
    if "__call__" in vars(kind):
        yield prefix, kind.__call__
    for name, member in inspect.getmembers_static(kind):
        moved = hasattr(FormerNames, name) and kind is Lake
        if not name.startswith("_") and not moved and (callable(member) or isinstance(member, property)):
            yield f"{prefix}.{name}", member


def section(told: str | None, found: list[tuple[str, Any]]) -> str:
    lead = f"{text_of(told)}\n\n" if told else ""
    return lead + "\n".join(entry(name, member) for name, member in found)


def entry(name: str, member: Any) -> str:
    function: Callable[..., Any] = member.fget if isinstance(member, property) else inspect.unwrap(member)
    shown = f"{name}{signature(function, is_property=isinstance(member, property))}"
    told = f"\n{text_of(member.__doc__)}\n" if member.__doc__ else ""
    return f"```python\n{shown}\n```\n{told}"


def signature(function: Callable[..., Any], *, is_property: bool) -> str:
    found = inspect.signature(function)
    given = [shown(each) for name, each in found.parameters.items() if name != "self"]
    kinds = [each.kind for each in found.parameters.values()]
    only = inspect.Parameter.KEYWORD_ONLY
    keyword = kinds.index(only) if only in kinds else None
    if keyword is not None and not any(part.startswith("*") for part in given):
        given.insert(keyword - ("self" in found.parameters), "*")
    result = f" -> {annotation(found.return_annotation)}"
    if is_property:
        return result
    line = f"({', '.join(given)}){result}"
    return line if len(line) < 90 else "(\n    " + ",\n    ".join(given) + f",\n){result}"


def shown(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{star}{parameter.name}: {annotation(parameter.annotation)}{default}"


def annotation(found: Any) -> str:
    text = found if isinstance(found, str) else inspect.formatannotation(found)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z_])", "", text).strip("'")


def text_of(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "")


if __name__ == "__main__":
    PAGE.write_text(python_page(), encoding="utf-8")
