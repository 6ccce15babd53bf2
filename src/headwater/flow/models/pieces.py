"""Long sound in pieces, cut where it is quietest: what a service takes in one request, or a model in one memory."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from headwater.flow.models.port import SAMPLE_RATE, Samples

SEARCH_SAMPLES: Final = 10 * SAMPLE_RATE  # a cut is looked for in the last ten seconds of a piece
QUIET_SAMPLES: Final = SAMPLE_RATE // 5
PIECE_SECONDS_MIN: Final = 30


def pieces(blocks: Iterator[Samples], seconds: float) -> Iterator[tuple[int, Iterator[Samples]]]:
    """Each piece as its start in milliseconds and its blocks, which must be heard before the next piece is asked for.

    Only the last seconds are held back, so that a piece of hours takes the memory of a moment.
    """
    sound = _Sound(blocks)
    longest = int(max(seconds, PIECE_SECONDS_MIN) * SAMPLE_RATE)
    while sound.has_more():
        yield sound.heard * 1000 // SAMPLE_RATE, sound.piece(longest)


class _Sound:
    def __init__(self, blocks: Iterator[Samples]) -> None:
        self._blocks = blocks
        self._first: Samples | None = None
        self.heard = 0

    def has_more(self) -> bool:
        if self._first is None:
            self._first = next((block for block in self._blocks if len(block)), None)
        return self._first is not None

    def piece(self, longest: int) -> Iterator[Samples]:
        held: list[Samples] = []
        taken, waiting = 0, 0
        while self.has_more():
            block, self._first = self._first, None
            assert block is not None
            held.append(block)
            waiting += len(block)
            if taken + waiting > longest:
                joined = np.concatenate(held)
                cut = _quietest(joined[: longest - taken])
                self._first = joined[cut:]
                yield self._counted(joined[:cut])
                return
            while waiting - len(held[0]) >= SEARCH_SAMPLES:
                taken, waiting = taken + len(held[0]), waiting - len(held[0])
                yield self._counted(held.pop(0))
        yield from map(self._counted, held)

    def _counted(self, block: Samples) -> Samples:
        self.heard += len(block)
        return block


def _quietest(samples: Samples) -> int:
    start = len(samples) - SEARCH_SAMPLES
    parts = samples[start:].astype(np.float64).reshape(-1, QUIET_SAMPLES)
    return start + int(np.square(parts).sum(axis=1).argmin()) * QUIET_SAMPLES + QUIET_SAMPLES // 2
