"""What the faster-whisper adapter promises, shown on a tiny model of the same format, loaded by the very same code."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline import load_offline
from tiny_whisper import make_whisper

from headwater.demo.drawing import read_wav
from headwater.demo.media import RECORDINGS
from headwater.errors import InvalidRequest, Unavailable
from headwater.flow.models import whisper
from headwater.flow.models.confidence import confidence_of
from headwater.flow.models.port import SAMPLE_RATE, Sound
from headwater.flow.models.registry import load_model

REVISION = "0123456789abcdef0123456789abcdef01234567"
CALL = read_wav(RECORDINGS / "refund-call.wav")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whisper(tmp_path_factory.mktemp("whisper") / "tiny")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))


def made(model: str | Path, **options: Any) -> Any:
    return load_model("m", {"m": {"kind": "faster-whisper", "model": str(model), **options}})


def heard(model: Any, *sounds: Any) -> Any:
    model.load()
    return model.run([Sound(iter([samples])) for samples in sounds])


def test_a_call_is_heard_in_segments_with_times_language_and_confidence(weights: Path) -> None:
    (said,) = heard(made(weights), CALL)
    assert said.segments and said.text == " ".join(part.text for part in said.segments)
    assert said.language == "en" or (said.language and len(said.language) <= 3)
    assert 0 < said.confidence < 1
    end_ms = len(CALL) * 1000 // SAMPLE_RATE
    assert all(0 <= part.locator.start_ms <= part.locator.end_ms <= end_ms for part in said.segments)


def test_the_same_sound_gives_the_same_words_however_it_comes(weights: Path) -> None:
    model = made(weights, vad=False, beam_size=1)
    first, _ = heard(model, CALL, CALL[::-1].copy())
    assert model.run([Sound(iter(np.array_split(CALL, 7)))])[0] == first


def test_silence_and_nothing_have_no_words(weights: Path) -> None:
    for said in heard(made(weights), CALL * 0, CALL[:0]):
        assert (said.text, said.language, said.confidence, said.segments) == ("", None, None, ())


def test_a_language_that_is_told_is_kept(weights: Path) -> None:
    assert heard(made(weights, language="de"), CALL)[0].language == "de"


def test_long_sound_is_heard_in_pieces_on_one_clock(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whisper, "PIECE_SECONDS", 30)
    sound = np.tile(CALL, 70 * SAMPLE_RATE // len(CALL) + 1)
    (said,) = heard(made(weights, vad=False, beam_size=1), sound)
    starts = [part.locator.start_ms for part in said.segments]
    assert starts == sorted(starts) and starts[-1] > 60_000


def test_the_fingerprint_follows_the_weights_which_are_read_once(weights: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(weights, tmp_path / "tiny"))
    first = made(copy).card
    assert first.fingerprint == made(weights).card.fingerprint and first.name == "faster-whisper/tiny"
    (copy / ".cache").mkdir()
    (copy / ".cache" / "model.bin.metadata").write_text("fetched on Sunday")
    assert made(copy).card.fingerprint == first.fingerprint
    file = copy / "model.bin"
    before = file.stat()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert made(copy).card.weights_digest != first.weights_digest
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert made(copy).card.weights_digest == first.weights_digest  # same size and time: remembered, not read
    assert made(weights, beam_size=1).card.fingerprint != first.fingerprint
    assert made(weights, cpu_threads=4).card.fingerprint == first.fingerprint


def test_a_size_is_found_in_the_hubs_cache_and_pinned_by_its_revision(weights: Path, tmp_path: Path) -> None:
    place = tmp_path / "models--Systran--faster-whisper-tiny"
    shutil.copytree(weights, place / "snapshots" / REVISION)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(REVISION)
    assert heard(made("tiny", cache_dir=str(tmp_path)), CALL)[0].segments
    pinned = made("tiny", cache_dir=str(tmp_path), revision=REVISION)
    assert heard(pinned, CALL)[0].segments
    assert pinned.card.weights_digest == f"tiny@{REVISION}" != made("tiny").card.weights_digest


def test_what_is_not_on_the_machine_is_said_with_the_way_out_and_never_fetched(tmp_path: Path) -> None:
    said, network = load_offline(kind="faster-whisper", model="small", cache_dir=str(tmp_path))
    assert said.startswith("Unavailable: The weights of small are not on this machine") and "hf download" in said
    assert network == "asked nobody"


def test_a_damaged_or_unknown_model_is_refused_in_a_sentence(weights: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(weights, tmp_path / "tiny"))
    (copy / "model.bin").write_bytes(b"not a model")
    with pytest.raises(Unavailable, match="cannot be loaded"):
        made(copy).load()
    (copy / "tokenizer.json").unlink()
    with pytest.raises(Unavailable, match=r"no tokenizer\.json"):
        made(copy).load()
    with pytest.raises(InvalidRequest, match="no model of faster-whisper"):
        made("enormous").load()
    with pytest.raises(InvalidRequest, match="has no files"):
        _ = made(tmp_path / "nothing").card


def test_confidence_is_weighed_by_time() -> None:
    assert confidence_of([]) is None and confidence_of([(0.5, 1)]) == 1
    assert confidence_of([(-1, 1), (-1, 0)]) == pytest.approx(np.exp(-1))
