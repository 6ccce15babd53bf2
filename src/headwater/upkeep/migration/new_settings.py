"""New settings for a lake: those of another file over its own, checked, and written in its place at one instant.

What the other file does not name stays as it is, so a file with one URI moves one part. The old file is kept beside.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headwater.errors import InvalidRequest, NotFound
from headwater.settings import FILE_NAME, Settings, resolve
from headwater.storage.io.whole_file import write_whole

BEFORE: Final = f"{FILE_NAME}.before-migration"
_HEAD: Final = "# Written by headwater migrate. What was here before: headwater.toml.before-migration\n"

Document = Mapping[str, Mapping[str, Any]]


def merge(lake: Path, other: Path) -> Document:
    """The lake's own document with the other file's values over it."""
    merged: dict[str, dict[str, Any]] = {}
    for document in (_read(lake / FILE_NAME), _read(other)):
        for section, body in document.items():
            if not isinstance(body, Mapping):
                raise InvalidRequest(f"{other}: {section} must be a section, such as [{section}].")
            into = merged.setdefault(section, {})
            for key, value in body.items():
                into[key] = {**into.get(key, {}), **value} if isinstance(value, Mapping) else value
    return merged


def settings_of(lake: Path, document: Document, options: Mapping[str, Any]) -> Settings:
    """As the lake would be opened with this document; the environment counts as it always does."""
    return resolve(lake, document, options, os.environ)


def switch(lake: Path, document: Document) -> None:
    """A reader sees the old file or the new one, whole, also after a power cut."""
    file, before = lake / FILE_NAME, lake / BEFORE
    write_whole(before, file.read_bytes(), file.stat().st_mode)
    # The new settings may hold a password.
    write_whole(file, (_HEAD + to_toml(document)).encode(), 0o600)


def to_toml(document: Document) -> str:
    lines = []
    for section, body in document.items():
        plain = {key: value for key, value in body.items() if not isinstance(value, Mapping)}
        inner = [(f"{section}.{_text(key)}", value) for key, value in body.items() if isinstance(value, Mapping)]
        tables = ([(section, plain)] if plain else []) + inner
        for name, values in tables:
            lines += ["", f"[{name}]", *(f"{_text(key)} = {_text(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    """TOML's strings, numbers and truths are written as JSON's; a quoted key is a key."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"There is no file {file}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} is not valid TOML: {error}") from error
