"""Lakes: a few open handles of one lake, lent to one thread at a time, because a lake's parts are not made for many."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headwater.errors import Unavailable
from headwater.lake import Lake

PATIENCE_SECONDS: Final = 30.0


class Lakes:
    """`with lakes.lent() as lake:`. The one that was given back last is lent first: what it knows is warm."""

    def __init__(self, open_lake: Callable[[], Lake], most: int) -> None:
        self._open = open_lake
        self._most = most
        self._opened = 0
        self._idle: list[Lake] = []
        self._closed = False
        self._changed = threading.Condition()

    def apart(self, most: int) -> "Lakes":
        """Handles of the same lake that those who borrow here cannot take."""
        return Lakes(self._open, most)

    @contextmanager
    def lent(self) -> Iterator[Lake]:
        lake = self._take()
        try:
            yield lake
        finally:
            self._give_back(lake)

    def close(self) -> None:
        """Those that are lent out are closed when they come back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
        for lake in idle:
            lake.close()

    def _take(self) -> Lake:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not self._idle and self._opened >= self._most:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise Unavailable("Too many ask at once. Ask again in a moment.", 1.0)
            if self._idle:
                return self._idle.pop()
            self._opened += 1
        try:
            return self._open()
        except BaseException:
            with self._changed:
                self._opened -= 1
                self._changed.notify()
            raise

    def _give_back(self, lake: Lake) -> None:
        with self._changed:
            if not self._closed:
                self._idle.append(lake)
                self._changed.notify()
                return
        lake.close()
