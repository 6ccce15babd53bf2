"""Two who change an index at the same moment: LanceDB tells one of them to try again, and that is done or left."""

from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from headwater.storage.index.lance_conflict import (
    ATTEMPTS,
    WAIT_SECONDS_MAX,
    again_after_conflict,
    is_conflict,
    unless_conflict,
)

FILES = 8


@pytest.fixture
def late(tmp_path: Path) -> Any:
    """The table as one process holds it who comes second: another has merged the same files since it looked."""
    made = lancedb.connect(tmp_path).create_table("entries", schema=pa.schema({"chunk_id": pa.string()}))
    for number in range(FILES):
        made.add([{"chunk_id": f"c{number}"}])
    late, first = (lancedb.connect(tmp_path).open_table("entries") for _ in range(2))
    first.optimize()
    return late


def rows(table: Any) -> list[str]:
    table.checkout_latest()
    found: list[str] = sorted(table.to_arrow()["chunk_id"].to_pylist())
    return found


def test_who_came_second_tries_again_on_the_table_as_it_is_by_then(late: Any) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        late.checkout_latest()

    again_after_conflict(late.optimize, sleep=wait)
    assert len(waits) == 1
    assert rows(late) == [f"c{number}" for number in range(FILES)]


def test_who_always_comes_second_waits_longer_each_time_and_says_so_in_the_end(late: Any) -> None:
    waits: list[float] = []
    with pytest.raises(RuntimeError) as refused:
        again_after_conflict(late.optimize, sleep=waits.append)
    assert is_conflict(refused.value)
    assert len(waits) == ATTEMPTS - 1
    assert waits[0] < 0.1 < WAIT_SECONDS_MAX / 2 <= waits[-1] <= WAIT_SECONDS_MAX


def test_what_another_is_doing_already_is_left_to_it(late: Any) -> None:
    assert not unless_conflict(late.optimize)
    late.checkout_latest()
    assert unless_conflict(late.optimize)
    assert rows(late) == [f"c{number}" for number in range(FILES)]


def test_any_other_failure_is_told_at_once(late: Any) -> None:
    waits: list[float] = []
    with pytest.raises(ValueError, match="nothing_like_it"):
        again_after_conflict(lambda: late.delete("nothing_like_it = 1"), sleep=waits.append)
    with pytest.raises(ValueError, match="nothing_like_it"):
        unless_conflict(lambda: late.delete("nothing_like_it = 1"))
    assert waits == []
