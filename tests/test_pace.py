"""Batches find their size: by the time that objects take, not by what a batch costs whatever is in it."""

from collections.abc import Callable
from itertools import pairwise

from headwater.flow.drive.pace import Pace


def walk(pace: Pace, took: Callable[[int], float], batches: int = 30) -> list[int]:
    sizes = []
    for _ in range(batches):
        sizes.append(pace.rows)
        pace.learn(pace.rows, took(pace.rows))
    return sizes


def test_a_batch_grows_and_shrinks_to_what_is_done_in_its_time() -> None:
    assert walk(Pace(30, 20_000), lambda rows: rows * 0.001)[-1] == 20_000
    assert walk(Pace(30, 20_000), lambda rows: rows * 10.0)[-1] == 3
    assert walk(Pace(30, 20_000), lambda rows: rows * 100.0)[-1] == 1


def test_it_takes_no_leap() -> None:
    sizes = walk(Pace(30, 20_000), lambda rows: rows * 10.0)
    assert all(after >= before // 4 for before, after in pairwise(sizes))
    sizes = walk(Pace(30, 20_000, rows=1), lambda rows: rows * 0.001)
    assert all(after <= before * 4 for before, after in pairwise(sizes))


def test_a_machine_that_is_slow_to_commit_does_not_end_in_crumbs() -> None:
    assert min(walk(Pace(30, 20_000), lambda rows: 40 + rows * 0.005)) > 500


def test_it_never_takes_more_than_it_may() -> None:
    assert Pace(30, 100).rows == 100
