"""What keeps a message from being an event, field by field: for quarantine's rows, and for producers who ask before.

The reader of lines (`domain.line`) only asks whether; here it is told why, of the few that need it. Both ask the rules
of `domain.event_fields`, and a test holds that they never disagree.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.domain.event import EVENT_BYTES_MAX
from headwater.domain.event_fields import (
    CHECKSUM,
    MODALITIES,
    NAME_BYTES_MAX,
    NO_PART,
    WHOLE_END,
    is_brief,
    is_correction,
    is_name,
    is_whole,
    owner_of,
    read_moment,
)
from headwater.domain.extra import extra_to_json
from headwater.domain.meta import meta_to_json
from headwater.domain.modality import INLINE

_SHOWN_LETTERS: Final = 80
_KINDS: Final = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """`field` is written with dots; `line` is all of it. `says` tells what it has, and what it needs."""

    field: str
    says: str

    def __str__(self) -> str:
        return f"{self.field}: {self.says}"

    def to_dict(self) -> dict[str, str]:
        return {"field": self.field, "says": self.says}


def find_problems(fields: object) -> list[Problem]:
    """All that keeps it from being an event of the customer that it names; none where it is one."""
    if not isinstance(fields, Mapping):
        return [Problem("line", f"{_kind(fields)}, needs an object with the fields of an event")]
    return [*_problems(fields)]


def size_problem(size: int) -> Problem:
    return Problem("line", f"{size:,} bytes, at most {EVENT_BYTES_MAX:,} travel in a log")


def owner_problem(path: str, customer: str) -> Problem:
    owner = owner_of(path)
    whose = "names no customer in its second part" if owner is None else f"is of the customer {shown(owner)}"
    return Problem("pointer.path", f"{shown(path)} {whose}, and customer says {shown(customer)}")


def parse_problem(value: str) -> Problem:
    """Of a line that is no JSON."""
    if not value.strip():
        return Problem("line", "empty, needs an event as JSON")
    try:
        json.loads(value)
    except json.JSONDecodeError as error:
        return Problem("line", f"no JSON: {error.msg}, at letter {error.pos + 1}")
    except (ValueError, RecursionError):
        pass
    return Problem("line", "no JSON that can be read: it is nested too deep, or holds a number of too many digits")


def shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_LETTERS else text[: _SHOWN_LETTERS - 1] + "…"


def _problems(fields: Mapping[str, Any]) -> Iterator[Problem]:
    modality, text, pointer = fields.get("modality"), fields.get("text"), fields.get("pointer")
    modality = modality if modality is None or type(modality) is str else shown(modality)
    is_message = modality in INLINE
    yield from _name("event_id", fields.get("event_id"))
    yield from _name("customer", fields.get("customer"))
    if modality not in MODALITIES:
        yield Problem("modality", f"{_given(modality)}, needs one of {', '.join(sorted(MODALITIES))}")
    yield from _moment(fields.get("occurred_at"))
    if is_message and type(text) is not str:
        yield Problem("text", f"{_given(text)}, needs the text of the message")
    elif not is_message and modality in MODALITIES and text is not None:
        yield Problem("text", f"{_given(text)}, but only a chat message has a text")
    yield from _beside(fields)
    if is_message and pointer is None:  # it is made of what is to blame already
        return
    if type(pointer) is not dict:
        yield Problem("pointer", f"{_given(pointer)}, needs an object; only a chat message may come without")
        return
    yield from _pointer(pointer)
    path, customer = pointer.get("path"), fields.get("customer")
    if is_name(path) and not NO_PART.search(path) and is_name(customer) and owner_of(path) != customer:
        yield owner_problem(path, customer)


def _beside(fields: Mapping[str, Any]) -> Iterator[Problem]:
    if fields.get("thread") is not None:
        yield from _name("thread", fields.get("thread"))
    if (corrects := fields.get("corrects")) is not None:
        yield from _name("corrects", corrects)
        if is_name(corrects) and not is_correction(corrects, fields.get("event_id")):
            yield Problem("corrects", f"{shown(corrects)} is the event itself, needs the id of another one")
    try:
        if (meta := fields.get("meta")) is not None:
            meta_to_json(meta)
    except ValueError as error:
        yield Problem("meta", str(error))
    try:
        extra_to_json(fields)
    except ValueError as error:
        yield Problem("line", f"what it has beside the fields of an event is {error}")


def _pointer(pointer: Mapping[str, Any]) -> Iterator[Problem]:
    path, checksum, offset = pointer.get("path"), pointer.get("checksum"), pointer.get("offset")
    yield from _name("pointer.path", path)
    if is_name(path) and NO_PART.search(path):
        yield Problem("pointer.path", f"{shown(path)} begins or ends with a slash, or has an empty part, . or ..")
    yield from _size(pointer.get("size"))
    if offset is not None:
        yield from _whole("pointer.offset", offset)
    if type(checksum) is not str or not CHECKSUM.fullmatch(checksum):
        yield Problem("pointer.checksum", _checksum(checksum))
    for name in ("content_type", "version_id", "etag"):
        if not is_brief(value := pointer.get(name)):
            yield Problem(
                f"pointer.{name}", _too_long(value) if type(value) is str else f"{_given(value)}, needs a text"
            )


def _name(field: str, value: object) -> Iterator[Problem]:
    if is_name(value):
        return
    if type(value) is not str:
        yield Problem(field, f"{_given(value)}, needs a text")
    elif not value:
        yield Problem(field, "empty, needs at least one letter")
    elif "\0" in value:
        yield Problem(field, f"{shown(value)} holds the character zero")
    else:
        yield Problem(field, _too_long(value))


def _moment(value: object) -> Iterator[Problem]:
    if read_moment(value) is None:
        wanted = "ISO 8601, such as 2026-01-31T09:30:00Z, or whole seconds since 1970"
        yield Problem("occurred_at", f"{_given(value)}, needs a time: {wanted}")


def _size(value: object) -> Iterator[Problem]:
    if value is None:
        yield Problem(
            "pointer.size", "missing, needs the number of the object's bytes, as the store that took them says"
        )
    else:
        yield from _whole("pointer.size", value)


def _whole(field: str, value: object) -> Iterator[Problem]:
    if not is_whole(value):
        yield Problem(field, f"{_given(value)}, needs a whole number from 0 to {WHOLE_END - 1}")


def _checksum(value: object) -> str:
    if type(value) is not str:
        return f"{_given(value)}, needs the SHA-256 of the bytes in 64 hex digits"
    if CHECKSUM.fullmatch(value.strip().lower()):
        return f"{shown(value)}, needs hex digits in lower case and nothing else"
    if all(letter in "0123456789abcdefABCDEF" for letter in value):
        return f"{len(value)} hex digits, needs 64"
    return f"{shown(value)}, needs the SHA-256 of the bytes in 64 hex digits"


def _too_long(value: str) -> str:
    return f"{len(value.encode(errors='replace')):,} bytes, at most {NAME_BYTES_MAX:,}"


def _given(value: object) -> str:
    if value is None:
        return "missing"
    return shown(value) if isinstance(value, str | int | float) else _kind(value)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)
