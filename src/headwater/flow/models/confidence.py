"""How sure a speech model was, between 0 and 1, from the log-probabilities that Whisper gives with its segments."""

import math
from collections.abc import Sequence
from typing import Final

SHORTEST_SECONDS: Final = 0.001


def confidence_of(logprobs: Sequence[tuple[float, float]]) -> float | None:
    """From pairs of a log-probability and how many seconds it holds for; None where there are none."""
    held = [(value, max(SHORTEST_SECONDS, seconds)) for value, seconds in logprobs]
    total = sum(seconds for _, seconds in held)
    return min(1.0, math.exp(sum(value * seconds for value, seconds in held) / total)) if held else None
