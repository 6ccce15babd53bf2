"""Waiting for another machine: who does so says it, because that time is not the object's, and may be paid for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[bool], None]

# Of the thread that works on an object: who hears that it waits, and how deep it is in calls that say so.
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_depth: ContextVar[int] = ContextVar("depth", default=0)


@contextmanager
def notify_waiting(listener: Listener) -> Iterator[None]:
    """Whatever this thread waits for in here, `listener` hears of: True when it begins, False when it ends."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def waiting() -> Iterator[None]:
    """Around a call to another machine. One within another is one."""
    listener, depth = _listener.get(), _depth.get()
    outer = listener is not None and depth == 0
    token = _depth.set(depth + 1)
    if outer:
        listener(True)  # type: ignore[misc]
    try:
        yield
    finally:
        _depth.reset(token)
        if outer:
            listener(False)  # type: ignore[misc]
