"""Chunks: text cut to the length that an embedder can place, each with its locator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.domain.locator import Locator

CHUNK_CHARACTERS: Final = 400  # a few sentences: long enough to mean something, short enough to point at
_ONE_OF: Final = ("page", "frame_ms", "speaker", "section")  # a chunk is of one of each


@dataclass(frozen=True, slots=True)
class Chunk:
    text: str
    locator: Locator


def chunks_of(text: str, segments: Sequence[Mapping[str, Any]]) -> Iterator[Chunk]:
    """Neighbouring segments of one speaker joined up to the limit; a text without segments is cut at blanks."""
    pieces = [(segment["text"], segment) for segment in segments] or [(text, {})]
    group: list[tuple[str, Mapping[str, Any]]] = []
    length = 0
    for piece, place in ((cut, place) for whole, place in pieces for cut in _cut(whole)):
        apart = bool(group) and any(group[-1][1].get(name) != place.get(name) for name in _ONE_OF)
        if group and (apart or length + len(piece) > CHUNK_CHARACTERS):
            yield _join(group)
            group, length = [], 0
        group.append((piece, place))
        length += len(piece) + 1
    if group:
        yield _join(group)


def _cut(text: str) -> Iterator[str]:
    rest = " ".join(text.split())
    while len(rest) > CHUNK_CHARACTERS:
        blank = rest.rfind(" ", 0, CHUNK_CHARACTERS)
        at = blank if blank > 0 else CHUNK_CHARACTERS
        yield rest[:at]
        rest = rest[at:].lstrip()
    if rest:
        yield rest


def _join(group: Sequence[tuple[str, Mapping[str, Any]]]) -> Chunk:
    places = [place for _, place in group]
    boxes = [place["box"] for place in places if place.get("box")]
    box = None
    if boxes:
        left, top, right, bottom = zip(*boxes, strict=True)
        box = (min(left), min(top), max(right), max(bottom))
    starts = [place["start_ms"] for place in places if place.get("start_ms") is not None]
    ends = [place["end_ms"] for place in places if place.get("end_ms") is not None]
    locator = Locator(
        start_ms=min(starts, default=None),
        end_ms=max(ends, default=None),
        page=places[0].get("page"),
        frame_ms=places[0].get("frame_ms"),
        box=box,
        speaker=places[0].get("speaker"),
        section=places[0].get("section"),
    )
    return Chunk(" ".join(text for text, _ in group), locator)
