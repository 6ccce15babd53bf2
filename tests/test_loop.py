"""Work on a thread of its own: woken, finished, stopped, and heard when it fails."""

import threading

import pytest
from waiting import let_pass, wait_until

from headwater.flow.drive.loop import Loop

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
    wait_until(lambda: pile.done >= done, every=0.005)


def test_work_is_done_until_there_is_none_and_again_when_woken() -> None:
    pile = Pile(3)
    loop = Loop("pile", pile.take)
    loop.start()
    until(pile, 3)
    pile.left = 2
    let_pass(0.05, "nobody wakes it, so nothing may happen")
    assert pile.done == 3
    loop.wake()
    until(pile, 5)
    loop.stop()
    loop.stop()


def test_it_looks_by_itself_every_so_often() -> None:
    pile = Pile()
    loop = Loop("pile", pile.take, every=0.01)
    loop.start()
    pile.left = 1
    until(pile, 1)
    loop.stop()


def test_finishing_leaves_nothing_undone_whenever_it_is_asked_for() -> None:
    for _ in range(200):
        pile = Pile()
        loop = Loop("pile", pile.take)
        loop.start()
        pile.left = 2
        loop.finish()
        assert pile.left == 0


def test_stopping_leaves_the_rest_and_before_the_start_does_no_harm() -> None:
    begun = threading.Event()

    def endless() -> bool:
        begun.set()
        return True

    loop = Loop("endless", endless)
    loop.stop()
    loop = Loop("endless", endless)
    loop.start()
    assert begun.wait(PATIENCE_SECONDS)
    loop.stop()
    assert loop.is_stopped and "endless" not in [thread.name for thread in threading.enumerate()]


def test_what_it_raises_is_heard_by_who_checks_and_by_who_waits() -> None:
    def fail() -> bool:
        raise ValueError("no")

    loop = Loop("fails", fail)
    loop.check()
    loop.start()
    with pytest.raises(ValueError, match="no"):
        loop.finish()
    with pytest.raises(ValueError, match="no"):
        loop.check()
    loop.stop()
