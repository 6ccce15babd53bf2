"""Waiting for a sign, and never for a time."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 90  # on a busy machine; a sign that comes is seen at once


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
