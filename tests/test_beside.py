"""A thread of work beside the others: woken, finished, stopped, and heard when it fails."""

import threading
import time

import pytest

from headwater.flow.beside import Beside

PATIENCE_SECONDS = 30


class Pile:
    """Pieces of work, taken one by one."""

    def __init__(self, pieces: int = 0) -> None:
        self.left = pieces
        self.done = 0

    def take(self) -> bool:
        if not self.left:
            return False
        self.left -= 1
        self.done += 1
        return True


def until(pile: Pile, done: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while pile.done < done:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_work_is_done_until_there_is_none_and_again_when_woken() -> None:
    pile = Pile(3)
    beside = Beside("pile", pile.take)
    beside.start()
    until(pile, 3)
    pile.left = 2
    time.sleep(0.05)
    assert pile.done == 3, "nobody woke it"
    beside.wake()
    until(pile, 5)
    beside.stop()
    beside.stop()


def test_it_looks_by_itself_every_so_often() -> None:
    pile = Pile()
    beside = Beside("pile", pile.take, every=0.01)
    beside.start()
    pile.left = 1
    until(pile, 1)
    beside.stop()


def test_finishing_leaves_nothing_undone_whenever_it_is_asked_for() -> None:
    for _ in range(200):
        pile = Pile()
        beside = Beside("pile", pile.take)
        beside.start()
        pile.left = 2
        beside.finish()
        assert pile.left == 0


def test_stopping_leaves_the_rest_and_before_the_start_does_no_harm() -> None:
    begun = threading.Event()

    def endless() -> bool:
        begun.set()
        time.sleep(0.001)
        return True

    beside = Beside("endless", endless)
    beside.stop()
    beside = Beside("endless", endless)
    beside.start()
    assert begun.wait(PATIENCE_SECONDS)
    beside.stop()
    assert beside.is_stopped and "endless" not in [thread.name for thread in threading.enumerate()]


def test_what_it_raises_is_heard_by_who_checks_and_by_who_waits() -> None:
    def fail() -> bool:
        raise ValueError("no")

    beside = Beside("fails", fail)
    beside.check()
    beside.start()
    with pytest.raises(ValueError, match="no"):
        beside.finish()
    with pytest.raises(ValueError, match="no"):
        beside.check()
    beside.stop()
