"""Lakes: a few open handles of one lake, lent to one thread at a time, because a lake's parts are not made for many.

A thread that waits for a handle is a thread less for those that have one, so whoever can waits in `place` first, which
takes no thread.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from headwater.errors import Unavailable
from headwater.lake import Lake

PATIENCE_SECONDS: Final = 30.0


class Lakes:
    """`with lakes.lent() as lake:`. The one that was given back last is lent first: what it knows is warm."""

    def __init__(self, open_lake: Callable[[], Lake], most: int) -> None:
        self._open = open_lake
        self._places = asyncio.Semaphore(most)
        self._most = most
        self._opened = 0
        self._idle: list[Lake] = []
        self._closed = False
        self._waiting: deque[Future[Lake | None]] = deque()
        self._lock = threading.Lock()

    def apart(self, most: int) -> "Lakes":
        """Handles of the same lake that those who borrow here cannot take."""
        return Lakes(self._open, most)

    @asynccontextmanager
    async def place(self) -> AsyncIterator["Borrowed"]:
        """A lake for who runs in a thread of its own later; it is taken when something is first asked of it."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._places.acquire()
        except TimeoutError as error:
            raise _busy() from error
        borrowed = Borrowed(self)
        try:
            yield borrowed
        finally:
            borrowed._give_back()
            self._places.release()

    @contextmanager
    def lent(self) -> Iterator[Lake]:
        lake = self._take()
        try:
            yield lake
        finally:
            self._give_back(lake)

    def close(self) -> None:
        """Those that are lent out are closed when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for lake in idle:
            lake.close()

    def _take(self) -> Lake:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self._lock:
                if self._idle:
                    return self._idle.pop()
                if self._opened < self._most:
                    self._opened += 1
                    break
                mine: Future[Lake | None] = Future()
                self._waiting.append(mine)
            if (lake := self._wait(mine, deadline)) is not None:
                return lake
        try:
            return self._open()
        except BaseException:
            with self._lock:
                self._opened -= 1
                if self._waiting:
                    self._waiting.popleft().set_result(None)
            raise

    def _wait(self, mine: "Future[Lake | None]", deadline: float) -> Lake | None:
        """The lake that somebody gave back; None where one may be opened."""
        wait((mine,), max(0.0, deadline - time.monotonic()))
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                raise _busy()
        return mine.result()

    def _give_back(self, lake: Lake) -> None:
        """To who has waited longest; whoever has just had one stands behind them."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set_result(lake)
                return
            if not self._closed:
                self._idle.append(lake)
                return
        lake.close()


class Borrowed:
    """A lake from the moment when something is first asked of it; one thread at a time asks."""

    def __init__(self, lakes: Lakes) -> None:
        self._lakes = lakes
        self._lake: Lake | None = None

    def __getattr__(self, name: str) -> Any:
        if self._lake is None:
            self._lake = self._lakes._take()
        return getattr(self._lake, name)

    def _give_back(self) -> None:
        if self._lake is not None:
            self._lakes._give_back(self._lake)
            self._lake = None


def _busy() -> Unavailable:
    return Unavailable("Too many ask at once. Ask again in a moment.", 1.0)
