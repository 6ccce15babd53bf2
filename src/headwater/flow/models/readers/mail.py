"""E-mail by Python's own parser: who wrote to whom, when and about what; what they wrote; what was attached, by name.

The plain text is taken where there is one, else the HTML. Attachments are objects of their own: `flow/unpack`.
"""

from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from typing import BinaryIO, Final

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault
from headwater.flow.models.readers.html import html_segments
from headwater.flow.models.readers.plain import charset_of, decode, tidy

MAIL_BYTES_MAX: Final = 64 << 20  # with its attachments, of which none is read here
PARTS_MAX: Final = 1_000
_SHOWN: Final = ("From", "To", "Cc", "Subject", "Date")
_TELLING: Final = (*_SHOWN, "Received", "Message-ID", "MIME-Version", "Return-Path")
_LOCKED: Final = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")


def count_pages(file: BinaryIO) -> int | None:
    parse_mail(file)
    return None


def segments(file: BinaryIO) -> Iterator[Segment]:
    message = parse_mail(file)
    headers = "\n".join(f"{name}: {text}" for name in _SHOWN if (text := header(message, name)))
    if headers:
        yield Segment(headers, Locator(section="headers"))
    yield from _body(message)
    if names := "\n".join(filter(None, (tidy(part.get_filename() or "") for part in attachments(message)))):
        yield Segment(names, Locator(section="attachments"))


def parse_mail(file: BinaryIO) -> EmailMessage:
    data = file.read(MAIL_BYTES_MAX + 1)
    if len(data) > MAIL_BYTES_MAX:
        raise DataFault("TOO_LARGE", f"It has more than {MAIL_BYTES_MAX >> 20} MB.")
    try:
        message = message_from_bytes(data, policy=policy.default)
        parts = sum(1 for _ in message.walk())
    except RecursionError as error:
        raise DataFault("UNREADABLE", "Its parts stand in one another without end.") from error
    if parts > PARTS_MAX:
        raise DataFault("TOO_LARGE", f"It has {parts:,} parts; at most {PARTS_MAX:,} are looked at.")
    if not any(name in message for name in _TELLING):
        raise DataFault("UNREADABLE", "It has none of the headers of an e-mail.")
    if message.get_content_type() in _LOCKED and "signed" not in str(message.get("Content-Type", "")):
        raise DataFault("ENCRYPTED", "The message is encrypted.")
    return message


def attachments(message: MIMEPart) -> Iterator[MIMEPart]:
    """What has a name, wherever it stands; of a message in the message, the whole."""
    for part in message.iter_parts() if message.is_multipart() else ():
        if part.get_filename() or part.get_content_type() == "message/rfc822":
            yield part
        elif part.is_multipart():
            yield from attachments(part)


def attached(message: EmailMessage) -> Iterator[tuple[str, bytes]]:
    """Their names, as they are, and their bytes; one that cannot be decoded has what could be of it."""
    for part in attachments(message):
        inner = part.get_payload(0) if part.get_content_type() == "message/rfc822" and part.is_multipart() else None
        if isinstance(inner, EmailMessage):
            name = part.get_filename() or f"{header(inner, 'Subject')[:80] or 'message'}.eml"
            yield name, inner.as_bytes()
        elif isinstance(data := part.get_payload(decode=True), bytes):
            yield part.get_filename() or "", data


def header(message: EmailMessage, name: str) -> str:
    """Whatever is wrong with it: a header that cannot be read tells nothing."""
    try:
        return tidy(str(message.get(name, "")))[:2_000]
    except (ValueError, LookupError, AttributeError, TypeError, IndexError):
        return ""


def _body(message: EmailMessage) -> Iterator[Segment]:
    found = message.get_body(("plain", "html"))
    if found is None:
        return
    text = _text(found)
    if found.get_content_type() == "text/html":
        yield from (Segment(part.text, Locator(section="body")) for part in html_segments(text))
        return
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        if plain := tidy(paragraph):
            yield Segment(plain, Locator(section="body"))


def _text(part: MIMEPart) -> str:
    try:
        return str(part.get_content())
    except (LookupError, ValueError, AttributeError):  # a charset that nobody knows
        data = part.get_payload(decode=True)
        return decode(data, charset_of(data)) if isinstance(data, bytes) and data else ""
