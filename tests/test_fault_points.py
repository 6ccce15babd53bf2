"""Every fault point is known by name and is where some test kills, freezes or stops a process; none is forgotten."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import test_zombie

from headwater import faults

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "headwater"
# Stages of `publish` that pass no point: set-up warms the JVM with one, the other publishes positions without rows.
SILENT_STAGES = {"warm", "continuity"}
# Whoever passes these is not replaced while it sleeps, or writes nothing that a later one has to be protected from.
NO_ZOMBIES = {
    "land": "putting takes no lease",
    "log": "the log is written under a lock that a sleeper holds",
    "sql": "it reads",
    "retire": "its own tests freeze it: test_retire_race.py",
    "corrected": "its own tests freeze it: test_corrections.py",
    "upgrade": "a lake that is being upgraded lets nobody else in",
    "migrate": "it is resumed by its note, and killed at every point: test_migration.py",
    "backup": "it adds a tag and a file of its own",
}


@cache
def parsed(root: Path) -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(root.rglob("*.py")))


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for path, module in parsed(SOURCE):
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == name:
                yield path, node


def keywords(call: str, keyword: str) -> set[str]:
    """What calls of a function give as one of their arguments, where it is a word or a constant of their package."""
    return {
        word
        for path, each in calls(call)
        for given in each.keywords
        if given.arg == keyword and (word := word_of(path, given.value))
    }


def word_of(path: Path, value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    for other, module in parsed(SOURCE):
        for node in module.body if other.parent == path.parent else ():
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(word))) if name == getattr(
                    value, "id", ""
                ):
                    return word
    return ""


def points_in_source() -> set[str]:
    """A point's name is a word, `{stage}.something` for each stage that publishes, or what a caller gives."""
    found = set[str]()
    for _, call in calls("point"):
        match call.args:
            case [ast.Constant(value=str(name))]:
                found.add(name)
            case [ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id="stage")), ast.Constant(value=str(end))])]:
                found |= {f"{stage}{end}" for stage in keywords("publish", "stage") - SILENT_STAGES}
            case [ast.Name(id="point")]:
                found |= keywords("write_durably", "point")
            case _:
                raise AssertionError(f"a point whose name cannot be read: {ast.unparse(call)}")
    return found


def test_the_points_in_the_code_are_those_that_are_listed() -> None:
    assert points_in_source() == set(faults.POINTS)


def named_in_tests() -> set[str]:
    """Of the files that arm points: words that are a point's name, also where it is put together from two parts."""
    found = set[str]()
    for path, module in parsed(TESTS):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__) or not any(sign in text for sign in ("HEADWATER_FAULT", "zombies.", "forks.")):
            continue
        words = {node.value for node in ast.walk(module) if isinstance(node, ast.Constant) and _is_text(node)}
        starts = {word for word in words if word.endswith(".") and word.count(".") == 1}
        joined = {start + word for start in starts for word in words}
        found |= {word.partition(":")[0] for word in words | joined}
    return found


def _is_text(node: ast.Constant) -> bool:
    return isinstance(node.value, str)


def test_every_point_is_where_some_test_interrupts_a_process() -> None:
    frozen = test_zombie.points_of((*test_zombie.RUN, *test_zombie.MAINTAIN, *test_zombie.MEMO))
    assert set(faults.POINTS) - named_in_tests() - set(frozen) == set()


def test_every_point_is_of_somebody_who_is_frozen_in_tests_or_for_whom_it_is_said_why_not() -> None:
    frozen = {*test_zombie.RUN, *test_zombie.MAINTAIN, *test_zombie.MEMO}
    known = {point.partition(".")[0] for point in faults.POINTS}
    assert not frozen & NO_ZOMBIES.keys()
    assert known <= frozen | NO_ZOMBIES.keys()
