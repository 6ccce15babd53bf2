"""Which reader reads which content type: a module of this package, with two functions.

`count_pages(file)` is quick and refuses what is no such file; None where the kind has no pages. `segments(file)` gives
the text, piece by piece, with its place. Both raise DataFault; neither runs, fetches or follows anything it reads.
Readers of bare text have a third, `charset(file)`.
"""

import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final, Protocol

from headwater.domain.locator import Segment

_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
READERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "text/plain": "plain",
        "text/markdown": "markdown",
        "text/html": "html",
        "message/rfc822": "mail",
        f"{_OFFICE}.wordprocessingml.document": "word",
        f"{_OFFICE}.spreadsheetml.sheet": "sheets",
        f"{_OFFICE}.presentationml.presentation": "slides",
        "application/x-subrip": "subtitles",
        "text/vtt": "subtitles",
    }
)


class Reader(Protocol):
    __name__: str

    def count_pages(self, file: BinaryIO) -> int | None: ...

    def segments(self, file: BinaryIO) -> Iterator[Segment]: ...


def reader_of(content_type: str) -> Reader | None:
    """By the type alone, without the parameters that mail and the web write behind it."""
    name = READERS.get(content_type.partition(";")[0].strip().lower())
    if name is None:
        return None
    reader: Reader = importlib.import_module(f"headwater.flow.models.readers.{name}")
    return reader


def describe_reading(reader: Reader, file: BinaryIO) -> str:
    """What was read, for a person: the reader, and the charset where it is not UTF-8."""
    name = reader.__name__.rpartition(".")[2]
    charset = getattr(reader, "charset", None)
    found = charset(file) if charset else "utf-8"
    return name if found.startswith("utf-8") else f"{name} {found}"[:64]
