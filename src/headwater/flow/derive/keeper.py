"""Keeper: what a step has read so far, told to the parent, so that a hang does not take it along.

What a model was asked for is told at once: nothing that may have been paid is lost. What is cheap, now and then.
"""

import time
from collections.abc import Callable
from typing import Any, Final

GAP_SECONDS: Final = 0.2
GAP_FACTOR: Final = 10  # of what telling took: it costs cheap work at most a tenth


class Keeper:
    """Called as often as a step likes, with a function that gives its answer as it would be now."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._next = 0.0

    def __call__(self, so_far: Callable[[], Any], *, cheap: bool = False) -> None:
        begun = time.monotonic()
        if cheap and begun < self._next:
            return
        self._send(so_far())
        ended = time.monotonic()
        self._next = ended + max(GAP_SECONDS, (ended - begun) * GAP_FACTOR)
