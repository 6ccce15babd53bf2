"""Strips: a long picture, such as a page that was scrolled, is read piece by piece, none of them made smaller.

Made smaller as a whole, its letters would be a few pixels high, and a reader would see other ones in them. It is cut
where a row is quiet, so that no line of text is cut through.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from headwater.domain.locator import Segment
from headwater.flow.models.port import Picture, Said

SIDE_MAX: Final = 2_000  # pixels; the reader makes larger pictures smaller anyhow
LONG: Final = 2.5  # sides apart; of what is less long, making it smaller leaves the letters large enough
SHORT_MIN: Final = 64  # a strip of fewer pixels is a ruler or a gradient
STRIPS_MAX: Final = 20  # 40,000 pixels: a strip takes about a second
CUT_PIXELS: Final = 400  # in the last so many of a strip, the quietest row is where it is cut


def is_long(width: int, height: int) -> bool:
    short, long = sorted((width, height))
    return long > SIDE_MAX and short >= SHORT_MIN and long > LONG * short


def largest(width: int, height: int, *, in_strips: bool) -> tuple[int, int]:
    """What a picture is to be made to fit into before it is read."""
    if not in_strips or not is_long(width, height):
        return SIDE_MAX, SIDE_MAX
    longest = SIDE_MAX * STRIPS_MAX
    return (SIDE_MAX, longest) if height > width else (longest, SIDE_MAX)


def read_in_strips(picture: Picture, read: Callable[[Picture], Said]) -> Said:
    """A picture of no side above `SIDE_MAX` is read as it is."""
    is_tall = picture.shape[0] >= picture.shape[1]
    cuts = _cuts(picture if is_tall else picture.transpose(1, 0, 2))
    if len(cuts) == 2:
        return read(picture)
    said = []
    for begin, end in pairwise(cuts):
        strip = picture[begin:end] if is_tall else picture[:, begin:end]
        said.append(_moved(read(np.ascontiguousarray(strip)), *((0, begin) if is_tall else (begin, 0))))
    return _together(said)


def _cuts(tall: Picture) -> list[int]:
    """Where strips begin, and the end."""
    cuts = [0]
    while len(tall) - cuts[-1] > SIDE_MAX:
        first = cuts[-1] + SIDE_MAX - CUT_PIXELS
        rows = tall[first : first + CUT_PIXELS].astype(np.int16)
        # How much each row changes from left to right, with the rows around it: the middle of a gap is quietest.
        change = np.abs(np.diff(rows, axis=1)).sum(axis=(1, 2)).astype(np.float64)
        cuts.append(first + int(np.convolve(change, np.ones(9), "same")[4:-4].argmin()) + 4)
    return [*cuts, len(tall)]


def _moved(said: Said, right: int, down: int) -> Said:
    """As it lies in the whole picture."""

    def moved(part: Segment) -> Segment:
        if part.locator.box is None:
            return part
        left, top, beside, below = part.locator.box
        return Segment(part.text, replace(part.locator, box=(left + right, top + down, beside + right, below + down)))

    return replace(said, segments=tuple(moved(part) for part in said.segments))


def _together(said: Sequence[Said]) -> Said:
    read = [one for one in said if one.text]
    sure = [(one.confidence, len(one.text)) for one in read if one.confidence is not None]
    letters = sum(count for _, count in sure)
    return Said(
        "\n".join(one.text for one in read),
        max(read, key=lambda one: len(one.text)).language if read else None,
        sum(confidence * count for confidence, count in sure) / letters if letters else None,
        tuple(part for one in read for part in one.segments),
        tokens=sum(one.tokens for one in said),
        attempts=sum(one.attempts for one in said),
    )
