"""Progress, on stderr: bars on a terminal, a line for each commit elsewhere; and stopping on a signal."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bars:
    """A bar for each thing that is counted; a total of None is unknown, and only the count is shown.

    `lines` is for counts that come with commits: without a terminal each is a line, as of a log.
    """

    def __init__(self, totals: Mapping[str, int | None], *, lines: bool = True) -> None:
        self._totals = totals
        self._lines = lines
        self._done: dict[str, int] = {}
        self._tasks: dict[str, TaskID] = {}
        self._begun = time.monotonic()
        self._lock = threading.Lock()  # stages count from threads of their own
        self._progress: Progress | None = _terminal_progress() if sys.stderr.isatty() else None

    def __enter__(self) -> "Bars":
        if self._progress is not None:
            self._progress.start()
            for name, total in self._totals.items():
                self._tasks[name] = self._progress.add_task(name, total=total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is None:
            return
        for name, task in self._tasks.items():
            # A total that nobody knew is what came of it; otherwise the bar would go on pulsing in the scroll-back.
            if self._totals.get(name) is None:
                self._progress.update(task, total=self._done.get(name, 0))
        self._progress.stop()

    def advance(self, name: str, count: int) -> None:
        with self._lock:
            self._advance(name, count)

    def _advance(self, name: str, count: int) -> None:
        self._done[name] = self._done.get(name, 0) + count
        if self._progress is None:
            if count and self._lines:
                print(f"{name} +{count:,} ({self._done[name]:,}{self._left(name)})", file=sys.stderr, flush=True)
            return
        if not count:
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=self._totals.get(name))
        self._progress.advance(self._tasks[name], count)

    def _left(self, name: str) -> str:
        """Of how many, and how long the rest takes if it goes as it went."""
        done, total = self._done[name], self._totals.get(name)
        if not total or done >= total:
            return ""
        seconds = (time.monotonic() - self._begun) * (total - done) / done
        wait = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return f" of {total:,}, about {wait} left"


def _terminal_progress() -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from headwater.cli.output import console

    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description:<10}"), BarColumn(30), MofNCompleteColumn(), *times)
    return Progress(*columns, console=console(stderr=True), refresh_per_second=4)


class RowBar:
    """Rows as they are taken: how many, how quickly and how long yet, on a terminal; elsewhere nothing."""

    def __init__(self) -> None:
        self._progress: Progress | None = _row_progress() if sys.stderr.isatty() else None
        self._task: TaskID | None = None
        self.rows = 0
        self._begun = time.monotonic()

    def __enter__(self) -> "RowBar":
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task("import", total=None, rows="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, rows: int, place: float | None) -> None:
        """`place` is how far the source is read, 0 to 1, where that is known."""
        self.rows += rows
        if self._progress is not None and self._task is not None:
            rate = self.rows / max(1e-3, time.monotonic() - self._begun)
            told = f"{self.rows:,} rows, {rate:,.0f} rows/s"
            self._progress.update(self._task, total=place and 1.0, completed=place or 0.0, rows=told)


def _row_progress() -> "Progress":
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from headwater.cli.output import console

    columns = (TextColumn("{task.description:<10}"), BarColumn(30), TextColumn("{task.fields[rows]}"))
    return Progress(*columns, TimeRemainingColumn(), console=console(stderr=True), refresh_per_second=4)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """The first SIGINT or SIGTERM sets the event; the second ends the process at once."""
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            # The JVM goes with us: its stdin is a pipe that only this process holds.
            os._exit(128 + number)
        stop.set()
        os.write(2, b"\nStopping after the work under way. Once more stops at once; nothing is lost either way.\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
