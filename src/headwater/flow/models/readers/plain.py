"""Plain text: its letters, and stretches of its lines.

A byte order mark or valid UTF-8 says how it is encoded; else charset-normalizer guesses by the beginning.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final

from headwater.domain.chunks import CHUNK_CHARACTERS
from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault

TEXT_BYTES_MAX: Final = 20_000_000  # about as many letters as an answer may have
_GUESS_BYTES: Final = 1 << 16
# Those that people still have. Of rarer ones too little is known to tell them from these by a few letters.
_GUESSED: Final = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "shift_jis", "euc_jp", "gb18030",
    "big5", "euc_kr",
)  # fmt: skip
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffe\uffff]")


def count_pages(file: BinaryIO) -> int | None:
    read_text(file)
    return None


def charset(file: BinaryIO) -> str:
    return charset_of(read_bytes(file))


def segments(file: BinaryIO) -> Iterator[Segment]:
    lines = read_text(file).splitlines()
    return grouped(enumerate(lines, 1), lambda first, last: Locator(section=f"lines {first}–{last}"))


def grouped(pieces: Iterable[tuple[int, str]], place: Callable[[int, int], Locator]) -> Iterator[Segment]:
    """Numbered lines or rows, together as long as a chunk holds them; one that is empty may end a stretch early."""
    held: list[tuple[int, str]] = []
    letters = 0
    for number, piece in pieces:
        text = tidy(piece)
        full = letters + len(text) > CHUNK_CHARACTERS if text else letters > CHUNK_CHARACTERS // 2
        if held and full:
            yield _together(held, place)
            held, letters = [], 0
        if text:
            held.append((number, text))
            letters += len(text) + 1
    if held:
        yield _together(held, place)


def _together(held: list[tuple[int, str]], place: Callable[[int, int], Locator]) -> Segment:
    return Segment("\n".join(text for _, text in held), place(held[0][0], held[-1][0]))


def tidy(text: str) -> str:
    """Without control characters, doubled blanks and halves of characters."""
    plain = _CONTROLS.sub("", text).encode(errors="replace").decode()
    return re.sub(r"[^\S\n]+", " ", plain).strip()


def read_text(file: BinaryIO) -> str:
    data = read_bytes(file)
    return decode(data, charset_of(data))


def read_bytes(file: BinaryIO) -> bytes:
    data = file.read(TEXT_BYTES_MAX + 1)
    if len(data) > TEXT_BYTES_MAX:
        raise DataFault("TOO_LARGE", f"It has more than {TEXT_BYTES_MAX:,} bytes of text. Split it.")
    if not data.strip():
        raise DataFault("EMPTY", "There is nothing in it but white space.")
    return data


def decode(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset)
    except (UnicodeDecodeError, LookupError) as error:
        raise DataFault("UNREADABLE", f"It begins as {charset} and is not: {error}. Save it as UTF-8.") from error


def charset_of(data: bytes) -> str:
    """UTF-8 without a word about it; another one by name. DataFault where it is no text at all."""
    for mark, charset in _MARKS:
        if data.startswith(mark):
            return charset
    if b"\0" in data:
        raise DataFault("UNREADABLE", "It holds NUL bytes: it is no text. Save it as UTF-8.")
    try:
        data.decode()
        return "utf-8"
    except UnicodeDecodeError:
        return _guessed(data)


def _guessed(data: bytes) -> str:
    from charset_normalizer import from_bytes

    found = from_bytes(data[:_GUESS_BYTES], cp_isolation=list(_GUESSED)).best()
    if found is None:
        raise DataFault("UNREADABLE", "It is no text in any encoding that is known. Save it as UTF-8.")
    # Of neighbours that read the same, the one that most people have.
    return _GUESSED[0] if str(found) == data[:_GUESS_BYTES].decode(_GUESSED[0], "replace") else found.encoding
