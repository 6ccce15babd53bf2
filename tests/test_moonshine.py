"""What Moonshine promises: words right, times right, the same words each time, and none for what is not English."""

import resource
import sys
from collections.abc import Iterator
from importlib import metadata
from itertools import cycle, pairwise
from pathlib import Path

import numpy as np
import pytest

from headwater.demo.drawing import read_wav
from headwater.demo.media import RECORDINGS, recordings
from headwater.domain.words import plain_words, word_error_rate
from headwater.errors import DataFault, InvalidRequest
from headwater.flow.models.moonshine import Moonshine, Understood
from headwater.flow.models.moonshine_network import read_tokens
from headwater.flow.models.moonshine_speakers import Turn, joined, parts
from headwater.flow.models.port import SAMPLE_RATE, Model, Said, Samples, Sound
from headwater.flow.models.registry import load_model
from headwater.flow.models.voiced import LONGEST_SECONDS, stretches

sys.path.append(str(Path(__file__).parents[1] / "scripts"))
from espeak import Speaker

FOREIGN = {
    "de+m3": "Guten Tag, ich möchte wissen, wann mein Paket ankommt, denn ich warte schon seit zwei Wochen. "
    "Auf der Rechnung steht auch noch eine Gebühr, von der mir niemand etwas gesagt hat.",
    "es+f2": "Buenos días, quisiera saber cuándo llega mi paquete, porque llevo dos semanas esperando. "
    "La entrega llegó el martes, pero dos de las seis sillas estaban dañadas.",
    "fr+m1": "Bonjour, je voudrais savoir quand mon colis va arriver, car j'attends depuis deux semaines. "
    "Mon imprimante est connectée au réseau, mais l'ordinateur ne la trouve plus.",
}

DIALOGUE = (
    ("0", "en-us+m3", "Good morning, how can I help you today?"),
    ("1", "en-us+f5", "Hello, the screen of my computer is broken since Monday."),
    ("0", "en-us+m3", "Could you please tell me the number of the order?"),
    ("1", "en-us+f5", "It is on the letter that you sent me, and I paid in the shop."),
)


@pytest.fixture(scope="module")
def ears() -> Moonshine:
    model = Moonshine()
    model.load()
    return model


def hear(model: Moonshine, samples: Samples) -> Said:
    return model.run([Sound(iter([samples]))])[0]


def call(name: str) -> Samples:
    return read_wav(RECORDINGS / f"{name}.wav")


def pause(seconds: float) -> Samples:
    return np.zeros(int(seconds * SAMPLE_RATE), np.int16)


def test_calls_are_heard_with_hardly_a_word_missed(ears: Moonshine) -> None:
    errors = []
    for recording in recordings():
        said = hear(ears, call(recording["name"]))
        errors.append(word_error_rate(plain_words(recording["said"]), plain_words(said.text)))
        assert said.language == "en" and said.confidence is not None and 0.8 < said.confidence <= 1
        assert " ".join(part.text for part in said.segments) == said.text
    assert sum(errors) / len(errors) < 0.08


def test_what_was_heard_before_and_how_it_comes_change_nothing(ears: Moonshine) -> None:
    first, second = call("refund-call"), call("update-call")
    alone = hear(ears, first)
    hear(ears, second)
    assert ears.run([Sound(iter(np.array_split(first, 7)))]) == [alone]


