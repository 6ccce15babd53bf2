"""Batches find their size: by the time that objects take, not by what a batch costs whatever is in it."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import lake_settings

from headwater.cli.progress import Bars
from headwater.flow.drive.batch_size import FIRST_BYTES, BatchBytes, BatchSize
from headwater.flow.rows import BatchLimit, batch_limit


def walk(size: BatchSize, took: Callable[[int], float], batches: int = 30) -> list[int]:
    sizes = []
    for _ in range(batches):
        sizes.append(size.rows)
        size.learn(size.rows, took(size.rows))
    return sizes


def test_a_batch_grows_and_shrinks_to_what_is_done_in_its_time() -> None:
    assert walk(BatchSize(30, 20_000), lambda rows: rows * 0.001)[-1] == 20_000
    assert walk(BatchSize(30, 20_000), lambda rows: rows * 10.0)[-1] == 3
    assert walk(BatchSize(30, 20_000), lambda rows: rows * 100.0)[-1] == 1


def test_it_takes_no_leap() -> None:
    sizes = walk(BatchSize(30, 20_000), lambda rows: rows * 10.0)
    assert all(after >= before // 4 for before, after in pairwise(sizes))
    sizes = walk(BatchSize(30, 20_000, rows=1), lambda rows: rows * 0.001)
    assert all(after <= before * 4 for before, after in pairwise(sizes))


def test_a_machine_that_is_slow_to_commit_does_not_end_in_crumbs() -> None:
    assert min(walk(BatchSize(30, 20_000), lambda rows: 40 + rows * 0.005)) > 500


def test_it_never_takes_more_than_it_may() -> None:
    assert BatchSize(30, 100).rows == 100


def test_a_batch_grows_with_the_workers_as_they_come_and_shrinks_as_they_go() -> None:
    """Spark counts two before a cluster's first executor is there; that is not for a run's whole life."""
    size = BatchSize(30, 20_000)
    assert size.within(20_000) == 2_000
    for _ in range(5):
        size.learn(size.rows, size.rows * 0.001)
    assert size.within(2_500_000) == 20_000
    size.learn(20_000, 20)
    assert size.within(2_500_000) == 30_000
    assert size.within(100) == 100


def writer_with(workers: int, tmp_path: Path) -> Any:
    context = SimpleNamespace(defaultParallelism=workers, master="spark://somewhere:7077")
    settings = lake_settings(tmp_path, **{"run.batch_rows": 1_000, "run.batch_bytes": 1 << 30})
    return SimpleNamespace(settings=settings, spark=SimpleNamespace(sparkContext=context))


@pytest.mark.parametrize(
    ("workers", "rows"), [(1, 1_000), (2, 1_000), (4, 1_000), (7, 1_750), (8, 2_000), (500, 125_000)]
)
def test_a_batch_is_cut_for_as_many_workers_as_there_are(workers: int, rows: int, tmp_path: Path) -> None:
    assert batch_limit(writer_with(workers, tmp_path)) == BatchLimit(rows, (1 << 30) * rows // 1_000)


def test_the_first_batch_weighs_little_and_soon_batches_weigh_what_is_done_in_their_time() -> None:
    def walk_bytes(bytes_a_second: float, batches: int = 8) -> list[int]:
        size, sizes = BatchBytes(30, 2 * FIRST_BYTES), []
        for _ in range(batches):
            sizes.append(size.within(512 << 20))
            size.learn(sizes[-1], sizes[-1] / bytes_a_second)
        return sizes

    quick, slow = walk_bytes(100e6), walk_bytes(0.2e6)
    assert quick[0] == slow[0] == 2 * FIRST_BYTES
    assert quick[3] == 512 << 20, "who is quick is not held up by it"
    assert slow[-1] == pytest.approx(30 * 0.2e6, rel=0.4)
    assert max(slow) <= 2 * FIRST_BYTES


def test_without_a_terminal_a_commit_says_how_many_are_left_and_how_long_they_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Bars({"derive": 30}) as bars:
        bars.advance("derive", 10)
        bars.advance("derive", 20)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("derive +10 (10 of 30, about 0 s left)") and last == "derive +20 (30)"
