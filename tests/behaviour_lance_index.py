"""What the vector index that is made of LanceDB promises beyond its port: what it organises, and what it believes.

The file that imports these tests gives the fixture `settings`: of a lake whose index is empty.
"""

from typing import Any

import numpy as np
import pytest
from behaviour_vector_index import (
    PRINT,
    embeddings,
    organise_beside_who_brings,
    vectors,
)

from headwater.settings import Settings
from headwater.storage.index import lance_optimize
from headwater.storage.index.lance_index import LanceIndex
from headwater.storage.index.vector_index import Filter, VectorIndex, open_index


def test_the_approximate_index_keeps_recall_with_and_without_a_filter(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance_optimize, "ANN_ROWS", 1_000)
    monkeypatch.setattr(lance_optimize, "PARTITION_ROWS", 500)
    index.upsert(embeddings(1_500))
    index.optimise()
    index.upsert(embeddings(100, first=1_500))
    everything = np.concatenate([vectors(1_500), vectors(100, seed=1_500)])
    for only, members in ((Filter(), range(1_600)), (Filter(customer="acme"), range(0, 1_600, 4))):
        found = truth = 0
        for probe in vectors(10, seed=99):
            exact = sorted(members, key=lambda number: -float(everything[number] @ probe))[:10]
            hits = {entry.chunk_id for entry in index.search(PRINT, probe, 10, only)}
            found += len(hits & {f"c{number}" for number in exact})
            truth += 10
        assert found / truth >= 0.98


def test_an_index_that_was_outgrown_is_trained_again(index: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_optimize, "ANN_ROWS", 300)
    monkeypatch.setattr(lance_optimize, "PARTITION_ROWS", 300)
    for first, trained in ((0, "vector_1"), (300, "vector_1"), (600, "vector_1"), (900, "vector_4")):
        index.upsert(embeddings(300, first=first))
        index.optimise()
        assert isinstance(index, LanceIndex)
        [table] = index._all_tables()
        assert [one.name for one in table.list_indices() if one.columns == ["vector"]] == [trained]
        assert index.search(PRINT, vectors(300, seed=first)[5], 1)[0].chunk_id == f"c{first + 5}"


def test_two_who_organise_at_every_chance_and_one_who_brings_entries_all_end_well(settings: Settings) -> None:
    organise_beside_who_brings(settings, _organise_eagerly)


def _organise_eagerly(settings: Settings, start: Any) -> None:
    """At every call, as if the table had grown by half each time."""
    lance_optimize.TAIL_ROWS, lance_optimize.TAIL_SHARE = 1, 1 << 30
    lance_optimize.SMALL_FILES, lance_optimize.ROWS_PER_SMALL_FILE = 0, 1 << 30
    opened = open_index(settings)
    opened.prepare()
    start.wait()
    for _ in range(15):
        opened.optimise()
