"""Search that people trust: nothing for nonsense, what is asked for by name first, other forms and typos after it."""

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_rows import NOON, rows

from headwater import settings as settings_module
from headwater.domain import tables
from headwater.flow.answer import Hit
from headwater.flow.models.lexical import Lexical
from headwater.flow.models.port import Model, ModelCard, Vector
from headwater.flow.models.registry import load_model
from headwater.flow.search import search
from headwater.storage.index.vector_index import VectorIndex, open_index

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from quality.judged import NONSENSE, read_questions, read_texts

MORE_NONSENSE = ("zqxv blorptang", "grobnik snorwit", "vraxel", "qwop zxcv mnbv", "0x99fe12", "ORD-77777")
ALIKE = [f"Order {number} has not arrived, can you tell me when to expect order {number}?" for number in range(900)]
AMONG_THEM = (
    "Order 10042 is missing a lamp.",
    "The app crashes when I tap on export.",
    "It keeps crashing since Monday.",
    "I want a refund for the chair.",
    "Please write to anna.lindqvist@fabrikam.example about it.",
)
CJK = [f"我的订单号{number}还没有到，请退款" for number in range(200)]


class Narrow:
    """An embedder of one's own, to which no two texts are less alike than 0.8."""

    card = ModelCard("narrow", "1", accepts="text", produces="vector", parameters={"dimension": 257})

    def load(self) -> None:
        self._model = load_model("static")
        self._model.load()

    def run(self, batch: Sequence[str]) -> list[Vector]:
        return [np.append(vector * 0.447, 0.894).astype(np.float32) for vector in self._model.run(batch)]


class Lake:
    def __init__(self, directory: Path, model: Model, texts: Sequence[str]) -> None:
        self.index: VectorIndex = open_index(settings_module.resolve(directory, {}, {}, {}))
        self.model = model
        made = [
            {
                "chunk_id": f"c{number}", "object_id": f"chat/acme/{number}", "customer": "acme", "modality": "chat",
                "fingerprint": model.card.fingerprint, "source_model": "inline", "text": text, "vector": vector,
                "occurred_at": NOON + timedelta(minutes=number),
            }
            for number, (text, vector) in enumerate(zip(texts, model.run(texts), strict=True))
        ]  # fmt: skip
        self.index.upsert(rows(tables.EMBEDDINGS, made))
        self.index.set_position(len(texts))

    def ask(self, query: str, **only: Any) -> tuple[Hit, ...]:
        return search(self.index, self.model, query, embedded=0, **only).hits

    def texts(self, query: str, **only: Any) -> list[str]:
        return [hit.entry.text for hit in self.ask(query, **only)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """As many lines again as are looked at to weigh words by, and most of them alike."""
    return Lake(tmp_path_factory.mktemp("lake"), loaded("static"), [*ALIKE, *AMONG_THEM, *CJK])


@pytest.fixture(scope="module", params=["static", "minilm", "bge", "lexical", "narrow"])
def support(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    yield Lake(tmp_path_factory.mktemp("support"), loaded(request.param), list(read_texts().values()))


def loaded(name: str) -> Model:
    model: Model = Narrow() if name == "narrow" else load_model(name)
    model.load()
    return model


def test_nonsense_is_answered_with_nothing_whatever_the_embedder(support: Lake) -> None:
    found = {word: support.texts(word) for word in (*NONSENSE, *MORE_NONSENSE)}
    assert not {word: hits[0] for word, hits in found.items() if hits}


def test_codes_and_names_come_first_whatever_the_embedder(support: Lake) -> None:
    texts = read_texts()
    for question in read_questions():
        if question.kind in {"code", "cjk"}:
            assert support.texts(question.text)[0] in {texts[name] for name in question.answers}, question.text


def test_a_literal_hit_has_the_same_score_whatever_is_asked_and_whatever_the_embedder(support: Lake) -> None:
    scores = [support.ask(word)[0].score for word in ("router", "HALLVARD", "退款", "10042", "forgot password")]
    assert min(scores) >= 0.9 and max(scores) <= 1.0


def test_nonsense_is_answered_with_nothing_among_lines_that_are_alike(lake: Lake) -> None:
    assert not {word: hits for word in (*NONSENSE, *MORE_NONSENSE) if (hits := lake.texts(word))}


def test_a_number_that_one_line_has_comes_before_words_that_all_have(lake: Lake) -> None:
    assert lake.texts("order 10042")[0] == AMONG_THEM[0]
    assert lake.texts("has order 10042 arrived, can you tell me?")[0] == AMONG_THEM[0]
    assert lake.texts("lindqvist")[0] == lake.texts("anna.lindqvist@fabrikam.example")[0] == AMONG_THEM[4]


def test_other_forms_and_typos_are_found_below_the_word_itself(lake: Lake) -> None:
    assert lake.texts("crashing")[:2] == [AMONG_THEM[2], AMONG_THEM[1]]
    assert lake.texts("crashes")[:2] == [AMONG_THEM[1], AMONG_THEM[2]]
    right, wrong = lake.ask("refund")[0], lake.ask("refnud")[0]
    assert right.entry.text == wrong.entry.text == AMONG_THEM[3]
    assert right.score > wrong.score > 0.3
    assert wrong.snippet[slice(*wrong.marks[0])] == "refund"


def test_words_of_a_script_without_blanks_fill_the_limit(lake: Lake) -> None:
    for word in ("退款", "订单", "我的订单号", "单"):
        hits = lake.ask(word)
        assert len(hits) == 10 and all(hit.score >= 0.9 for hit in hits), word
        assert all(hit.snippet[slice(*hit.marks[0])] == word for hit in hits)


def test_who_has_one_of_two_words_is_found_behind_who_fits_by_meaning(tmp_path: Path) -> None:
    texts = ["The version with the new colours is slow.", "Web pages take forever to open.", *ALIKE[:30]]
    lake = Lake(tmp_path, loaded("bge"), texts)
    assert [(hit.entry.text, hit.why) for hit in lake.ask("slow broadband")[:2]] == [
        (texts[1], "meaning"),
        (texts[0], "words and meaning"),
    ]
    assert lake.texts("slow zebra")[0] == texts[0]


def test_a_word_that_nobody_wrote_does_not_hide_who_has_the_other(tmp_path: Path) -> None:
    texts = ["Our heating has been cold since Monday, please send somebody.", "The screen is black.", *ALIKE[:30]]
    lake = Lake(tmp_path, loaded("static"), texts)
    assert texts[0] in lake.texts("heating") and texts[0] in lake.texts("heating broken")


def test_a_hit_says_why(lake: Lake) -> None:
    assert lake.ask("refund")[0].why == "words and meaning"
    assert {hit.why for hit in lake.ask("10042")[:1]} == {"words"}
    assert lake.ask("money back for furniture")[0].why == "meaning"


def test_the_name_of_a_file_finds_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", Lexical(), ["nothing of the kind"])
    named = {
        "chunk_id": "f", "object_id": "images/acme/2026-03-01/error%20report_v7.png", "customer": "acme",
        "modality": "image", "fingerprint": lake.model.card.fingerprint, "text": "Error 502",
        "vector": lake.model.run(["Error 502"])[0], "occurred_at": NOON,
    }  # fmt: skip
    lake.index.upsert(rows(tables.EMBEDDINGS, [named], first_seq=1))
    for query in ("error report_v7.png", "report_v7", "report"):
        assert [hit.entry.chunk_id for hit in lake.ask(query)] == ["f"], query
    assert lake.texts("acme") == []
