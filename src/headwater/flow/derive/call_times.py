"""Call times: how long one call of a model takes, as the calls of this process so far tell.

Key  a model's fingerprint
A batch asks before the first call of an object whether all of its calls fit. Half-way is too late: what was bought by
then would be lost where the object is set aside, and patience never cuts a call off.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.flow.models.port import ModelCard

# Before the first call: what services take for a picture, rather long, and what a model on this machine takes.
SECONDS_ELSEWHERE: Final = 5.0
SECONDS_HERE: Final = 1.0
_SECONDS_MIN: Final = 1e-3


class CallTimes:
    """Each call weighs as much as all before it together: a service that has become slow is known to be at once."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def seconds(self, card: ModelCard) -> float:
        return self._seconds.get(card.fingerprint, SECONDS_ELSEWHERE if is_elsewhere(card) else SECONDS_HERE)

    def note(self, card: ModelCard, seconds: float) -> None:
        self._seconds[card.fingerprint] = max(_SECONDS_MIN, (self.seconds(card) + seconds) / 2)

    @contextmanager
    def timed(self, card: ModelCard) -> Iterator[None]:
        """Around one call; one that fails has taken its time as well."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.note(card, time.monotonic() - begun)

    def calls_within(self, seconds: float, card: ModelCard) -> int:
        """At least one: an object of one call is never better off elsewhere."""
        return max(1, int(seconds / self.seconds(card)))


def is_elsewhere(card: ModelCard) -> bool:
    """Whether a call waits for another machine, so that nobody cuts it off."""
    return card.price > 0 or card.deadline_seconds > 0
