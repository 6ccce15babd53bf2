"""A batch is dealt out so that no worker waits long for another, and comes back whole."""

import random
import sys

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.errors import Unavailable
from headwater.flow.partitions import balanced_partitions, map_partitions


def dealt(contents: list[tuple[str, str, int]], workers: int) -> list[list[str]]:
    rows = pa.table(dict(zip(("name", "kind", "size"), zip(*contents, strict=True), strict=True)))
    return [
        part["name"].to_pylist()
        for part in balanced_partitions(rows, rows["name"], rows["kind"], rows["size"], workers)
    ]


def finished_at(parts: list[list[str]], cost: dict[str, int], workers: int) -> list[int]:
    """When each worker is done, where whoever is free takes the next part."""
    clocks = [0] * workers
    for part in parts:
        free = clocks.index(min(clocks))
        clocks[free] += sum(cost[one] for one in part)
    return clocks


@pytest.mark.parametrize("count", [1, 2, 5, 40, 400])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_everything_is_dealt_once_and_workers_end_together(count: int, workers: int) -> None:
    draw = random.Random(count)
    cost = {str(number): draw.randint(100, 800) for number in range(count)}
    parts = dealt([(name, "audio", size) for name, size in cost.items()], workers)
    assert sorted(one for part in parts for one in part) == sorted(cost)
    clocks = finished_at(parts, cost, workers)
    assert max(clocks) <= sum(cost.values()) / workers + max(cost.values())
    if count >= 20 * workers:
        assert max(clocks) <= 1.05 * sum(cost.values()) / workers


def test_kinds_are_dealt_one_by_one() -> None:
    """A byte of a call takes longer than a byte of a document, so no worker may get all calls."""
    calls = [(f"call {number}", "audio", 100) for number in range(24)]
    documents = [(f"document {number}", "document", 10_000) for number in range(24)]
    parts = dealt([*calls, *documents], 3)
    cost = {name: 50 if kind == "audio" else 1 for name, kind, _ in [*calls, *documents]}
    clocks = finished_at(parts, cost, 3)
    assert max(clocks) <= 1.2 * sum(cost.values()) / 3


def test_equal_contents_stay_together() -> None:
    rows = pa.table({"number": range(60)})
    content = pa.array([f"content {number % 20}" for number in range(60)])
    parts = balanced_partitions(rows, content, pa.repeat("audio", 60), pa.repeat(100, 60), 3)
    homes = {number % 20: place for place, part in enumerate(parts) for number in part["number"].to_pylist()}
    assert all(homes[number % 20] == place for place, part in enumerate(parts) for number in part["number"].to_pylist())
    assert sum(len(part) for part in parts) == 60


def test_parts_go_to_workers_and_come_back(spark: SparkSession) -> None:
    rows = pa.table({"name": [f"row {number}" for number in range(2_500)], "seen": [None] * 2_500})
    schema = pa.schema([("name", pa.string()), ("batch", pa.int64())])

    def count(batches):  # type: ignore[no-untyped-def]
        for number, batch in enumerate(batches):
            yield pa.record_batch([batch["name"], pa.array([number] * len(batch))], schema=schema)

    back = map_partitions(spark, [rows, rows.slice(0, 1)], count, schema)
    assert back["name"].to_pylist() == [*rows["name"].to_pylist(), "row 0"]
    assert set(back["batch"].to_pylist()) == {0, 1, 2}
    assert map_partitions(spark, [], count, schema).num_rows == 0


def test_workers_know_pandas_only_when_they_want_a_frame(spark: SparkSession) -> None:
    schema = pa.schema([("loaded", pa.bool_()), ("rows", pa.int64())])

    def look(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            loaded = "pandas" in sys.modules
            yield pa.record_batch([[loaded], [len(batch.to_pandas())]], schema=schema)

    assert map_partitions(spark, [pa.table({"a": [1, 2]})], look, schema).to_pylist() == [{"loaded": False, "rows": 2}]


def test_a_store_that_does_not_answer_is_told_as_such(spark: SparkSession) -> None:
    def fail(batches):  # type: ignore[no-untyped-def]
        raise Unavailable("The raw store does not answer: no route. Try again.")
        yield from batches

    with pytest.raises(Unavailable, match=r"The raw store does not answer: no route. Try again."):
        map_partitions(spark, [pa.table({"a": [1]})], fail, pa.schema([("a", pa.int64())]))
