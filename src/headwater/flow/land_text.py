"""Land what people write: a message travels inline, in its event, and needs no raw object.

Reads   chat text, lines
Writes  the pointer log
Key     the customer's event id; a line's is made of its words and its number, so the same input twice is one.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from headwater.clock import Clock, utc_now
from headwater.domain.event import EVENT_BYTES_MAX, Event
from headwater.domain.keys import chat_key
from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.flow.known_files import KnownFiles
from headwater.flow.landed import Landed, LandingBatch, failed
from headwater.flow.store_file import to_millisecond
from headwater.storage.log.pointer_log import PointerLog

TEXT_BYTES_MAX: Final = 256 << 10  # an event must fit a log message; Kafka's default is 1 MB, JSON may double a text


def land_text(
    log: PointerLog,
    text: str,
    customer: str,
    *,
    at: datetime,
    event_id: str | None = None,
    known: KnownFiles | None = None,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
) -> Landed:
    """A chat message travels inline and needs no raw object; without an id it gets a fresh one."""
    event = text_event(text, customer, event_id or str(uuid.uuid4()), at, meta, thread)
    if event_id and known:
        known.check_id(event)
    log.publish([event])
    if event_id and known:
        known.note_id(event)
    return Landed(event.object_id, "stored", event)


def text_event(
    text: str,
    customer: str,
    event_id: str,
    at: datetime,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
) -> Event:
    """A message as an event, checked; publish many of them at once where there are many."""
    data = _checked_text(text)
    pointer = Pointer(chat_key(customer, event_id), len(data), "text/plain", hashlib.sha256(data).hexdigest())
    event = Event(event_id, Modality.CHAT, customer, pointer, to_millisecond(at), text, meta, thread)
    # A letter may take six in JSON; a short text fits whatever it holds.
    if len(data) > EVENT_BYTES_MAX // 8 and len(event.to_json().encode()) > EVENT_BYTES_MAX:
        raise InvalidRequest("The text holds too many control characters to travel in a log. Put it as a PDF.")
    return event


def land_lines(
    log: PointerLog,
    lines: Iterable[str | bytes | None],
    customer: str,
    *,
    event_id: str | None = None,
    id_prefix: str | None = None,
    at: datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
    clock: Clock = utc_now,
) -> Iterator[Landed]:
    """One message a line, one result for each that is not blank, as they come; a bad one costs only itself.

    Events are published in batches; None among the lines says that no more has come yet, and what waits goes out. The
    same line at the same place of the input is the same message, so the same input again adds nothing. `event_id` is
    for a single line.
    """
    batch, number = LandingBatch(log, clock), 0
    try:
        for line in lines:
            number += line is not None
            if line is not None and (line.strip() or _is_too_long(line)):
                landed = _attempt_line(line, number, customer, event_id, id_prefix, at or clock())
                batch.add(_with_known(landed, meta, thread))
            if line is None or batch.is_due():
                yield from batch.publish()
        yield from batch.publish()
    finally:
        batch.publish()  # interrupted: what was read is not lost


def _attempt_line(
    line: str | bytes, number: int, customer: str, event_id: str | None, id_prefix: str | None, at: datetime
) -> Landed:
    source = f"-:{number}"
    if _is_too_long(line):  # and perhaps not all of it, so it is judged no further
        long = f"Line {number} has more than {TEXT_BYTES_MAX} bytes, the most that a message has. Put it as a PDF."
        return failed(source, InvalidRequest(long))
    try:
        text = (line if isinstance(line, str) else line.decode()).rstrip("\r\n")
        event_id = event_id or _line_id(text, number, customer, id_prefix)
        return Landed(source, "stored", text_event(text, customer, event_id, at))
    except UnicodeDecodeError:
        return failed(source, InvalidRequest(f"Line {number} is not UTF-8. Convert the input, and put it again."))
    except HeadwaterError as error:
        return failed(source, error)


def _with_known(landed: Landed, meta: Mapping[str, Any] | None, thread: str | None) -> Landed:
    if landed.event is None or (meta is None and thread is None):
        return landed
    return replace(landed, event=replace(landed.event, meta=meta, thread=thread))


def _is_too_long(line: str | bytes) -> bool:
    """A text of fewer letters may have more bytes, and is refused as any other is."""
    return len(line) > TEXT_BYTES_MAX + 2  # of its end


def _line_id(text: str, number: int, customer: str, prefix: str | None) -> str:
    if prefix is not None:
        return f"{prefix}-{number}"
    digest = hashlib.sha256(f"{customer}\0{text}".encode(errors="surrogatepass")).hexdigest()
    return f"line-{number}-{digest[:24]}"


def _checked_text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"The text is not valid Unicode: {error.reason}. Send it as UTF-8.") from error
    if not data.strip():
        raise InvalidRequest("The text is empty. Say something, or put a file.")
    if len(data) > TEXT_BYTES_MAX:
        raise InvalidRequest(
            f"The text has {len(data)} bytes; a message has at most {TEXT_BYTES_MAX}. Put it as a PDF."
        )
    return data
