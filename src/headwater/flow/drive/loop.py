"""Loop: work on a thread of its own, while a run's other stages go on."""

import threading
from collections.abc import Callable


class Loop:
    """Does `work` until it says that there was nothing to do; again when it is woken, and every so many seconds.

    What it raises ends it, and is raised again by `check` and `finish`, on the thread that waits for it.
    """

    def __init__(self, name: str, work: Callable[[], bool], *, every: float | None = None) -> None:
        self._work = work
        self._every = every
        self._woken = threading.Event()
        self._finishing = threading.Event()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._go, name=name, daemon=True)

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Do what there is to do, and end."""
        self._finishing.set()
        self._woken.set()
        self._thread.join()
        self.check()

    def stop(self, *, wait: bool = True) -> None:
        """End after the piece of work that is under way. Twice is once, and before the start is no harm."""
        self._stopped.set()
        self._woken.set()
        if wait and self._thread.is_alive():
            self._thread.join()

    def _go(self) -> None:
        try:
            while True:
                self._woken.clear()  # before looking why it was woken, else that could be missed
                finishing = self._finishing.is_set()
                while not self._stopped.is_set() and self._work():
                    pass
                if finishing or self._stopped.is_set():
                    return
                self._woken.wait(self._every)
        except BaseException as error:  # not lost with the thread
            self._failure = error
