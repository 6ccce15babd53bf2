"""PowerPoint by its XML: the text of each slide, and what its notes say. A slide is a page."""

import zipfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from headwater.domain.locator import Locator, Segment
from headwater.flow.models.readers.package import Attributes, main_part, opened, read_part, related
from headwater.flow.models.readers.plain import tidy

USUAL: Final = "ppt/presentation.xml"
_FALLBACK: Final = "Fallback"


def count_pages(file: BinaryIO) -> int | None:
    with opened(file) as package:
        return len(_slides(package))


def segments(file: BinaryIO) -> Iterator[Segment]:
    with opened(file) as package:
        for page, part in enumerate(_slides(package), 1):
            yield from (Segment(text, Locator(page=page)) for text in _paragraphs(package, part))
            for kind, notes in related(package, part).values():
                if kind == "notesSlide" and notes in package.namelist():
                    place = Locator(page=page, section="notes")
                    yield from (Segment(text, place) for text in _paragraphs(package, notes))


def _slides(package: zipfile.ZipFile) -> list[str]:
    """Their parts, in the order in which they are shown."""
    part = main_part(package, USUAL)
    ids: list[str] = []

    def begin(element: str, given: Attributes) -> None:
        if element == "sldId":
            ids.append(given.get("r:id", ""))

    for _ in read_part(package, part, begin):
        pass
    known, there = related(package, part), set(package.namelist())
    return [known[each][1] for each in ids if each in known and known[each][1] in there]


def _paragraphs(package: zipfile.ZipFile, part: str) -> Iterator[str]:
    held: list[str] = []
    done: list[str] = []
    takes, skipping = False, 0

    def begin(element: str, given: Attributes) -> None:
        nonlocal takes, skipping
        if skipping or element == _FALLBACK:
            skipping += 1
        elif element == "t":
            takes = True
        elif element == "br":
            held.append("\n")

    def end(element: str) -> None:
        nonlocal takes, skipping
        if skipping:
            skipping -= 1
        elif element == "t":
            takes = False
        elif element == "p":
            done.append(tidy("".join(held)))
            held.clear()

    for _ in read_part(package, part, begin, end, lambda text: held.append(text) if takes else None):
        yield from filter(None, done)
        done.clear()
