"""Word by its XML: paragraphs below their headings, tables and boxes in their order, notes and comments at the end.

Deleted and hidden text, field codes and macros are not told.
"""

import re
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from headwater.domain.locator import Locator, Segment
from headwater.flow.models.readers.headings import Headings
from headwater.flow.models.readers.package import Attributes, is_on, main_part, opened, read_part, related
from headwater.flow.models.readers.plain import tidy

USUAL: Final = "word/document.xml"
_BESIDE: Final = ("footnotes", "endnotes", "comments")
_PASSED_OVER: Final = frozenset({"Fallback", "del", "moveFrom"})  # said a second time, or not any more
_SIGNS: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def count_pages(file: BinaryIO) -> int | None:
    """Where a page ends is decided by who prints it."""
    with opened(file) as package:
        main_part(package, USUAL)
    return None


def segments(file: BinaryIO) -> Iterator[Segment]:
    with opened(file) as package:
        part = main_part(package, USUAL)
        beside = {kind: name for kind, name in related(package, part).values() if name in package.namelist()}
        levels = _heading_levels(package, beside["styles"]) if "styles" in beside else {}
        headings = Headings()
        for level, text in _paragraphs(package, part, levels):
            if level:
                headings.enter(level, text)
            yield Segment(text, Locator(section=headings.path()))
        for kind in _BESIDE:
            if kind in beside:
                yield from (Segment(text, Locator(section=kind)) for _, text in _paragraphs(package, beside[kind], {}))


def _heading_levels(package: zipfile.ZipFile, part: str) -> dict[str, int]:
    """Of each style that is a heading's; its name is English in every language."""
    levels: dict[str, int] = {}
    style = ""

    def begin(element: str, given: Attributes) -> None:
        nonlocal style
        if element == "style":
            style = given.get("styleId", "")
        elif element == "name" and (found := re.fullmatch(r"heading ([1-9])", given.get("val", "").lower())):
            levels[style] = int(found[1])
        elif element == "outlineLvl" and given.get("val", "") in "012345678":
            levels.setdefault(style, int(given.get("val") or 0) + 1)

    for _ in read_part(package, part, begin):
        pass
    return levels


def _paragraphs(package: zipfile.ZipFile, part: str, levels: dict[str, int]) -> Iterator[tuple[int, str]]:
    reading = _Paragraphs(levels)
    for _ in read_part(package, part, reading.begin, reading.end, reading.text):
        yield from reading.done
        reading.done.clear()


class _Paragraphs:
    """A text box stands in a paragraph and has its own."""

    def __init__(self, levels: dict[str, int]) -> None:
        self.done: list[tuple[int, str]] = []
        self._levels = levels
        self._open: list[tuple[list[str], list[int]]] = []  # of each paragraph its text and its level
        self._skipping = 0
        self._takes = self._hidden = False

    def begin(self, element: str, given: Attributes) -> None:
        if self._skipping or element in _PASSED_OVER:
            self._skipping += 1
        elif element == "p":
            self._open.append(([], []))
        elif self._open:
            self._within(element, given)

    def _within(self, element: str, given: Attributes) -> None:
        held, level = self._open[-1]
        if element == "pStyle" and given.get("val", "") in self._levels:
            level.append(self._levels[given["val"]])
        elif element == "r":
            self._hidden = False
        elif element == "vanish":
            self._hidden = is_on(given)
        elif element == "t":
            self._takes = not self._hidden
        elif element in _SIGNS:
            held.append(_SIGNS[element])

    def end(self, element: str) -> None:
        if self._skipping:
            self._skipping -= 1
        elif element == "t":
            self._takes = False
        elif element == "p" and self._open:
            held, level = self._open.pop()
            self._hidden = False
            if text := tidy("".join(held)):
                self.done.append((level[-1] if level else 0, text))

    def text(self, text: str) -> None:
        if self._takes and self._open:
            self._open[-1][0].append(text)
