"""A line of the log, read: the event that it is, or as much of one as can be told.

Everything that later stages rely on is checked here, once; what a foreign producer sent besides is passed over.
Pure and quick, because every event goes through it: some microseconds a line.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring as _quoted
from math import isfinite
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import unquote

from headwater.clock import parse_time
from headwater.domain.event import EVENT_BYTES_MAX
from headwater.domain.meta import meta_to_json
from headwater.domain.modality import INLINE, Modality

NAME_BYTES_MAX: Final = 1024  # an S3 key's; Postgres has no room in an index for much more
PAYLOAD_LETTERS: Final = 4000
_LONG: Final = 1 << 63
_CHECKSUM: Final = re.compile("[0-9a-f]{64}")
# No part of a path: what a file system passes over, or goes up by. Its second part would not tell whose it is.
_NO_PART: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")
_MODALITIES: Final = frozenset(modality.value for modality in Modality)
_WORDS: Final = ("event_id", "modality", "customer", "text", "thread")
_POINTER_WORDS: Final = ("path", "content_type", "checksum", "version_id", "etag")
_ESCAPE: Final = re.compile(r"\\\\|\\u00..")


class Line(NamedTuple):
    """Of a line that is no event, the names that it gives, cut short, what it said, and the `reason` why it is none."""

    sound: bool
    event_id: str | None
    modality: str | None
    customer: str | None
    path: str | None
    occurred_at: datetime | None
    offset: int | None = None
    size: int | None = None
    content_type: str | None = None
    checksum: str | None = None
    version_id: str | None = None
    etag: str | None = None
    text: str | None = None
    meta: str | None = None
    thread: str | None = None
    content_hash: str | None = None
    payload: str | None = None
    reason: str | None = None


def read_line(value: str | None) -> Line:
    fields = _fields(value or "")
    if (line := _event(fields)) is None:
        fields = _worded(fields)
        line = _event(fields)
    if line is None or len((value or "").encode()) > EVENT_BYTES_MAX:
        return _unsound(value, fields)
    if line.customer != owner_of(line.path or ""):
        # All of it is kept: who looks into it wants to know what was announced.
        return line._replace(sound=False, payload=(value or "")[:PAYLOAD_LETTERS], reason="WRONG_CUSTOMER")
    return line


def owner_of(path: str) -> str | None:
    """Whose object it is: the second part of its path, in which `domain.keys` spells some letters as `%20`.

    Every path has one owner at most, so that two names, `a b` and `a%20b`, never own the same object.
    """
    _, _, rest = path.partition("/")
    part, slash, name = rest.partition("/")
    return unquote(part) if slash and name else None


def unsound_line(value: str | None) -> Line:
    """Whatever the line says."""
    return _unsound(value, _worded(_fields(value or "")))


def _unsound(value: str | None, fields: Mapping[str, Any]) -> Line:
    names = (fields.get("event_id"), fields.get("modality"), fields.get("customer"), fields["pointer"].get("path"))
    event_id, modality, customer, path = (name and name[:NAME_BYTES_MAX] for name in names)
    payload = value and value[:PAYLOAD_LETTERS]
    moment = _time(fields.get("occurred_at"))
    return Line(False, event_id, modality, customer, path, moment, payload=payload, reason="BAD_EVENT")


def _event(fields: Mapping[str, Any]) -> Line | None:
    """A line that is an event: every field that is needed is there, and of its kind."""
    pointer = fields.get("pointer")
    if type(pointer) is not dict:
        return None
    event_id, modality, customer = fields.get("event_id"), fields.get("modality"), fields.get("customer")
    path, size, checksum = pointer.get("path"), pointer.get("size"), pointer.get("checksum")
    content_type, version_id, etag = pointer.get("content_type"), pointer.get("version_id"), pointer.get("etag")
    offset, text, occurred_at = pointer.get("offset"), fields.get("text"), _time(fields.get("occurred_at"))
    thread, (meta, has_sound_meta) = fields.get("thread"), _meta(fields.get("meta"))
    if (
        not (_is_name(event_id) and _is_name(customer) and _is_name(path))
        or _NO_PART.search(path)
        or type(modality) is not str
        or modality not in _MODALITIES
        or occurred_at is None
        or not _is_whole(size)
        or not (offset is None or _is_whole(offset))
        or type(checksum) is not str
        or not _CHECKSUM.fullmatch(checksum)
        or not (_is_brief(content_type) and _is_brief(version_id) and _is_brief(etag))
        or (type(text) is not str if modality in INLINE else text is not None)
        or not (has_sound_meta and (thread is None or _is_name(thread)))
    ):
        return None
    content_hash = _content_hash(event_id, modality, customer, path, size, checksum, text, meta, thread)
    kept = offset or 0, size, content_type, checksum, version_id, etag, text, meta, thread, content_hash
    return Line(True, event_id, modality, customer, path, occurred_at, *kept)


def _is_name(name: object) -> TypeGuard[str]:
    """What databases and stores take as a key: some bytes, not too many, none of them zero."""
    return type(name) is str and 0 < len(name.encode()) <= NAME_BYTES_MAX and "\0" not in name


def _is_brief(word: object) -> TypeGuard[str | None]:
    return word is None or (type(word) is str and len(word.encode()) <= NAME_BYTES_MAX)


def _is_whole(number: object) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < _LONG


def _meta(value: object) -> tuple[str | None, bool]:
    """As it is kept, and whether it is any good; none at all is good."""
    try:
        return (None if value is None else meta_to_json(value)), True
    except ValueError:
        return None, False


def _time(value: object) -> datetime | None:
    """ISO 8601, or seconds since 1970."""
    try:
        if type(value) is str:
            return parse_time(value)
        return datetime.fromtimestamp(value, UTC) if type(value) is int else None
    except (ValueError, OverflowError, OSError):
        return None


def _content_hash(
    event_id: str,
    modality: str,
    customer: str,
    path: str,
    size: int,
    checksum: str,
    text: str | None,
    meta: str | None,
    thread: str | None,
) -> str:
    """What must agree when an id is seen again. Not its time: who sends a line twice sends it later.

    Lakes keep these hashes: not a letter of the form may change. It is Spark's `to_json`.
    """
    member = "" if text is None else f',"text":{_quoted(text)}'
    member += "" if meta is None else f',"meta":{meta}'
    member += "" if thread is None else f',"thread":{_quoted(thread)}'
    form = (
        f'{{"event_id":{_quoted(event_id)},"modality":"{modality}","customer":{_quoted(customer)},'
        f'"path":{_quoted(path)},"size":{size},"checksum":"{checksum}"{member}}}'
    )
    if "\\u00" in form:
        # Java spells the codes of control characters in capitals.
        form = _ESCAPE.sub(lambda found: found[0][:4] + found[0][4:].upper(), form)
    return sha256(form.encode()).hexdigest()


def _fields(value: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(value)
        if "\\u" in value:
            # Half a character, which JSON can spell and UTF-8 cannot.
            fields = json.loads(json.dumps(fields, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return {}
    return fields if type(fields) is dict else {}


def _worded(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Producers of loose languages send a number where a word belongs."""
    pointer = fields.get("pointer")
    words = {name: _word(fields.get(name)) for name in _WORDS}
    place = {name: _word(pointer.get(name)) for name in _POINTER_WORDS} if type(pointer) is dict else {}
    return {**fields, **words, "pointer": {**pointer, **place} if type(pointer) is dict else {}}


def _word(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    return _number(value) if type(value) is float else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _number(value: float) -> str:
    """As Java spells it, because lakes keep keys and hashes that were made so."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not isfinite(value):
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *more = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(more) or '0'}E{len(more) + int(exponent)}"
