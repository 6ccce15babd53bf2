"""What static embeddings promise: near in meaning without a shared word, equal everywhere, and no network."""

import hashlib
import time

import numpy as np
import numpy.typing as npt
import pytest

from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model

# Each question with the one text that answers it, among the others.
PAIRS = {
    "refund": "I would like to cancel my order and get my money back.",
    "cracked display": "I want to return the computer because the screen is broken.",
    "opening times": "Thank you for calling, our office is open from Monday to Friday.",
    "I cannot sign in": "I forgot my password and cannot log in.",
    "stored conversations": "How long do you keep the recordings of our calls?",
    "wrong charge on my credit card": "My account was billed two times this month.",
}


@pytest.fixture(scope="module")
def embedder() -> Model:
    model = load_model("static")
    model.load()
    return model


def vectors(model: Model, texts: list[str]) -> npt.NDArray[np.float32]:
    return np.array(model.run(texts))


def test_a_question_finds_its_answer_without_a_shared_word(embedder: Model) -> None:
    near = vectors(embedder, list(PAIRS)) @ vectors(embedder, list(PAIRS.values())).T
    assert near.argmax(axis=1).tolist() == list(range(len(PAIRS)))


def test_vectors_are_of_unit_length_and_equal_on_every_machine(embedder: Model) -> None:
    texts = ["Refund for my order", "Ärger mit der Rechnung", "", "  ", "\ud800 half a pair", "订单还没有到"]
    found = vectors(embedder, texts)
    assert found.shape == (6, embedder.card.dimension) and found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), [1, 1, 0, 0, 1, 1], atol=1e-4)
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == "16e445e4bd037eea"
    assert all(np.array_equal(embedder.run([text])[0], vector) for text, vector in zip(texts, found, strict=True))


def test_it_keeps_up_with_a_stream(embedder: Model) -> None:
    words = [f"word{number * 7919 % 5000}" for number in range(12_000)]
    texts = [" ".join(words[start : start + 12]) for start in range(0, 12_000, 12)]
    embedder.run(texts)
    started = time.process_time()
    embedder.run(texts)
    speed = len(texts) / (time.process_time() - started)
    print(f"static: {speed:,.0f} texts a second and core")
    assert speed > 2_000
