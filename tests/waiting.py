"""Waiting for a sign, and never for a time. No other test sleeps: test_waiting.py says who may, and why."""

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE_SECONDS = 180  # on a busy machine; a sign that comes is seen at once
T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    process: "subprocess.Popen[Any] | None" = None,
    *,
    seconds: float = PATIENCE_SECONDS,
    every: float = 0.05,
) -> T:
    """What the condition found. Of a process that should live until then, what it said where it does not."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert process is None or process.poll() is None, f"it ended before that: {process.communicate()}"
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(every)
    return found


def let_pass(seconds: float, why: str) -> None:
    """Where time itself is what is waited for: somebody else's clock, or a moment in which nothing may happen. Too long
    is never wrong, and `why` says that too short is not either."""
    assert why
    time.sleep(seconds)
