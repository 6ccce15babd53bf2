"""What the fastembed adapters promise, shown on tiny models of the same layout, loaded by the very same code."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline import load_offline
from tiny_onnx import COLOURS, DIMENSION, make_clip_text, make_clip_vision, make_text_model

from headwater.errors import InvalidRequest, Unavailable
from headwater.flow.models.fastembed_text import DIMENSIONS
from headwater.flow.models.registry import load_model


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_model(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("clip")
    vision, text = make_clip_vision(place / "vision"), make_clip_text(place / "text")
    return {"vision_path": str(vision), "text_path": str(text), "dimension": COLOURS}


def made(kind: str, **options: Any) -> Any:
    return load_model("m", {"m": {"kind": kind, **options}})


def loaded(kind: str, **options: Any) -> Any:
    model = made(kind, **options)
    model.load()
    return model


def test_a_model_of_ones_own_gives_unit_vectors_that_no_neighbour_changes(text: Path) -> None:
    model = loaded("fastembed", model="our/tiny", path=str(text), dimension=DIMENSION)
    texts = ["refund", "refund order invoice weather", "sunny"]
    vectors = model.run(texts)
    assert all(vector.dtype == np.float32 and vector.shape == (DIMENSION,) for vector in vectors)
    assert np.allclose([np.linalg.norm(vector) for vector in vectors], 1, atol=1e-6)
    for one, vector in zip(texts, vectors, strict=True):
        assert np.array_equal(model.run([one])[0], vector)
    assert not np.allclose(vectors[0], vectors[2]) and model.run([]) == []


def test_a_listed_model_is_loaded_from_a_directory_by_its_own_name(tmp_path: Path) -> None:
    place = make_text_model(tmp_path / "bge", "model_optimized.onnx")
    model = loaded("fastembed", model="BAAI/bge-small-en-v1.5", path=str(place), dimension=DIMENSION)
    assert model.card.name == "fastembed/BAAI/bge-small-en-v1.5"
    assert np.isclose(np.linalg.norm(model.run(["refund order"])[0]), 1)


def test_the_same_files_pooled_in_another_way_are_another_model(text: Path) -> None:
    mean, first = (
        loaded("fastembed", model="our/tiny", path=str(text), dimension=DIMENSION, pooling=pooling)
        for pooling in ("mean", "cls")
    )
    assert mean.card.fingerprint != first.card.fingerprint
    assert not np.allclose(mean.run(["refund order"])[0], first.run(["refund order"])[0])
    assert np.allclose(first.run(["refund order"])[0], first.run(["refund weather"])[0])


def test_a_text_finds_its_picture(clip: dict[str, Any]) -> None:
    model = loaded("fastembed-clip", **clip)
    colours = {"red": (230, 20, 20), "green": (20, 230, 20), "blue": (20, 20, 230)}
    pictures = [np.full((48, 64, 3), colour, np.uint8) for colour in colours.values()]
    vectors = np.array(model.run(pictures))
    assert vectors.shape == (3, COLOURS) and np.allclose(np.linalg.norm(vectors, axis=1), 1)
    for at, word in enumerate(colours):
        (query,) = model.run([word])
        assert query.dtype == np.float32 and int(np.argmax(vectors @ query)) == at
    mixed = model.run(["red", pictures[2], "blue"])
    assert np.array_equal(mixed[1], vectors[2]) and float(mixed[2] @ mixed[1]) > 0.7
    assert model.card.accepts == "picture" and model.card.produces == "vector"


def test_the_fingerprint_follows_both_towers(clip: dict[str, Any], tmp_path: Path) -> None:
    other = make_clip_text(tmp_path / "text")
    same = made("fastembed-clip", **{**clip, "text_path": str(other)}).card
    assert same.fingerprint == made("fastembed-clip", **clip).card.fingerprint
    (other / "config.json").write_text('{"pad_token_id": 1}')
    changed = made("fastembed-clip", **{**clip, "text_path": str(other)}).card
    assert changed.fingerprint != same.fingerprint
    assert made("fastembed-clip", **clip, threads=2).card.fingerprint == same.fingerprint


@pytest.mark.parametrize("kind", ["fastembed", "fastembed-clip"])
def test_what_is_not_on_the_machine_is_said_with_the_way_out_and_never_fetched(kind: str, tmp_path: Path) -> None:
    *_, said, network = load_offline(kind=kind, cache_dir=str(tmp_path))
    assert said.startswith("Unavailable: ") and "hf download" in said
    assert network == "asked nobody"


def test_a_model_is_found_in_the_hubs_cache(text: Path, tmp_path: Path) -> None:
    place = tmp_path / "models--our--tiny"
    shutil.copytree(text, place / "snapshots" / ("0" * 40))
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0" * 40)
    model = loaded("fastembed", model="our/tiny", cache_dir=str(tmp_path), dimension=DIMENSION)
    assert len(model.run(["refund"])[0]) == DIMENSION


def test_a_dimension_that_does_not_fit_is_said_at_loading(text: Path, clip: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"dimension = 9 does not fit .* 6 dimensions"):
        loaded("fastembed", model="our/tiny", path=str(text), dimension=9)
    with pytest.raises(InvalidRequest, match="dimension = 9"):
        loaded("fastembed-clip", **{**clip, "dimension": 9})


def test_a_damaged_model_is_refused_in_a_sentence(text: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(text, tmp_path / "tiny"))
    (copy / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(Unavailable, match="cannot be loaded"):
        loaded("fastembed", model="our/tiny", path=str(copy), dimension=DIMENSION)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"model": "our/tiny"}, "dimension"), ({"path": "here"}, "absolute"), ({"pooling": "max"}, "mean, cls")],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        made("fastembed", **options)


def test_the_dimensions_that_cards_tell_are_the_librarys_own() -> None:
    from fastembed import ImageEmbedding, TextEmbedding

    listed = [*TextEmbedding.list_supported_models(), *ImageEmbedding.list_supported_models()]
    assert DIMENSIONS.items() <= {(known["model"], known["dim"]) for known in listed}
