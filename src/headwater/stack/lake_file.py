"""The settings of the lake in a stack's directory: written where there are none, added to until a lake uses them.

Writes  <stack>/stack.toml, the settings of every part that was ever started, anew at each start;
        <stack>/headwater.toml, of the lake
Invariant: what stands in headwater.toml stays. A line that a user wrote is never changed or taken out, and once a lake
was made nothing is added either: another catalog.uri would take its tables from it.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from headwater.errors import InvalidRequest
from headwater.settings import FILE_NAME, OPEN_SECTIONS, resolve
from headwater.stack.state import write_private

STACK_FILE: Final = "stack.toml"
_STACK_NOTE: Final = (
    "# Written by `headwater up`, and written again by the next. Copy what you need to your lake's own file.\n"
)
_LAKE_NOTE: Final = (
    "# The settings of this lake, made by `headwater up`. They are yours now: a later `up` changes no line of them.\n"
)


def write_settings(directory: Path, known: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Both files, private; `report` is told where the lake's own says other than the stack."""
    write_private(directory / STACK_FILE, settings_text(known))
    file = directory / FILE_NAME
    if not file.is_file():
        write_private(file, settings_text(known, _LAKE_NOTE))
        return
    text = file.read_text(encoding="utf-8")
    found = _chosen(directory, text)
    if missing := {name: value for name, value in known.items() if name not in found}:
        added = None if _has_lake(directory, text) else with_settings(text, missing)
        if added is not None:
            write_private(file, added)
            missing = {}
    other = sorted(name for name, value in known.items() if name in missing or found.get(name, value) != value)
    if other:
        report(
            f"{file} is kept as it is. It does not say what {directory / STACK_FILE} says of {', '.join(other)};"
            " take over by hand what you want."
        )


def settings_text(settings: Mapping[str, str], note: str = _STACK_NOTE) -> str:
    """The settings as TOML."""
    sections: dict[str, list[str]] = {}
    for name, value in sorted(settings.items()):
        section, line = _line(name, value)
        sections.setdefault(section, []).append(line)
    return note + "".join(f"\n[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sorted(sections.items()))


def with_settings(text: str, missing: Mapping[str, str]) -> str | None:
    """The same text with these settings besides, each in its section; None where that cannot be done line by line."""
    for name, value in sorted(missing.items()):
        section, line = _line(name, value)
        header = re.search(rf"^[ \t]*\[[ \t]*{re.escape(section)}[ \t]*\][ \t]*(#.*)?$", text, re.MULTILINE)
        if header:
            text = f"{text[: header.end()]}\n{line}{text[header.end() :]}"
        else:
            text = f"{text.rstrip()}\n\n[{section}]\n{line}\n"
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a section that is written in another way
        return None
    return text


def _line(name: str, value: str) -> tuple[str, str]:
    opened = next((section for section in OPEN_SECTIONS if name.startswith(f"{section}.")), None)
    section = opened or name.partition(".")[0]
    key = name.removeprefix(f"{section}.")
    return section, f"{json.dumps(key) if opened else key} = {json.dumps(value)}"


def _chosen(directory: Path, text: str) -> dict[str, Any]:
    """What the file says itself, by the names of settings."""
    try:
        settings = resolve(directory, tomllib.loads(text), {}, {})
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(
            f"{directory / FILE_NAME} is not valid TOML: {error}. Mend it, then: headwater up"
        ) from error
    own = {name: chosen.value for name, chosen in settings.chosen.items() if chosen.origin == FILE_NAME}
    opened = {f"{name}.{key}": value for name in OPEN_SECTIONS for key, value in settings.section(name).items()}
    return own | opened


def _has_lake(directory: Path, text: str) -> bool:
    """Whether a lake was made by these settings: its ledger is there. One that does not answer may have one."""
    uri = resolve(directory, tomllib.loads(text), {}, {}).text("ledger.uri")
    if uri.startswith("sqlite:///"):
        return Path(uri.removeprefix("sqlite:///")).exists()
    import psycopg

    try:
        with psycopg.connect(uri, connect_timeout=5) as connection:
            return connection.execute("SELECT to_regclass('lake')").fetchone() != (None,)
    except psycopg.Error:
        return True
