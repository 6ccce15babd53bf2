"""Waiting for another machine: who does so says it, because that time is not the object's, and may be paid for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Told = Callable[[bool], None]

# Of the thread that works on an object: who hears that it waits, and how deep it is in calls that say so.
_told: ContextVar[Told | None] = ContextVar("told", default=None)
_depth: ContextVar[int] = ContextVar("depth", default=0)


@contextmanager
def told_of_waiting(told: Told) -> Iterator[None]:
    """Whatever this thread waits for in here, `told` hears of: True when it begins, False when it ends."""
    token = _told.set(told)
    try:
        yield
    finally:
        _told.reset(token)


@contextmanager
def waiting() -> Iterator[None]:
    """Around a call to another machine. One within another is one."""
    told, depth = _told.get(), _depth.get()
    outer = told is not None and depth == 0
    token = _depth.set(depth + 1)
    if outer:
        told(True)  # type: ignore[misc]
    try:
        yield
    finally:
        _depth.reset(token)
        if outer:
            told(False)  # type: ignore[misc]
