"""Meta: what is known about an object beside its bytes, as a JSON object that travels with its event.

Kept as one line of JSON, in the order of its keys, so that the same facts are the same text. A fact is a key and a
value as words, `channel=phone`; keys that stand in one another are joined by dots, `account.tier=gold`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from headwater.errors import InvalidRequest

META_BYTES_MAX: Final = 16 << 10  # thousands of them are in memory at a time, and an index holds them once a chunk
KEY_LETTERS_MAX: Final = 100
_DEPTH_MAX: Final = 8
_THREAD_BYTES_MAX: Final = 1024
_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False).encode

Fact = tuple[str, str]


class WantedFact(NamedTuple):
    """What an object must be known by: a fact of its meta, or a label. `labelled` are the objects that have it as a
    label, `otherwise` those that have another label of its key: that counts more than what came with them."""

    key: str
    value: str
    labelled: frozenset[str] = frozenset()
    otherwise: frozenset[str] = frozenset()


def meta_to_json(meta: object) -> str:
    """As it is kept; raises ValueError, with what is wrong with it, for what is no meta."""
    if not isinstance(meta, Mapping):
        raise ValueError(f"it must be a JSON object, not {type(meta).__name__}")
    _check(meta, 1)
    try:
        text = _to_json(meta)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if size > META_BYTES_MAX:
        raise ValueError(f"it has {size} bytes, and at most {META_BYTES_MAX} are kept")
    return text


def require_meta(meta: object) -> Mapping[str, Any] | None:
    """What a caller gave, as it may travel; none where it says nothing."""
    if not meta:
        return None
    try:
        kept: Mapping[str, Any] = json.loads(meta_to_json(meta))
    except ValueError as error:
        raise InvalidRequest(f"This meta cannot be kept: {error}. Give names and plain values.") from error
    return kept


def require_thread(thread: str | None) -> str | None:
    """What a conversation may be called; none where it is empty."""
    try:
        if thread and (len(thread.encode()) > _THREAD_BYTES_MAX or "\0" in thread):
            raise InvalidRequest(f"A thread is a name of at most {_THREAD_BYTES_MAX} bytes. Say it shorter.")
    except UnicodeEncodeError as error:
        raise InvalidRequest("The thread's name is not valid Unicode. Send it as UTF-8.") from error
    return thread or None


def facts_of(meta: str | None) -> list[str]:
    """Every fact of a meta, each once: what it can be found by."""
    if meta is None:
        return []
    return sorted({f"{key}={value}" for key, value in _facts("", json.loads(meta))})


def parse_fact(text: str) -> Fact:
    """`channel=phone`; the value may be empty and have more of the signs."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise InvalidRequest(f"{text!r} is no key=value. Write it as channel=phone.")
    return key.strip(), value


def _check(value: object, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise ValueError(f"it is more than {_DEPTH_MAX} levels deep")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str) or not 0 < len(key) <= KEY_LETTERS_MAX:
                raise ValueError(
                    f"its key {str(key)[:KEY_LETTERS_MAX]!r} must be a word of 1 to {KEY_LETTERS_MAX} letters"
                )
            if type(inner) is not str:
                _check(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            if type(inner) is not str:
                _check(inner, depth + 1)


def _facts(key: str, value: object) -> Iterator[Fact]:
    match value:
        case dict():
            for name, inner in value.items():
                yield from _facts(f"{key}.{name}" if key else name, inner)
        case list():
            for inner in value:
                yield from _facts(key, inner)
        case str():
            yield key, value
        case None:
            return
        case _:
            yield key, json.dumps(value)