def test_silence_and_noise_are_no_words(ears: Moonshine) -> None:
    noise = np.random.default_rng(1).normal(0, 1000, 6 * SAMPLE_RATE).astype(np.int16)
    for samples in (pause(0), pause(0.01), pause(3), noise, noise // 100):
        assert hear(ears, samples) == Said("")


@pytest.mark.parametrize("voice", FOREIGN)
def test_another_language_is_told_and_not_filled_with_invented_english(ears: Moonshine, voice: str) -> None:
    samples = Speaker().say(FOREIGN[voice], voice, 160)
    with pytest.raises(DataFault, match="faster-whisper") as raised:
        hear(ears, samples)
    assert raised.value.reason == "LANGUAGE"


def test_what_is_told_to_be_english_is_heard_as_english() -> None:
    model = Moonshine(language="en")
    model.load()
    assert hear(model, Speaker().say(FOREIGN["de+m3"], "de+m3", 160)).language == "en"
    assert model.card.fingerprint != Moonshine().card.fingerprint
    with pytest.raises(InvalidRequest, match="faster-whisper"):
        Moonshine(language="de")


def test_a_repetition_is_no_proof_of_being_understood() -> None:
    understood = Understood()
    understood.add([7, 8, 7, 8, 7, 8], [-2.0, -2.0, -0.5, 0.0, 0.0, 0.0])
    assert understood.mean == -1.5


def long_call(seconds: float) -> tuple[Samples, list[tuple[int, str]]]:
    """Known recordings one after the other, with long and short pauses; each with where it begins, in milliseconds."""
    samples: list[Samples] = []
    begins: list[tuple[int, str]] = []
    length = 0
    for recording, silence in zip(cycle(recordings()), cycle((0.8, 2.5, 0.9, 8.0, 1.2, 25.0, 0.7))):
        if length > seconds * SAMPLE_RATE:
            return np.concatenate(samples), begins
        begins.append((length * 1000 // SAMPLE_RATE, recording["name"]))
        samples += [call(recording["name"]), pause(silence)]
        length += len(samples[-2]) + len(samples[-1])
    raise AssertionError


def require_nothing_lost(ears: Moonshine, seconds: float) -> None:
    samples, begins = long_call(seconds)
    true = {recording["name"]: plain_words(recording["said"]) for recording in recordings()}
    said = hear(ears, samples)
    assert word_error_rate(" ".join(true[name] for _, name in begins), plain_words(said.text)) < 0.08
    for (at, name), (after, _) in pairwise([*begins, (len(samples) * 1000 // SAMPLE_RATE, "")]):
        parts = [part for part in said.segments if at <= (part.locator.start_ms or 0) < after]
        heard = plain_words(" ".join(part.text for part in parts))
        assert abs((parts[0].locator.start_ms or 0) - at) < 300, name
        assert abs(len(heard.split()) - len(true[name].split())) <= 2 and word_error_rate(true[name], heard) < 0.5, (
            heard
        )
    assert all(before.locator.end_ms <= after.locator.start_ms for before, after in pairwise(said.segments))


def test_a_long_call_loses_and_doubles_no_word_and_its_times_are_right(ears: Moonshine) -> None:
    require_nothing_lost(ears, 200)


@pytest.mark.soak
def test_an_hour_takes_the_memory_of_a_minute_and_loses_no_word(ears: Moonshine) -> None:
    hear(ears, long_call(60)[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    require_nothing_lost(ears, 3600)
    # Twice the sound itself, which this test holds: 115 MB each.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000


def test_speech_without_a_pause_is_cut_into_stretches_that_together_are_all_of_it() -> None:
    voice = np.concatenate([call(recording["name"])[4_000:-6_000] for recording in recordings()] * 6)
    parts = list(stretches(iter([voice])))
    assert max(len(samples) for _, samples in parts) <= LONGEST_SECONDS * SAMPLE_RATE
    assert sum(len(samples) for _, samples in parts) > len(voice) * 0.9
    assert all(first + len(samples) <= after for (first, samples), (after, _) in pairwise(parts))
    assert all(np.array_equal(voice[first : first + len(samples)], samples) for first, samples in parts)


def test_a_day_is_looked_at_half_a_minute_at_a_time() -> None:
    given = 0
    loudness = np.repeat(np.tile([300, 4_000], 5), SAMPLE_RATE // 10)  # ten syllables a second, without a pause
    second = (np.random.default_rng(2).normal(0, 1, SAMPLE_RATE) * loudness).astype(np.int16)

    def blocks() -> Iterator[Samples]:
        nonlocal given
        for _ in range(600):
            given += SAMPLE_RATE
            yield second

    told = 0
    for first, samples in stretches(blocks()):
        told = first + len(samples)
        assert len(samples) <= LONGEST_SECONDS * SAMPLE_RATE and given - first < 50 * SAMPLE_RATE
    assert told > 590 * SAMPLE_RATE


def test_tokens_are_read_with_lengths_of_one_byte_and_of_two() -> None:
    assert read_tokens(b"\x00\x02ab" + bytes([128 + 72, 1]) + b"x" * 200) == [b"", b"ab", b"x" * 200]


def test_where_there_is_no_wheel_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(InvalidRequest, match="pocketsphinx"):
        print(load_model("moonshine").card)


def two_who_talk() -> tuple[Samples, list[tuple[int, int, str]]]:
    """A man and a woman on one line, without a pause that would part them; who says what, from when to when in ms."""
    speaker, samples, said = Speaker(), [], []
    for name, voice, text in DIALOGUE:
        spoken = speaker.say(text, voice, 160)
        begin = sum(map(len, samples)) // 16
        samples += [spoken, pause(0.25)]
        said.append((begin, begin + len(spoken) // 16, name))
    return np.concatenate(samples), said


@pytest.fixture(scope="module")
def apart() -> Model:
    model = load_model("apart", {"apart": {"kind": "moonshine", "diarise": True}})
    model.load()
    return model


def test_two_on_one_line_are_told_apart_on_request(apart: Model) -> None:
    assert apart.card.fingerprint != Moonshine().card.fingerprint == Moonshine(diarise=False).card.fingerprint
    samples, truth = two_who_talk()
    said = apart.run([Sound(iter(np.array_split(samples, 9)))])[0]
    whole = " ".join(text for _, _, text in DIALOGUE)
    assert word_error_rate(plain_words(whole), plain_words(said.text)) < 0.25  # espeak mumbles
    for begin, end, name in truth:
        middle = (begin + end) // 2
        (part,) = (one for one in said.segments if one.locator.start_ms <= middle < one.locator.end_ms)
        assert part.locator.speaker == name
    alone = apart.run([Sound(iter([samples]), is_whole=False)])[0]
    assert {part.locator.speaker for part in alone.segments} == {None}, "the side of a call is known"


def test_silence_is_nobody_who_speaks(apart: Model) -> None:
    assert apart.run([Sound(iter([pause(0)])), Sound(iter([pause(2)]))]) == [Said(""), Said("")]


def test_turns_follow_one_another_and_a_stretch_is_cut_where_they_change() -> None:
    second = SAMPLE_RATE
    spans = [Turn(0, 4 * second, 7), Turn(3 * second, 6 * second, 2), Turn(6 * second, 6 * second + 99, 7)]
    turns = joined(spans)
    assert turns == [Turn(0, 4 * second, 0), Turn(4 * second, 6 * second, 1)]
    assert list(parts(second, 4 * second, turns)) == [(second, 4 * second, 0), (4 * second, 5 * second, 1)]
    assert list(parts(8 * second, second, turns)) == [(8 * second, 9 * second, None)]
