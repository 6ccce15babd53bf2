"""Animations: pictures of one file that follow one another, of which those are read that differ.

Only the first some hundred are looked at and the first few that differ are read: an animation shows what it has to show
at its beginning, and a small file can hold a hundred thousand.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Segment
from headwater.flow.models.language import tell_language
from headwater.flow.models.port import Said

LOOKED_AT_MAX: Final = 300
READ_MAX: Final = 20
_GRID: Final = (64, 36)  # cells across and down in which two pictures are compared, as of a video
_CELL_LEVELS: Final = 4.0
_CELLS_MIN: Final = 4
_FRAME_MS: Final = 100  # of one that does not tell how long it stands, as browsers have it


def differing(image: Any) -> Iterator[tuple[int, Any]]:
    """When each of the pictures begins that differs from the one before, and the picture, which is the image itself."""
    last, moment = None, 0
    for number in range(LOOKED_AT_MAX):
        try:
            image.seek(number)
        except EOFError:
            return
        cells = _cells(image)
        if last is None or int((np.abs(cells - last) > _CELL_LEVELS).sum()) >= _CELLS_MIN:
            last = cells
            yield moment, image
        moment += int(image.info.get("duration") or _FRAME_MS)


def _cells(image: Any) -> Any:
    from PIL import Image

    return np.asarray(image.convert("L").resize(_GRID, Image.Resampling.BOX), dtype=np.float32)


def together(read: list[tuple[int, Said]]) -> Said:
    """All pictures as one: a line that still stands on the next is said once, where it appeared."""
    segments: list[Segment] = []
    standing: set[str] = set()
    for frame_ms, said in read:
        parts = said.segments or ((Segment(said.text),) if said.text else ())
        fresh = [part for part in parts if part.text not in standing]
        segments += [Segment(part.text, replace(part.locator, frame_ms=frame_ms)) for part in fresh]
        standing = {part.text for part in parts}
    text = "\n".join(part.text for part in segments)
    scores = [said.confidence for _, said in read if said.confidence is not None]
    return Said(
        text,
        tell_language(text),
        sum(scores) / len(scores) if scores else None,
        tuple(segments),
        tokens=sum(said.tokens for _, said in read),
        attempts=sum(said.attempts for _, said in read),
    )
