"""Who speaks, told by channel: each side of a call is heard by itself, and what is one sound is heard as before."""

import hashlib
import tracemalloc
from itertools import repeat
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from cheap_models import CheapSpeech, LouderSpeech
from conftest import lake_settings

from headwater.demo.drawing import read_wav, wav_bytes
from headwater.demo.media import RECORDINGS, recordings
from headwater.domain.locator import Locator, Segment
from headwater.domain.words import plain_words, word_error_rate
from headwater.errors import DataFault
from headwater.flow.derive.audio import transcribe
from headwater.flow.derive.channels import LOUDER_DECIBELS, WINDOW, one_side, sides_of
from headwater.flow.derive.source import Limits, Source
from headwater.flow.derive.speakers import together, with_names
from headwater.flow.models.loaded import models_of
from headwater.flow.models.port import SAMPLE_RATE, Said, Samples
from headwater.flow.models.registry import load_model
from headwater.flow.models.spending import Purse, billed
from headwater.upkeep.models.quote import _cost

FIRST, SECOND = "refund-call", "update-call"
SAID = {recording["name"]: plain_words(recording["said"]) for recording in recordings()}


def call(name: str) -> Samples:
    return read_wav(RECORDINGS / f"{name}.wav")


def quiet(seconds: float, decibels: float = -70.0) -> Samples:
    """A line on which nobody speaks."""
    noise = np.random.default_rng(1).normal(0, 32768 * 10 ** (decibels / 20), int(seconds * SAMPLE_RATE))
    return noise.astype(np.int16)


def stereo(left: Samples, right: Samples) -> Samples:
    length = max(len(left), len(right))
    return np.stack([np.pad(side, (0, length - len(side))) for side in (left, right)], axis=1)


def taking_turns() -> tuple[Samples, Samples]:
    """One asks; the other answers after him."""
    one, other = call(FIRST), call(SECOND)
    return np.concatenate([one, quiet(0.4), quiet(len(other) / SAMPLE_RATE)]), np.concatenate(
        [quiet(len(one) / SAMPLE_RATE), quiet(0.4), other]
    )


