"""Row events: what a row says, as a message or as a file with all that is known of it.

A row without an id has one of its own words and its number, so the same rows again are the same events.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from headwater.clock import parse_time
from headwater.domain.event import EVENT_BYTES_MAX, Event
from headwater.domain.meta import meta_to_json, require_thread
from headwater.errors import InvalidRequest
from headwater.flow.imports.row_source import Row
from headwater.flow.land_text import text_event

# Seconds, thousandths, millionths and billionths since 1970 are told apart by their size, up to the year 2286.
_EPOCHS: Final = ((1e10, 1), (1e13, 1e3), (1e16, 1e6), (1e19, 1e9))


class BadRow(Exception):
    """Why a row is no event, in words that other rows' reasons are grouped with."""


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file that a row names, and what it says of it."""

    path: str
    customer: str
    event_id: str | None
    at: datetime | None
    meta: Mapping[str, Any] | None
    thread: str | None


@dataclass(frozen=True, slots=True)
class Defaults:
    """What rows are that do not say it themselves. `now` is the time of a message that has none."""

    customer: str | None
    at: datetime | None
    now: datetime
    meta: Mapping[str, Any] | None = None
    thread: str | None = None


def to_event(row: Row, fields: Mapping[str, str], defaults: Defaults) -> Event | RowFile:
    """`fields` says which of its columns is which field. Raises BadRow."""
    if row.problem is not None:
        raise BadRow(row.problem)
    found: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    for name, value in row.values.items():
        if value is None or value == "" or _is_nothing(value):
            continue
        if field := fields.get(name):
            found[field] = value
        else:
            meta[name] = value if type(value) is str else _plain(value)
    customer = _word(found.get("customer")) or defaults.customer
    if not customer:
        raise BadRow("no customer, and --customer names none")
    at = _moment(found["at"]) if "at" in found else defaults.at
    kept = _meta(meta, found.get("meta"))
    kept = _checked({**(defaults.meta or {}), **(kept or {})} or None)
    thread = _thread(_word(found.get("thread"))) or defaults.thread
    event_id = _word(found.get("id"))
    try:
        if "file" in found:
            if "text" in found:
                kept = _checked({**(kept or {}), "text": _word(found["text"])})
            return RowFile(_word(found["file"]) or "", customer, event_id, at, kept, thread)
        text = _word(found.get("text"))
        if not text or not text.strip():
            raise BadRow("neither a text nor a file")
        event = text_event(text, customer, event_id or _id_of(row, customer), at or defaults.now)
        if not kept and not thread:
            return event
        event = replace(event, meta=kept, thread=thread)
        if len(text) > EVENT_BYTES_MAX // 8 and len(event.to_json().encode()) > EVENT_BYTES_MAX:
            raise BadRow("more than a log takes as one message")
        return event
    except InvalidRequest as error:
        raise BadRow(str(error)) from error


def _is_nothing(value: Any) -> bool:
    """NaN and NaT, which is how pandas says it."""
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NaTType"


def _id_of(row: Row, customer: str) -> str:
    said = json.dumps([customer, {name: _plain(value) for name, value in row.values.items()}], sort_keys=True)
    return f"row-{row.line}-{hashlib.sha256(said.encode()).hexdigest()[:24]}"


def _meta(columns: dict[str, Any], given: Any) -> Mapping[str, Any] | None:
    """Columns of their own, over what a column that is a meta as a whole says."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise BadRow("its meta is no JSON object") from error
    if given is None:
        return columns or None
    if not isinstance(given, Mapping):
        raise BadRow("its meta is no JSON object")
    return {**_plain(given), **columns}


def _checked(meta: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    try:
        if meta is not None:
            meta_to_json(meta)
    except ValueError as error:
        raise BadRow(f"its meta cannot be kept: {error}") from error
    return meta


def _word(value: Any) -> str | None:
    """A whole number that went through pandas has come as 5.0."""
    if value is None or isinstance(value, str):
        return value.strip("\ufeff") if value else None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(_plain(value))


def _thread(word: str | None) -> str | None:
    try:
        return require_thread(word)
    except InvalidRequest as error:
        raise BadRow(str(error)) from error


def _moment(value: Any) -> datetime:
    """ISO 8601, or a number since 1970."""
    try:
        match value:
            case datetime():
                moment = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
                return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            case date():
                return datetime.combine(value, time(), UTC)
            case str():
                text = value.strip()
                return _since_1970(float(text)) if _is_number(text) else parse_time(text)
            case int() | float():
                return _since_1970(float(value))
            case _:
                return _since_1970(float(value))
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise BadRow("its time is neither ISO 8601 nor a number since 1970") from error


def _is_number(text: str) -> bool:
    """Eight digits are a day, 20260301, and not one of the year 1970."""
    digits = text.lstrip("-").replace(".", "", 1)
    return digits.isdigit() and len(text) != 8


def _since_1970(number: float) -> datetime:
    for most, parts in _EPOCHS:
        if abs(number) < most:
            return datetime.fromtimestamp(number / parts, UTC)
    raise ValueError("beyond all times")


def _plain(value: Any) -> Any:
    """As JSON has it."""
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple() | set():
            return [_plain(inner) for inner in value]
        case Decimal() | UUID():
            return str(value)
        case bytes():
            return value.decode("utf-8", "replace")
    return _plain(value.item()) if hasattr(value, "item") else str(value)  # a number of NumPy's
