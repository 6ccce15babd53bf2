"""Subtitles, SubRip and WebVTT: what is said, with its times, and who says it where that is written."""

import re
from collections.abc import Iterator
from html import unescape
from typing import BinaryIO, Final

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault
from headwater.flow.models.answers import SPEAKER_LETTERS
from headwater.flow.models.readers.plain import charset, read_text, tidy

__all__ = ["charset", "count_pages", "segments"]

_TIME: Final = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES: Final = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_TAG: Final = re.compile(r"<[^<>]{0,400}>|\{\\[^{}]{0,100}\}")
_VOICE: Final = re.compile(r"<v(?:\.[^\s<>]{0,100})?[ \t]+([^<>]{1,200})>")


def count_pages(file: BinaryIO) -> int | None:
    if not any(_TIMES.match(line) for line in read_text(file).splitlines()):
        raise DataFault("UNREADABLE", "There is no line of times in it, such as 00:01:02,500 --> 00:01:04,000.")
    return None


def segments(file: BinaryIO) -> Iterator[Segment]:
    """Lines that follow their times, up to an empty one; numbers, notes and styles have none."""
    times, held = None, list[str]()
    for line in [*read_text(file).splitlines(), ""]:
        if found := _TIMES.match(line):
            yield from _said(times, held)
            times, held = found, []
        elif not line.strip():
            yield from _said(times, held)
            times, held = None, []
        elif times:
            held.append(line)


def _said(times: re.Match[str] | None, lines: list[str]) -> Iterator[Segment]:
    whole = "\n".join(lines)
    text = tidy(unescape(_TAG.sub("", whole)))
    if times and text:
        start, end = _milliseconds(times.groups()[:4]), _milliseconds(times.groups()[4:])
        voice = _VOICE.search(whole)
        speaker = tidy(unescape(voice[1]))[:SPEAKER_LETTERS] or None if voice else None
        yield Segment(text, Locator(start_ms=start, end_ms=max(start, end), speaker=speaker))


def _milliseconds(parts: tuple[str | None, ...]) -> int:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(fraction.ljust(3, "0"))
