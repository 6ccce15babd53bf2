"""What a vector index promises whatever it is made of: twice is once, filters keep recall, a wiped index starts again.

The file that imports these tests gives the fixture `settings`: of a lake whose index is empty.
"""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sample_rows import NOON, rows

from headwater.domain import tables
from headwater.domain.meta import WantedFact
from headwater.domain.terms import asked_terms
from headwater.errors import Conflict, InvalidRequest
from headwater.flow.models.lexical import DIMENSION
from headwater.settings import Settings
from headwater.storage.index.vector_index import Filter, Terms, Vector, VectorIndex, open_index

PRINT = "feed0123feed0123"


def vectors(count: int, seed: int = 0) -> Vector:
    """Texts have topics, so their vectors lie around centres."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(50, DIMENSION))
    drawn = centres[draw.integers(0, 50, count)] + draw.normal(size=(count, DIMENSION))
    unit: Vector = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return unit


def embeddings(count: int, first: int = 0, **same: Any) -> pa.Table:
    given = [
        {
            "chunk_id": f"c{number}", "object_id": f"chat/acme/{number}",
            "customer": "o'neil" if number % 4 else "acme", "modality": "chat",
            "fingerprint": PRINT, "text": f"refund number {number}", "source_model": "inline",
            "vector": vector, "occurred_at": NOON + timedelta(hours=number), **same,
        }
        for number, vector in enumerate(vectors(count, seed=first), start=first)
    ]  # fmt: skip
    return rows(tables.EMBEDDINGS, given, first_seq=first)


@pytest.fixture
def index(settings: Settings) -> VectorIndex:
    return open_index(settings)


def test_an_empty_index_answers_with_nothing(index: VectorIndex) -> None:
    assert (index.position(), index.count()) == (0, 0)
    assert index.search(PRINT, vectors(1)[0], 5) == []
    assert index.search(PRINT, asked_terms("refund"), 5) == []
    assert index.present(["c1"]) == set()
    index.optimise()


def test_an_entry_brought_twice_is_there_once_and_the_latest(index: VectorIndex) -> None:
    index.upsert(embeddings(6))
    index.upsert(embeddings(6, text="changed"))
    index.set_position(6)
    assert index.count() == 6
    assert {entry.text for entry in index.search(PRINT, vectors(6)[0], 10)} == {"changed"}


def test_an_entry_that_is_twice_in_one_batch_is_there_once_and_can_be_brought_again(index: VectorIndex) -> None:
    twice = pa.concat_tables([embeddings(3), embeddings(3, text="changed")])
    for _ in range(2):
        index.upsert(twice)
        index.set_position(3)
        assert index.count() == 3
    assert {entry.text for entry in index.search(PRINT, vectors(3)[0], 10)} == {"changed"}


def test_the_nearest_comes_first_with_all_it_carries(index: VectorIndex) -> None:
    place = {"start_ms": 5, "end_ms": 9, "page": None, "frame_ms": None, "box": [1, 2, 3, 4]}
    place |= {"speaker": "agent", "section": None}
    index.upsert(embeddings(20, locator=place))
    best = index.search(PRINT, vectors(20)[7], 3)[0]
    assert best.chunk_id == "c7"
    assert best.score == pytest.approx(1.0, abs=1e-5)
    assert best.locator == place
    assert best.pointer["path"] == "chat/acme/7"
    assert best.occurred_at == NOON + timedelta(hours=7)


def test_a_speaker_is_a_filter_by_vector_and_by_words(index: VectorIndex) -> None:
    for first, speaker in enumerate(("agent", "customer", None)):
        index.upsert(embeddings(1, first=first, locator={"start_ms": 5, "speaker": speaker}))
    for speaker, chunk_id in (("agent", "c0"), ("customer", "c1")):
        for probe in (vectors(1)[0], asked_terms("refund")):
            assert [entry.chunk_id for entry in index.search(PRINT, probe, 3, Filter(speaker=speaker))] == [chunk_id]


def test_words_are_found_by_their_stem_before_and_after_optimising(index: VectorIndex) -> None:
    index.upsert(embeddings(5))
    index.upsert(embeddings(1, first=50, text="two invoices are running late"))
    for _ in range(2):
        assert [entry.chunk_id for entry in index.search(PRINT, asked_terms("invoice run"), 3)] == ["c50"]
        index.optimise()
    index.upsert(embeddings(1, first=60, text="the invoice came twice"))
    assert {entry.chunk_id for entry in index.search(PRINT, asked_terms("invoice"), 3)} == {"c50", "c60"}


@pytest.mark.parametrize("probe", ["vector", "refund number"])
def test_filters_apply_before_ranking(index: VectorIndex, probe: str) -> None:
    index.upsert(embeddings(40))
    asked: Vector | Terms = vectors(40)[1] if probe == "vector" else asked_terms(probe)
    acme = index.search(PRINT, asked, 10, Filter(customer="acme"))
    assert {entry.chunk_id for entry in acme} == {f"c{number}" for number in range(0, 40, 4)}
    assert len(index.search(PRINT, asked, 10, Filter(customer="o'neil"))) == 10
    assert index.search(PRINT, asked, 10, Filter(customer="x' OR 1=1 --")) == []
    assert index.search(PRINT, asked, 10, Filter(modality="audio")) == []
    window = Filter(since=NOON + timedelta(hours=3), until=NOON + timedelta(hours=5))
    assert {entry.chunk_id for entry in index.search(PRINT, asked, 10, window)} == {"c3", "c4"}


def test_deleting_the_index_forgets_its_position(index: VectorIndex, settings: Settings) -> None:
    index.upsert(embeddings(3))
    index.set_position(3)
    assert open_index(settings).position() == 3
    index.delete(["c1", "it's not there"])
    assert (index.count(), index.present(["c0", "c1"])) == (2, {"c0"})
    index.delete(None)
    assert (open_index(settings).position(), open_index(settings).count()) == (0, 0)
    index.upsert(embeddings(3))
    assert index.present(["c0", "c1"]) == {"c0", "c1"}


def test_vectors_of_two_fingerprints_never_meet(index: VectorIndex) -> None:
    index.upsert(embeddings(3))
    index.upsert(embeddings(3, first=10, fingerprint="0ther"))
    assert {entry.chunk_id for entry in index.search("0ther", vectors(3)[0], 9)} == {"c10", "c11", "c12"}
    with pytest.raises(Conflict, match="none of unknown"):
        index.search("unknown", vectors(3)[0], 9)


def test_each_model_has_its_own_length_and_another_one_is_refused(index: VectorIndex) -> None:
    index.upsert(embeddings(1))
    with pytest.raises(InvalidRequest, match="1024 numbers, not 2"):
        index.upsert(embeddings(1, vector=[1.0, 2.0]))
    with pytest.raises(InvalidRequest, match="1024 numbers, not 2"):
        index.search(PRINT, np.array([1.0, 2.0], np.float32), 1)
    index.upsert(embeddings(1, fingerprint="5hort", vector=[1.0, 2.0]))
    assert [entry.chunk_id for entry in index.search("5hort", np.array([1.0, 2.0], np.float32), 3)] == ["c0"]


def test_texts_of_a_hidden_model_are_found_neither_by_vector_nor_by_words(index: VectorIndex) -> None:
    index.upsert(embeddings(4, source_fingerprint="shown"))
    index.upsert(embeddings(4, first=10, source_fingerprint="h1dden"))
    only = Filter(hidden=frozenset({"h1dden"}))
    for probe in (vectors(4, seed=10)[0], asked_terms("refund")):
        assert {entry.chunk_id for entry in index.search(PRINT, probe, 20, only)} == {"c0", "c1", "c2", "c3"}
        assert len(index.search(PRINT, probe, 20)) == 8


def test_what_a_model_made_goes_with_it(index: VectorIndex) -> None:
    index.upsert(embeddings(4, source_fingerprint="writer"))
    index.upsert(embeddings(4, first=10, source_fingerprint="0ther"))
    index.upsert(embeddings(4, fingerprint="beside", source_fingerprint="writer"))
    index.set_position(12)
    index.drop("writer")
    assert {entry.chunk_id for entry in index.search(PRINT, vectors(4)[0], 20)} == {"c10", "c11", "c12", "c13"}
    index.drop(PRINT)
    index.drop(PRINT)
    assert index.search("beside", vectors(4)[0], 20) == []
    assert (index.position(), index.count()) == (12, 0)


def _bring(settings: Settings) -> None:
    for _ in range(3):
        open_index(settings).upsert(embeddings(50))


def test_an_index_that_another_wiped_answers_with_nothing_and_is_filled_again(settings: Settings) -> None:
    index = open_index(settings)
    index.upsert(embeddings(3))
    assert len(index.search(PRINT, vectors(3)[0], 9)) == 3
    open_index(settings).delete(None)
    with ThreadPoolExecutor(4) as pool:  # a question is asked by meaning and by words at once
        answers = list(pool.map(lambda _: index.search(PRINT, vectors(3)[0], 9), range(8)))
    assert answers == [[]] * 8
    open_index(settings).upsert(embeddings(2))
    assert {entry.chunk_id for entry in index.search(PRINT, vectors(3)[0], 9)} == {"c0", "c1"}


def test_two_processes_bringing_the_same_entries_make_each_once(settings: Settings) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_bring, args=(settings,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    index = open_index(settings)
    index.set_position(50)
    assert index.count() == 50


def test_whoever_organises_while_another_brings_entries_both_end_well(settings: Settings) -> None:
    organise_beside_who_brings(settings, _organise)


def organise_beside_who_brings(settings: Settings, organise: Callable[[Settings, Any], None]) -> None:
    """Two who organise at the same time, and one who brings entries."""
    open_index(settings).upsert(embeddings(20))
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    at_work = [context.Process(target=work, args=(settings, start)) for work in (_bring_in_turns, organise, organise)]
    for process in at_work:
        process.start()
    for process in at_work:
        process.join()
    assert [process.exitcode for process in at_work] == [0, 0, 0]
    index = open_index(settings)
    assert (index.count(), index.position()) == (300, 300)
    assert index.present([f"c{number}" for number in range(300)]) == {f"c{number}" for number in range(300)}


def _bring_in_turns(settings: Settings, start: Any) -> None:
    index = open_index(settings)
    index.prepare()
    start.wait()
    for first in range(0, 300, 20):
        index.upsert(embeddings(20, first=first))
        index.set_position(first + 20)


def _organise(settings: Settings, start: Any) -> None:
    index = open_index(settings)
    index.prepare()
    start.wait()
    for _ in range(15):
        index.optimise()


PHONE = WantedFact("channel", "phone")


def test_facts_of_the_meta_and_a_thread_are_filters_by_vector_and_by_words(index: VectorIndex) -> None:
    for first, (meta, thread) in enumerate(
        (('{"channel":"phone","n":5}', "t1"), ('{"channel":"o\'mail"}', "t1"), (None, None))
    ):
        index.upsert(embeddings(1, first=first, meta=meta, thread=thread))
    for only, chunk_ids in (
        (Filter(where=(PHONE,)), {"c0"}),
        (Filter(where=(WantedFact("channel", "o'mail"),)), {"c1"}),
        (Filter(where=(PHONE, WantedFact("n", "5"))), {"c0"}),
        (Filter(where=(PHONE, WantedFact("n", "6"))), set()),
        # Labelled since: one to be on the phone, the other no longer.
        (Filter(where=(PHONE._replace(labelled=frozenset({"chat/acme/2"})),)), {"c0", "c2"}),
        (Filter(where=(PHONE._replace(otherwise=frozenset({"chat/acme/0"})),)), set()),
        (Filter(thread="t1"), {"c0", "c1"}),
        (Filter(), {"c0", "c1", "c2"}),
    ):
        for probe in (vectors(1)[0], asked_terms("refund number")):
            assert {entry.chunk_id for entry in index.search(PRINT, probe, 3, only)} == chunk_ids
    entry = index.search(PRINT, asked_terms("refund number"), 1, Filter(where=(WantedFact("n", "5"),)))[0]
    assert (entry.meta, entry.thread) == ({"channel": "phone", "n": 5}, "t1")


def test_candidates_of_several_probes_are_those_of_each_and_carry_what_is_shown_of_them(index: VectorIndex) -> None:
    index.upsert(embeddings(6, meta='{"says":"it\'s \\u001f"}', thread="t\x1f\n"))
    probes: tuple[Vector | Terms, ...] = (vectors(6)[3], asked_terms("refund"), asked_terms("nowhere"))
    found = index.candidates(PRINT, probes, 4)
    assert [[one.chunk_id for one in each] for each in found] == [
        [entry.chunk_id for entry in index.search(PRINT, probe, 4)] for probe in probes
    ]
    assert [len(each) for each in found] == [4, 4, 0]
    for one in (one for each in found for one in each):
        entry = one.shown()
        assert (entry.chunk_id, entry.object_id, entry.terms) == (one.chunk_id, one.object_id, one.terms)
        assert (entry.score, entry.thread, entry.meta) == (one.score, "t\x1f\n", {"says": "it's \x1f"})
        assert entry.occurred_at == NOON + timedelta(hours=int(one.chunk_id[1:]))
    assert index.candidates(PRINT, [], 4) == []


def test_what_was_replaced_is_found_as_it_is_now_and_what_is_gone_is_not(
    index: VectorIndex, settings: Settings
) -> None:
    index.upsert(embeddings(6))
    probes: tuple[Vector | Terms, ...] = (vectors(6)[3], asked_terms("refund changed"))
    index.candidates(PRINT, probes, 6)
    other = open_index(settings)
    other.upsert(embeddings(3, text="changed"))
    other.delete(["c5"])
    for each in index.candidates(PRINT, probes, 6):
        assert {one.chunk_id: one.shown().text for one in each} == {
            f"c{number}": "changed" if number < 3 else f"refund number {number}" for number in range(5)
        }
    other.delete(None)
    assert index.candidates(PRINT, probes, 6) == [[], []]
