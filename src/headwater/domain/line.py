"""A line of the log, read: the event that it is, or as much of one as can be told, and what it lacks.

Everything that later stages rely on is checked here, once; what a foreign producer sent besides is kept as `extra`.
Pure and quick, because every event goes through it: some microseconds a line.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring as _quoted
from math import isfinite
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from headwater.domain.event import EVENT_BYTES_MAX
from headwater.domain.event_fields import (
    CHECKSUM,
    MODALITIES,
    NAME_BYTES_MAX,
    NO_PART,
    is_brief,
    is_correction,
    is_name,
    is_whole,
    owner_of,
    read_moment,
)
from headwater.domain.event_problems import Problem, find_problems, owner_problem, parse_problem, size_problem
from headwater.domain.extra import extra_to_json
from headwater.domain.keys import chat_key
from headwater.domain.meta import meta_to_json
from headwater.domain.modality import INLINE, Modality
from headwater.errors import InvalidRequest

PAYLOAD_LETTERS: Final = 4000
DETAIL_LETTERS: Final = 1000
_WORDS: Final = ("event_id", "modality", "customer", "text", "thread", "corrects")
_POINTER_WORDS: Final = ("path", "content_type", "checksum", "version_id", "etag")
_ESCAPE: Final = re.compile(r"\\\\|\\u00..")


class Line(NamedTuple):
    """Of a line that is no event, the names that it gives, cut short, what it said, the `reason` why it is none, and
    every field that is to blame, in `detail`."""

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
    extra: str | None = None
    corrects: str | None = None
    content_hash: str | None = None
    payload: str | None = None
    reason: str | None = None
    detail: str | None = None


def read_line(value: bytes | None) -> Line:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError as error:
        return _damaged(error)
    sent = fields = _fields(text)
    if (line := _event(sent)) is None:
        fields = completed(_worded(sent))
        line = _event(fields)
    size = len(value or b"")
    if line is None or size > EVENT_BYTES_MAX:
        problems = [*([size_problem(size)] if size > EVENT_BYTES_MAX else []), *_problems_of(text, sent, fields)]
        return _unsound(None if value is None else text, fields, problems)
    if line.customer != owner_of(line.path or ""):
        # All of it is kept: who looks into it wants to know what was announced.
        detail = str(owner_problem(line.path or "", line.customer or ""))[:DETAIL_LETTERS]
        return line._replace(sound=False, payload=text[:PAYLOAD_LETTERS], reason="WRONG_CUSTOMER", detail=detail)
    return line


def unsound_line(value: bytes | None) -> Line:
    """Whatever the line says: one that has no place in the log."""
    text = (value or b"").decode(errors="replace")
    problem = Problem("line", "damaged in the log, where it does not stand at the place that it names")
    return _unsound(text, _worded(_fields(text)), [problem])


def _damaged(error: UnicodeDecodeError) -> Line:
    """What is not UTF-8 would be unreadable in every table that it got to; it is shown with signs in its place."""
    text = error.object.decode(errors="replace")
    said = f"no UTF-8: byte {error.start + 1} of {len(error.object):,} is 0x{error.object[error.start]:02x}"
    return _unsound(text, _worded(_fields(text)), [Problem("line", f"{said}; \ufffd stands for what cannot be read")])


def _unsound(text: str | None, fields: Mapping[str, Any], problems: list[Problem]) -> Line:
    pointer = fields.get("pointer")
    place = pointer.get("path") if type(pointer) is dict else None
    names = (fields.get("event_id"), fields.get("modality"), fields.get("customer"), place)
    event_id, modality, customer, path = (name and name[:NAME_BYTES_MAX] for name in names)
    moment, detail = read_moment(fields.get("occurred_at")), "; ".join(map(str, problems))[:DETAIL_LETTERS]
    payload = text and text[:PAYLOAD_LETTERS]
    return Line(False, event_id, modality, customer, path, moment, payload=payload, reason="BAD_EVENT", detail=detail)


def _problems_of(text: str, sent: Mapping[str, Any], fields: Mapping[str, Any]) -> list[Problem]:
    if sent:
        return find_problems(fields)
    try:
        return find_problems(json.loads(text))
    except (ValueError, RecursionError):
        return [parse_problem(text)]


def _event(fields: Mapping[str, Any]) -> Line | None:
    """A line that is an event: every field that is needed is there, and of its kind."""
    pointer = fields.get("pointer")
    if type(pointer) is not dict:
        return None
    event_id, modality, customer = fields.get("event_id"), fields.get("modality"), fields.get("customer")
    path, size, checksum = pointer.get("path"), pointer.get("size"), pointer.get("checksum")
    content_type, version_id, etag = pointer.get("content_type"), pointer.get("version_id"), pointer.get("etag")
    offset, text, occurred_at = pointer.get("offset"), fields.get("text"), read_moment(fields.get("occurred_at"))
    thread, (meta, has_sound_meta) = fields.get("thread"), _meta(fields.get("meta"))
    corrects, (extra, has_sound_extra) = fields.get("corrects"), _extra(fields)
    if (
        not (is_name(event_id) and is_name(customer) and is_name(path))
        or NO_PART.search(path)
        or type(modality) is not str
        or modality not in MODALITIES
        or occurred_at is None
        or not is_whole(size)
        or not (offset is None or is_whole(offset))
        or type(checksum) is not str
        or not CHECKSUM.fullmatch(checksum)
        or not (is_brief(content_type) and is_brief(version_id) and is_brief(etag))
        or (type(text) is not str if modality in INLINE else text is not None)
        or not (
            has_sound_meta
            and has_sound_extra
            and is_correction(corrects, event_id)
            and (thread is None or is_name(thread))
        )
    ):
        return None
    content_hash = _content_hash(event_id, modality, customer, path, size, checksum, text, meta, thread, corrects)
    kept = (
        offset or 0,
        size,
        content_type,
        checksum,
        version_id,
        etag,
        text,
        meta,
        thread,
        extra,
        corrects,
        content_hash,
    )
    return Line(True, event_id, modality, customer, path, occurred_at, *kept)


def _meta(value: object) -> tuple[str | None, bool]:
    """As it is kept, and whether it is any good; none at all is good."""
    try:
        return (None if value is None else meta_to_json(value)), True
    except ValueError:
        return None, False


def _extra(fields: Mapping[str, Any]) -> tuple[str | None, bool]:
    try:
        return extra_to_json(fields), True
    except ValueError:
        return None, False


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
    corrects: str | None,
) -> str:
    """What must agree when an id is seen again. Not its time, nor what was sent beside: who sends a line twice sends
    it later, and may tell when.

    Lakes keep these hashes: not a letter of the form may change. It is Spark's `to_json`.
    """
    member = "" if text is None else f',"text":{_quoted(text)}'
    member += "" if meta is None else f',"meta":{meta}'
    member += "" if thread is None else f',"thread":{_quoted(thread)}'
    member += "" if corrects is None else f',"corrects":{_quoted(corrects)}'
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


def _worded(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Producers of loose languages send a number where a word belongs, and 5.0 where a number does."""
    pointer = fields.get("pointer")
    worded = {**fields, **{name: _word(fields.get(name)) for name in _WORDS if name in fields}}
    worded["occurred_at"] = _without_point(fields.get("occurred_at"))
    if type(pointer) is dict:
        words = {name: _word(pointer.get(name)) for name in _POINTER_WORDS}
        numbers = {name: _without_point(pointer.get(name)) for name in ("size", "offset")}
        worded["pointer"] = {**pointer, **words, **numbers}
    return worded


