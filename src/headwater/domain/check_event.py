"""What a producer asks before it publishes: is this an event? No lake is needed to tell.

It is a little stricter than bronze, which takes a number where a text belongs: what is written so in the schema is
what stays true.
"""

import json
from collections.abc import Mapping
from typing import Any

from headwater.domain.event import EVENT_BYTES_MAX
from headwater.domain.event_problems import Problem, find_problems, size_problem
from headwater.domain.line import completed, read_line


def check_event(event: Mapping[str, Any] | str | bytes) -> list[Problem]:
    """Everything that is wrong with it, field by field; an empty list says that a lake will take it.

    `event` is a dict, or a line of JSON as it would be published.
    """
    try:
        value = event if isinstance(event, bytes) else _to_line(event).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        return [Problem("line", f"holds half a character, \\u{ord(half):04x}, which UTF-8 cannot spell")]
    except (TypeError, ValueError, RecursionError) as error:
        return [Problem("line", f"no JSON: {error}")]
    line = read_line(value)
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return [Problem("line", (line.detail or "").removeprefix("line: "))]
    too_large = [size_problem(len(value))] if len(value) > EVENT_BYTES_MAX else []
    return [*too_large, *_half_letters(fields), *find_problems(completed(_sound_text(fields)))]


def _to_line(event: Mapping[str, Any] | str) -> str:
    return event if isinstance(event, str) else json.dumps(dict(event), ensure_ascii=False)


def _half_letters(fields: dict[str, Any]) -> list[Problem]:
    """Bronze takes such a line as lakes always did; who sends it is told."""
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        return [Problem("line", f"holds half a character, \\u{half:04x}, in whose place ? would be kept")]
    return []


def _sound_text(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON can spell half a character; bronze keeps a sign in its place."""
    sound: dict[str, Any] = json.loads(json.dumps(fields, ensure_ascii=False).encode(errors="replace"))
    return sound