def bled(own: Samples, other: Samples, decibels: float, delay_ms: int = 0) -> Samples:
    late = np.pad(other, (delay_ms * SAMPLE_RATE // 1000, 0))[: len(other)]
    mixed: Samples = np.clip(own + late * 10 ** (decibels / 20), -32768, 32767).astype(np.int16)
    return mixed


def source(sound: Samples, **about: Any) -> Source:
    data = wav_bytes(sound.reshape(-1), channels=sound.shape[1] if sound.ndim == 2 else 1)
    return Source(data, "audio/wav", Limits.from_settings({}), **about)


def derived(sound: Samples | Source, tmp_path: Path, model: str = "moonshine") -> dict[str, Any]:
    models = models_of(lake_settings(tmp_path / "lake", **{"models.transcribe": model}))
    found = transcribe(sound if isinstance(sound, Source) else source(sound), models)
    return {name: value for name, value in found.items() if name != "model_seconds"}


def heard(row: dict[str, Any], speaker: str) -> str:
    return " ".join(part["text"] for part in row["segments"] if part["speaker"] == speaker)


def test_each_side_is_heard_by_itself_in_the_order_of_time(tmp_path: Path) -> None:
    row = with_names(derived(stereo(*taking_turns()), tmp_path), "")
    assert [part["speaker"] for part in row["segments"]] == ["0", "1"]
    assert word_error_rate(SAID[FIRST], plain_words(heard(row, "0"))) < 0.1
    assert word_error_rate(SAID[SECOND], plain_words(heard(row, "1"))) < 0.1
    starts = [part["start_ms"] for part in row["segments"]]
    assert starts == sorted(starts) and starts[1] == pytest.approx(len(call(FIRST)) / 16 + 400, abs=400)
    assert row["text"] == " ".join(part["text"] for part in row["segments"])
    assert row["language"] == "en" and 0.8 < row["confidence"] <= 1


def test_two_who_speak_at_once_are_both_understood(tmp_path: Path) -> None:
    row = with_names(derived(stereo(call(FIRST), call(SECOND)), tmp_path), "agent, customer")
    assert word_error_rate(SAID[FIRST], plain_words(heard(row, "agent"))) < 0.1
    assert word_error_rate(SAID[SECOND], plain_words(heard(row, "customer"))) < 0.1


@pytest.mark.parametrize(("decibels", "delay_ms"), [(-15, 0), (-20, 120), (-30, 0)])
def test_what_comes_through_of_the_other_side_is_heard_once(tmp_path: Path, decibels: int, delay_ms: int) -> None:
    one, other = taking_turns()
    row = derived(stereo(bled(one, other, decibels, delay_ms), bled(other, one, decibels, delay_ms)), tmp_path)
    named = with_names(row, "agent, customer")
    assert word_error_rate(SAID[FIRST], plain_words(heard(named, "agent"))) < 0.1
    assert word_error_rate(SAID[SECOND], plain_words(heard(named, "customer"))) < 0.1


def louder(sound: Samples, decibels: float) -> Samples:
    changed: Samples = (sound * 10 ** (decibels / 20)).astype(np.int16)
    return changed


def in_a_room(sound: Samples) -> Samples:
    """Two microphones, one a metre nearer and a little louder, each with a noise of its own."""
    far = louder(np.pad(sound, (47, 0))[: len(sound)], -3)
    noise = np.random.default_rng(2).normal(0, 60, (len(sound), 2)).astype(np.int16)
    return stereo(sound, far) + noise


@pytest.mark.parametrize(
    "sound",
    [
        stereo(call(FIRST), call(FIRST)),
        stereo(call(FIRST), louder(call(FIRST), -6)),
        in_a_room(call(FIRST)),
        stereo(quiet(3), quiet(3)[::-1]),
        np.zeros((SAMPLE_RATE, 2), np.int16),
        np.zeros((0, 2), np.int16),
    ],
    ids=["the same", "louder", "a room", "a line", "silence", "nothing"],
)
def test_one_sound_in_two_channels_has_no_sides(sound: Samples) -> None:
    assert sides_of(iter([sound])) == ()


@pytest.mark.parametrize("model", ["pocketsphinx", "cheap_models:CheapSpeech"])
def test_a_mono_call_and_its_copy_in_two_channels_are_heard_as_ever(tmp_path: Path, model: str) -> None:
    mono, dual = (derived(sound, tmp_path, model) for sound in (call(FIRST), stereo(call(FIRST), call(FIRST))))
    assert mono == dual
    assert all(part["speaker"] is None for part in mono["segments"])


def test_a_side_on_which_nobody_speaks_is_not_asked_for(tmp_path: Path) -> None:
    for line in (quiet(4), quiet(4, -45.0), np.zeros(10, np.int16)):
        assert sides_of(iter([stereo(line, call(SECOND))])) == (1,)


def test_the_compressed_copy_of_a_call_has_the_same_sides(tmp_path: Path) -> None:
    """As recorders keep them: MP3 of few bits, where what both channels have in common is shared."""
    path = tmp_path / "call.mp3"
    sound = stereo(*taking_turns())
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mp3", rate=SAMPLE_RATE, layout="stereo", bit_rate=32_000)
        frame = av.AudioFrame.from_ndarray(sound.reshape(1, -1), format="s16", layout="stereo")
        frame.sample_rate = SAMPLE_RATE
        for packet in (*stream.encode(frame), *stream.encode(None)):
            out.mux(packet)
    data = Source(path, "audio/mpeg", Limits.from_settings({}))
    row = derived(data, tmp_path, "cheap_models:CheapSpeech")
    assert [part["speaker"] for part in row["segments"]] == ["channel 0", "channel 1"]


def test_how_the_sound_comes_changes_nothing_and_no_moment_is_lost() -> None:
    sound = stereo(*taking_turns())
    whole = np.concatenate([*one_side(iter([sound]), 0)])
    cut = np.concatenate([*one_side(iter(np.array_split(sound, 97)), 0)])
    assert len(whole) == len(sound) and np.array_equal(whole, cut)
    assert sides_of(iter(np.array_split(sound, 97))) == sides_of(iter([sound])) == (0, 1)
    spoken = slice(0, len(call(FIRST)) - WINDOW)
    assert np.array_equal(whole[spoken], sound[spoken, 0]), "where nobody else speaks, nothing is touched"


def test_only_what_is_much_louder_shuts_the_other_side() -> None:
    voice = call(FIRST)
    for decibels, is_heard in ((LOUDER_DECIBELS - 4, True), (LOUDER_DECIBELS + 4, False)):
        own = louder(voice, -decibels)
        let = np.concatenate([*one_side(iter([stereo(voice, own)]), 1)])
        share = float(np.abs(let.astype(np.int64)).sum() / np.abs(own.astype(np.int64)).sum())
        assert share > 0.95 if is_heard else share < 0.1


def test_an_hour_of_two_sides_takes_the_memory_of_seconds() -> None:
    """Who kept what was let through would have 115 MB."""
    block = stereo(*taking_turns())[: 4 * SAMPLE_RATE]
    tracemalloc.start()
    assert sum(len(let) for let in one_side(repeat(block, 900), 0)) == 900 * len(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_both_sides_are_paid_and_counted_one_after_the_other(tmp_path: Path) -> None:
    sound, seconds = stereo(*taking_turns()), len(taking_turns()[0]) / SAMPLE_RATE
    charged: list[float] = []
    with billed(Purse(1.0), charged.append) as bill:
        row = derived(sound, tmp_path, "cheap_models:LouderSpeech")
    assert row["cost"] == pytest.approx(2 * seconds * LouderSpeech.card.price)
    assert row["tokens"] == 14 and row["attempts"] == 2
    assert (bill.calls, bill.cost) == (2, pytest.approx(row["cost"])) and len(charged) == 2


def test_where_the_money_does_not_reach_for_both_none_is_asked(tmp_path: Path) -> None:
    sound, seconds = stereo(*taking_turns()), len(taking_turns()[0]) / SAMPLE_RATE
    with billed(Purse(1.5 * seconds * LouderSpeech.card.price)) as bill, pytest.raises(DataFault, match="budget"):
        derived(sound, tmp_path, "cheap_models:LouderSpeech")
    assert bill.calls == 0


def test_a_quote_tells_the_most_that_two_channels_can_cost() -> None:
    row = {"media_seconds": 60.0, "pages": None, "modality": "audio", "channels": 2}
    card = LouderSpeech.card
    assert _cost(card, row, 0.0, 60) == pytest.approx(2 * 60 * card.price)
    for other in ({"channels": 1}, {"channels": None}, {"channels": 6}, {"modality": "video"}):
        assert _cost(card, {**row, **other}, 0.0, 60) == pytest.approx(60 * card.price)
    assert _cost(CheapSpeech.card, row, 0.0, 60) == 0


def test_sides_become_one_transcript_whatever_their_models_tell() -> None:
    early, late = Segment("hello", Locator(start_ms=10, end_ms=20)), Segment("yes", Locator(start_ms=15, end_ms=30))
    said = together({0: Said("hello", "en", 0.5, (early,), tokens=3), 1: Said("yes", None, None, (late,), attempts=2)})
    assert [part.locator.speaker for part in said.segments] == ["channel 0", "channel 1"]
    assert (said.text, said.language, said.confidence, said.tokens, said.attempts) == ("hello yes", "en", 0.5, 3, 3)
    assert together({0: Said("")}) == Said("")
    assert together({1: Said("no times")}).segments == (Segment("no times", Locator(speaker="channel 1")),)


def test_voices_that_a_model_told_apart_are_kept_where_the_whole_call_is_on_one_channel() -> None:
    parts = tuple(Segment(text, Locator(speaker=voice)) for text, voice in (("hello", "0"), ("yes", "1"), ("so", None)))
    one = Said("hello yes so", segments=parts)
    assert [part.locator.speaker for part in together({1: one}).segments] == ["0", "1", "channel 1"]
    both = together({0: one, 1: one}).segments
    assert {part.locator.speaker for part in both} == {"channel 0", "channel 1"}


def test_a_name_of_the_settings_stands_for_a_channel_and_for_nothing_else() -> None:
    speakers = ["channel 0", "channel 1", "channel 2", "0", None, "channel x"]
    row = {"segments": [{"speaker": speaker} for speaker in speakers]}
    told = [part["speaker"] for part in with_names(row, "agent, customer")["segments"]]
    assert told == ["agent", "customer", "2", "0", None, "x"]
    assert [part["speaker"] for part in with_names(row, "")["segments"]][:3] == ["0", "1", "2"]
    assert with_names({"text": "of no segments"}, "agent") == {"text": "of no segments"}


def test_a_card_is_what_it_was() -> None:
    """What a model is did not change with who is told apart above it: lakes' rows and memos are known by it."""
    assert load_model("pocketsphinx").card.fingerprint == "f60b1cb63e85b840"
    digest = hashlib.sha256(np.concatenate([*one_side(iter([stereo(call(FIRST), quiet(1))]), 0)]).tobytes())
    assert digest.hexdigest() == hashlib.sha256(call(FIRST).tobytes()).hexdigest()
