"""What the vector index that is made of LanceDB promises beyond its port: what it organises, and what it believes.

The file that imports these tests gives the fixture `settings`: of a lake whose index is empty.
"""

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from behaviour_vector_index import (
    PRINT,
    embeddings,
    organise_beside_who_brings,
    vectors,
)
from sample_rows import NOON, rows

from headwater.domain import tables
from headwater.domain.meta import WantedFact
from headwater.domain.terms import asked_terms
from headwater.settings import Settings
from headwater.storage.index import lance_entries, lance_index, lance_optimize, lance_query
from headwater.storage.index.lance_index import LanceIndex
from headwater.storage.index.vector_index import Entry, Filter, VectorIndex, open_index


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
    for first, trained in ((0, 1), (300, 1), (600, 1), (900, 4)):
        index.upsert(embeddings(300, first=first))
        index.optimise()
        assert isinstance(index, LanceIndex)
        [table] = index._all_tables()
        assert [one.name for one in table.list_indices() if one.columns == ["vector"]] == [
            f"vector_of_3_bits_{trained}"
        ]
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


FILTERS = (
    Filter(customer="acme"), Filter(customer="nobody"), Filter(modality="chat"), Filter(speaker="agent"),
    Filter(thread="t1"), Filter(where=(WantedFact("channel", "phone"),)), Filter(since=NOON + timedelta(hours=1_300)),
    Filter(until=NOON + timedelta(hours=20), customer="acme"), Filter(hidden=frozenset({"h1dden"})),
    Filter(where=(WantedFact("channel", "phone"),), thread="t1", hidden=frozenset({"h1dden"})),
)  # fmt: skip


@pytest.mark.parametrize("only", FILTERS)
def test_an_organised_index_with_a_tail_and_deletions_finds_what_one_that_is_searched_whole_finds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, only: Filter
) -> None:
    monkeypatch.setattr(lance_optimize, "ANN_ROWS", 1_000)
    index, known = open_index(settings), (set[str](), 0)
    for organised in (False, True):
        if organised:
            index.delete(None)
        index.upsert(_mixed(0, 1_400))
        if organised:
            index.optimise()
        index.upsert(_mixed(1_400, 50))
        index.upsert(_mixed(100, 50, text="refund changed"))
        index.delete([f"c{number}" for number in range(0, 1_450, 9)])
        found = index.candidates(PRINT, [vectors(10, seed=9)[0], asked_terms("refund number")], 30, only)
        ids = [{one.chunk_id for one in each} for each in found]
        # Of equal scores any may be among the best by words.
        near, worded = known = known if organised else (ids[0], len(ids[1]))
        assert len(ids[0] & near) >= 0.96 * len(near)
        assert (len(ids[0]), len(ids[1])) == (len(near), worded)
        entries = [one.shown() for each in found for one in each]
        assert not [entry for entry in entries if int(entry.chunk_id[1:]) % 9 == 0]
        assert all(entry.text == _text(int(entry.chunk_id[1:])) and _fits(entry, only) for entry in entries)


def _mixed(first: int, count: int, **same: Any) -> pa.Table:
    given = []
    for number, vector in enumerate(vectors(1_450)[first : first + count], start=first):
        given.append({
            "chunk_id": f"c{number}", "object_id": f"chat/acme/{number}", "fingerprint": PRINT, "vector": vector,
            "customer": "acme" if number % 10 == 1 else "o'neil", "modality": ("chat", "audio")[number % 2],
            "text": f"refund number {number}", "occurred_at": NOON + timedelta(hours=number),
            "locator": {"start_ms": 5, "speaker": ("agent", "customer", None)[number % 3]},
            "meta": (None, '{"channel":"phone"}', '{"channel":"mail"}')[number % 3], "source_model": "inline",
            "thread": (None, "t1", "t2", "t3")[number % 4], "source_fingerprint": ("shown", "h1dden")[number % 7 == 0],
            **same,
        })  # fmt: skip
    return rows(tables.EMBEDDINGS, given, first_seq=first)


def _text(number: int) -> str:
    return "refund changed" if 100 <= number < 150 else f"refund number {number}"


def _fits(entry: Entry, only: Filter) -> bool:
    speaker = (entry.locator or {}).get("speaker")
    return (
        only.customer in {None, entry.customer} and only.modality in {None, entry.modality}
        and only.speaker in {None, speaker} and only.thread in {None, entry.thread}
        and all((entry.meta or {}).get(fact.key) == fact.value for fact in only.where)
        and (only.since is None or entry.occurred_at >= only.since)
        and (only.until is None or entry.occurred_at < only.until)
        and not (only.hidden and int(entry.chunk_id[1:]) % 7 == 0)
    )  # fmt: skip


def test_an_index_of_the_version_before_is_searched_and_brought_to_as_it_is_and_trained_anew(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lancedb.index import IvfRq

    now = lance_entries.schema_of
    monkeypatch.setattr(lance_optimize, "ANN_ROWS", 300)
    with monkeypatch.context() as before:
        before.setattr(
            lance_index, "schema_of", lambda dimension: now(dimension).remove(now(1).get_field_index("shown"))
        )
        index.upsert(embeddings(1))
    index.upsert(embeddings(600))
    assert isinstance(index, LanceIndex)
    [table] = index._all_tables()
    table.create_index("vector", config=IvfRq(distance_type="cosine", num_partitions=1), name="vector_1")
    assert "shown" not in table.schema.names
    for trained in ("vector_1", "vector_of_3_bits_1"):
        assert [one.name for one in table.list_indices() if one.columns == ["vector"]] == [trained]
        [near], [worded] = (
            index.search(PRINT, probe, 1) for probe in (vectors(600)[5], asked_terms("number 7"))
        )  # fmt: skip
        assert (near.chunk_id, near.text, near.occurred_at) == ("c5", "refund number 5", NOON + timedelta(hours=5))
        assert (worded.chunk_id, worded.pointer["path"]) == ("c7", "chat/acme/7")
        index.optimise()


@pytest.mark.parametrize("change", ["moved", "gone", "wiped"])
def test_what_changes_between_being_found_and_being_read_is_read_as_it_is_then(
    index: VectorIndex, settings: Settings, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    index.upsert(embeddings(6))
    at_their_places = lance_query._shown_at

    def late(*given: Any) -> Any:
        monkeypatch.setattr(lance_query, "_shown_at", at_their_places)
        other = open_index(settings)
        if change == "moved":
            other.upsert(embeddings(3, text="changed"))
        else:
            other.delete(["c1"] if change == "gone" else None)
        return at_their_places(*given)

    monkeypatch.setattr(lance_query, "_shown_at", late)
    near, worded = index.candidates(PRINT, [vectors(6)[3], asked_terms("refund changed")], 6)
    texts = {f"c{number}": f"refund number {number}" for number in range(6)}
    if change == "moved":
        texts |= dict.fromkeys(("c0", "c1", "c2"), "changed")
    expected = {name: text for name, text in texts.items() if change != "gone" or name != "c1"}
    for each in (near, worded):
        assert {one.chunk_id: one.shown().text for one in each} == ({} if change == "wiped" else expected)