def completed(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message needs no pointer: it has no bytes but its text, and what it has not got is made of that. It is the
    very event that `headwater put --text` makes of the same id and text. One that corrects another is about that one's
    object."""
    text, event_id, customer = fields.get("text"), fields.get("event_id"), fields.get("customer")
    modality, pointer = fields.get("modality"), fields.get("pointer")
    if type(text) is not str or (modality is None and pointer is not None) or modality not in {None, *INLINE}:
        return fields
    if not (is_name(event_id) and is_name(customer) and (pointer is None or type(pointer) is dict)):
        return {**fields, "modality": Modality.CHAT.value}
    data = text.encode()
    corrects = fields.get("corrects")
    made = {
        "path": message_path(customer, corrects if is_name(corrects) else event_id),
        "size": len(data),
        "checksum": sha256(data).hexdigest(),
    }
    given = {name: value for name, value in (pointer or {}).items() if value is not None}
    place = {**made, "content_type": "text/plain", **given}
    return {**fields, "modality": Modality.CHAT.value, "pointer": place}


def message_path(customer: str, event_id: str) -> str:
    """As `domain.keys` makes it, where that takes the names: others may send names that it does not."""
    try:
        return chat_key(customer, event_id)
    except InvalidRequest:
        pass
    owner, name = _part(customer), _part(event_id)
    if len(owner) + len(name) > NAME_BYTES_MAX - len("chat//"):
        name = f"sha256-{sha256(event_id.encode()).hexdigest()}"
    return f"{Modality.CHAT.prefix}/{owner}/{name}"


def _part(name: str) -> str:
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="-_.~@+=")


def _without_point(value: object) -> object:
    return int(value) if type(value) is float and value.is_integer() else value


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
