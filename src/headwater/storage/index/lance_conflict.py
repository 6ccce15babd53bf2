"""Conflicts of LanceDB: two processes that change a table at the same moment, of which one is told to try again.

A run brings entries and organises; maintenance organises beside it. That one comes second is no outage: what must be
done is done again from the table as it is by then, and what another is doing already is left to it.
"""

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from headwater import telemetry

ATTEMPTS: Final = 12
# Merging files of a large table holds the others up for seconds.
WAIT_SECONDS_MAX: Final = 4.0
_WAIT_SECONDS: Final = 0.05
# LanceDB has no type for them. All are of a transaction that lost, of which nothing is to be seen.
_CONFLICT_MESSAGES: Final = (
    "commit conflict",
    "preempted by concurrent",
    "concurrent transaction",
    "too many concurrent writers",
)
T = TypeVar("T")


def is_conflict(error: BaseException) -> bool:
    message = str(error).lower()
    return isinstance(error, RuntimeError | OSError | ValueError) and any(
        words in message for words in _CONFLICT_MESSAGES
    )


def again_after_conflict(change: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """What `change` gives, which may be done twice; tried again, later and later, while others come first."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return change()
        except Exception as error:
            if not is_conflict(error):
                raise
            telemetry.note("index.conflict", level="debug", attempt=attempt + 1, detail=_first_line(error))
            sleep(min(WAIT_SECONDS_MAX, _WAIT_SECONDS * 2**attempt) * random.uniform(0.5, 1.0))
    return change()


def unless_conflict(change: Callable[[], None]) -> bool:
    """Whether it was done: where another process came first it is left for another time."""
    try:
        change()
    except Exception as error:
        if not is_conflict(error):
            raise
        telemetry.note("index.conflict", level="debug", skipped=True, detail=_first_line(error))
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
