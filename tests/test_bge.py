"""What BGE promises: its makers' weights, vectors told from a centre, and no network but where it is asked to fetch."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from test_static import PAIRS

from headwater.errors import InvalidRequest, Unavailable
from headwater.flow.models import bge_weights
from headwater.flow.models.bge import CENTRE, Bge
from headwater.flow.models.bge_weights import FETCH, JAR, NETWORK, TOKENIZER, fetch_weights, weights_file
from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model
from headwater.storage.spark.jars import jars_directory


@pytest.fixture(scope="module")
def embedder() -> Model:
    model = load_model("bge")
    model.load()
    return model


def vectors(model: Model, texts: list[str]) -> npt.NDArray[np.float32]:
    return np.array(model.run(texts))


def common_words() -> list[str]:
    """Every eighth of the 4,000 commonest of three letters and more: a vocabulary lists what is common first."""
    numbers = json.loads(weights_file(TOKENIZER).read_text(encoding="utf-8"))["model"]["vocab"]
    words = [word for word in sorted(numbers, key=numbers.__getitem__) if word.isascii() and word.isalpha()]
    return [word for word in words if len(word) > 2][:4000:8]


def test_the_centre_is_that_of_common_words(embedder: Bge) -> None:
    found = np.mean([embedder.uncentred(word) for word in common_words()], axis=0)
    assert np.allclose(np.load(CENTRE), found, atol=5e-3)  # as far as processors differ


def test_a_question_finds_its_answer_without_a_shared_word(embedder: Model) -> None:
    near = vectors(embedder, list(PAIRS)) @ vectors(embedder, list(PAIRS.values())).T
    assert near.argmax(axis=1).tolist() == list(range(len(PAIRS)))


def test_texts_that_have_nothing_to_do_with_each_other_lie_at_a_right_angle(embedder: Model) -> None:
    """Without the centre they lie at 0.5 and more."""
    texts = ["The parcel never came.", "He plays the piano every evening.", "Photosynthesis needs light."]
    found = vectors(embedder, texts)
    assert np.abs((found @ found.T)[np.triu_indices(3, 1)]).max() < 0.2


def test_vectors_are_of_unit_length_and_no_neighbour_changes_one(embedder: Model) -> None:
    texts = ["Refund for my order", "Ärger mit der Rechnung " * 4, "", "  ", "\ud800 half a pair", "订单还没有到"]
    found = vectors(embedder, texts)
    assert found.shape == (6, embedder.card.dimension) and found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), [1, 1, 0, 0, 1, 1], atol=1e-5)
    assert all(np.array_equal(embedder.run([text])[0], vector) for text, vector in zip(texts, found, strict=True))


def test_of_a_long_text_what_comes_later_is_not_looked_at(embedder: Model) -> None:
    long = "refund " * 600
    first, second = vectors(embedder, [long, long + "the weather is sunny"])
    assert np.array_equal(first, second)


def test_it_knows_words_and_not_what_nobody_says(embedder: Bge) -> None:
    assert [embedder.knows(word) for word in ("voucher", "password", "broken")] == [1, 1, 1]
    assert [embedder.knows(word) for word in ("zorbelvix", "krantulope", "x" * 200, "пароль")] == [0.25, 0.25, 0, 0]


def test_without_its_weights_it_says_how_to_come_by_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    for use in (lambda: load_model("bge").card, lambda: load_model("bge").load()):
        with pytest.raises(InvalidRequest, match=f"Fetch them once, where there is a network: {FETCH}"):
            use()
    assert not list(tmp_path.iterdir())


def test_fetching_is_refused_in_one_sentence_without_a_network_and_does_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=9"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", nowhere)
    fetch_weights()  # they are there: nobody is asked
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    done = subprocess.run(
        [sys.executable, *FETCH.split()[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode and line.startswith(f"{JAR.file_name} could not be fetched; check the network")
    assert not (tmp_path / "models").exists()


def test_a_jar_that_was_copied_here_is_unpacked_and_one_with_other_bytes_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = jars_directory() / JAR.file_name
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    jars_directory().mkdir()
    copied = jars_directory() / JAR.file_name
    copied.write_bytes(b"no jar")
    with pytest.raises(Unavailable, match=r"cannot be read: .* Remove it and try again"):
        fetch_weights()
    copied.unlink()
    copied.symlink_to(real)
    with monkeypatch.context() as patched:
        patched.setattr(bge_weights, "NETWORK", NETWORK._replace(sha256="0" * 64))
        with pytest.raises(Unavailable, match="other bytes than expected"):
            fetch_weights()
    assert not weights_there()
    fetch_weights()
    for packed in (NETWORK, TOKENIZER):
        with weights_file(packed).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == packed.sha256


def weights_there() -> bool:
    try:
        return weights_file(NETWORK).is_file()
    except InvalidRequest:
        return False
