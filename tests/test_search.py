"""Search: the right chunk first, with its source, its words marked, and how stale the index is."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sample_rows import NOON, rows

from headwater import settings as settings_module
from headwater.domain import tables
from headwater.errors import Conflict, InvalidRequest
from headwater.flow.answer import SearchAnswer
from headwater.flow.models.lexical import Lexical
from headwater.flow.models.port import ModelCard
from headwater.flow.search import search
from headwater.storage.index.vector_index import VectorIndex, open_index

SAID = (
    ("acme", "audio", "the caller wants a refund for a damaged laptop and asks when the money arrives"),
    ("acme", "image", "Error 502 bad gateway while opening the billing page"),
    ("o'neil", "chat", "please cancel my subscription before the next invoice"),
    ("o'neil", "document", "Invoice 2041, total 99 euros, payable within thirty days"),
    ("zeta", "video", "press settings, then reset password, and wait for the mail"),
)


@pytest.fixture
def index(tmp_path: Path) -> VectorIndex:
    index = open_index(settings_module.resolve(tmp_path / "lake", {}, {}, {}))
    bring(index, [{"customer": who, "modality": kind, "text": text} for who, kind, text in SAID])
    return index


def bring(index: VectorIndex, given: list[dict[str, Any]], first: int = 0) -> None:
    embedder = Lexical()
    full = [
        {
            "chunk_id": f"c{number}", "object_id": f"x/{number}", "fingerprint": embedder.card.fingerprint,
            "model": embedder.card.label, "source_model": "inline 1", "locator": {"start_ms": 0, "end_ms": 900},
            "vector": embedder.run([row["text"]])[0], "occurred_at": NOON + timedelta(days=number), **row,
        }
        for number, row in enumerate(given, start=first)
    ]  # fmt: skip
    index.upsert(rows(tables.EMBEDDINGS, full, first_seq=first))
    index.set_position(first + len(given))


def ask(index: VectorIndex, query: str, **only: Any) -> SearchAnswer:
    return search(index, Lexical(), query, **{"embedded": 5, **only})


def test_the_answer_has_the_pinned_shape(index: VectorIndex) -> None:
    answer = json.loads(json.dumps(ask(index, "refund laptop").to_dict()))
    assert set(answer) == {"hits", "stale_by"}
    hit = answer["hits"][0]
    pinned = {"id", "score", "why", "customer", "modality", "text", "snippet", "model", "locator", "pointer"}
    assert pinned | {"occurred_at", "meta", "thread", "marks"} == set(hit)
    assert set(hit["pointer"]) == {"path", "offset", "size", "content_type", "checksum"}
    assert (hit["id"], hit["customer"], hit["model"]) == ("c0", "acme", "inline 1")
    assert hit["locator"] == {"start_ms": 0, "end_ms": 900}
    assert hit["score"] > 0.9
    assert hit["why"] == "words and meaning"


@pytest.mark.parametrize(
    ("query", "best"),
    [("damaged laptop refund", "c0"), ("bad gatway error", "c1"), ("cancel subscription", "c2"),
     ("INVOICES payable", "c3"), ("passwort reset", "c4")],
)  # fmt: skip
def test_words_and_near_spellings_find_their_chunk(index: VectorIndex, query: str, best: str) -> None:
    assert ask(index, query).hits[0].entry.chunk_id == best


def test_nothing_alike_is_no_hit(index: VectorIndex) -> None:
    assert ask(index, "xylophone quartz").hits == ()


def test_filters_hold_whatever_is_in_them(index: VectorIndex) -> None:
    assert {hit.entry.customer for hit in ask(index, "invoice", customer="o'neil").hits} == {"o'neil"}
    assert ask(index, "invoice", customer="' OR true --").hits == ()
    assert [hit.entry.chunk_id for hit in ask(index, "invoice", modality="document").hits] == ["c3"]
    assert [hit.entry.chunk_id for hit in ask(index, "invoice", since=NOON + timedelta(days=3)).hits] == ["c3"]
    assert [hit.entry.chunk_id for hit in ask(index, "invoice", until=NOON + timedelta(days=3)).hits] == ["c2"]


def test_one_object_gives_at_most_three_hits(index: VectorIndex) -> None:
    bring(index, [{"object_id": "x/long", "customer": "acme", "text": f"zebra part {n}"} for n in range(40)], first=10)
    bring(index, [{"object_id": "x/other", "customer": "acme", "text": "zebra crossing, far from here"}], first=60)
    objects = [hit.entry.object_id for hit in ask(index, "zebra part").hits]
    assert objects.count("x/long") == 3
    assert "x/other" in objects


def test_the_snippet_shows_the_asked_words_and_marks_them(index: VectorIndex) -> None:
    long = "well " * 80 + "then the Zürich émigré invoices arrived twice " + "and so on " * 60
    bring(index, [{"customer": "acme", "modality": "audio", "text": long}], first=10)
    hit = ask(index, "zurich invoice", customer="acme").hits[0]
    assert len(hit.snippet) <= 162
    assert hit.snippet.startswith("…") and hit.snippet.endswith("…")
    assert {hit.snippet[low:high] for low, high in hit.marks} == {"Zürich", "invoices"}


def test_the_answer_says_how_stale_the_index_is(index: VectorIndex) -> None:
    assert ask(index, "refund").stale_by == 0
    assert ask(index, "refund", embedded=12).stale_by == 7


def test_an_empty_lake_answers_and_a_poor_question_is_refused(index: VectorIndex, tmp_path: Path) -> None:
    empty = open_index(settings_module.resolve(tmp_path / "empty", {}, {}, {}))
    assert search(empty, Lexical(), "refund", embedded=3) == SearchAnswer((), 3)
    refused: list[dict[str, Any]] = [
        {"query": ""}, {"query": " ?! "}, {"query": "x " * 9_000}, {"query": "x", "limit": 0},
        {"query": "x", "modality": "smell"}, {"query": "x", "since": NOON, "until": NOON},
    ]  # fmt: skip
    for question in refused:
        with pytest.raises(InvalidRequest):
            ask(index, **question)


def test_vectors_of_another_model_are_never_compared(index: VectorIndex) -> None:
    class Other(Lexical):
        card = ModelCard("other", "1", accepts="text", produces="vector")  # type: ignore[misc]

    with pytest.raises(Conflict, match="headwater run"):
        search(index, Other(), "refund", embedded=5)


def test_an_answer_is_gone_through_counted_and_made_a_table(index: VectorIndex) -> None:
    answer = ask(index, "invoice")
    assert [hit.entry.chunk_id for hit in answer] == [hit.entry.chunk_id for hit in answer.hits]
    assert len(answer) == 2 and len(ask(index, "xylophone quartz")) == 0
    table = answer.to_pandas()
    assert list(table["id"]) == [hit.entry.chunk_id for hit in answer]
    assert {"score", "why", "customer", "text", "path", "start_ms"} <= set(table.columns)
    assert list(ask(index, "xylophone quartz").to_pandas().columns) == list(table.columns)


def test_a_notebook_shows_an_answer_and_runs_nothing_of_what_came_in(index: VectorIndex) -> None:
    attack = '<script>alert(1)</script><img src=x onerror=alert(2)> refund & "more"'
    path = "chat/<b>/'x'"
    bring(index, [{"customer": "<i>eve</i>", "modality": "chat", "text": attack, "pointer": {"path": path}}], first=20)
    page = ask(index, "refund more", customer="<i>eve</i>")._repr_html_()
    assert "<b>refund</b> &amp; &quot;<b>more</b>" in page
    for raw in ("<script", "<img", "<i>", "<b>/"):
        assert raw not in page
    assert "No hits" in ask(index, "xylophone quartz")._repr_html_()
