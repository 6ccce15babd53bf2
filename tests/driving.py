"""Runs as tests drive them: a stream that goes on until a sign was seen, and the part that reads the log, alone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lakes import parts_of
from waiting import PATIENCE_SECONDS, wait_until

from headwater.lake import Lake
from headwater.upkeep.work import new_run, recorded


@contextmanager
def streaming(lake: Lake) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Gives a way to wait for something while the stream goes on."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: lake.run(once=False, stop=stop))
    thread.start()

    def wait(condition: Callable[[], Any]) -> None:
        wait_until(lambda: not thread.is_alive() or condition())
        assert thread.is_alive(), "the stream has ended"

    try:
        yield wait
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def read_log(lake: Lake) -> dict[str, int]:
    """What a run does first: the log comes into bronze."""
    with recorded(parts_of(lake), "run") as entry:
        run = new_run(parts_of(lake), None, entry, None)
        run.begin()
        run.intakes[0].drain()
        run.intakes[0].stop()
    return entry.done
