"""Word error of the built-in speech models, and how well a language that they do not know is told.

Sentences of our own, spoken by four voices of eSpeak NG at three speeds, the demo's recordings, and two human readings
of known texts that come with Moonshine's wheel. Signs and capitals do not count.
"""

import math
import sys
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np

from headwater.demo.drawing import read_wav
from headwater.demo.media import RECORDINGS, recordings
from headwater.domain.words import edits, plain_words
from headwater.errors import DataFault
from headwater.flow.models.port import SAMPLE_RATE, Model, Samples, Sound
from headwater.flow.models.registry import load_model
from quality import table
from quality.sentences import ENGLISH, FOREIGN, READINGS

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from espeak import Speaker, resampled

MODELS: Final = ("moonshine", "pocketsphinx")
VOICES: Final = ("en-us+f2", "en-us+m3", "en-us+f5", "en-gb-x-rp+m1")
SPEEDS: Final = (150, 165, 180)
NOISE_DECIBELS: Final = 15.0
OVERLAP_DECIBELS: Final = 10.0
CLEAN: Final = "clean"
TELEPHONE: Final = "telephone, 8 kHz"
# The most that the new model may miss, as a share of what the old one does.
GOALS: Final = {CLEAN: 1 / 3, TELEPHONE: 1 / 2}
SEED: Final = 20261118


@dataclass(frozen=True, slots=True)
class Clip:
    said: str
    samples: Samples


@dataclass(slots=True)
class Heard:
    words: int = 0
    missed: int = 0
    clips: int = 0
    refused: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def error(self) -> float:
        return self.missed / max(1, self.words)


def report(shorter: bool) -> None:
    models = loaded_models()
    sets = _sets(shorter)
    found = {(name, kind): hear(model, clips) for kind, clips in sets.items() for name, model in models.items()}
    new, old = MODELS
    table.show(
        "Speech: word error (words missed, added or changed, of those said); CPU seconds for a second of sound",
        ("set", "clips", "seconds", *MODELS, "ratio", *(f"CPU {name}" for name in MODELS), "refused"),
        [
            (
                kind,
                found[new, kind].clips,
                round(found[new, kind].seconds),
                *(table.percent(found[name, kind].error) for name in MODELS),
                table.ratio(found[new, kind].error, found[old, kind].error),
                *(found[name, kind].cpu / found[name, kind].seconds for name in MODELS),
                found[new, kind].refused,
            )
            for kind in sets
        ],
    )
    print()
    for kind, share in GOALS.items():
        table.goal(f"word error, {kind}:", found[new, kind].error, found[old, kind].error * share)
    _report_languages(models[new], shorter)


def _report_languages(model: Model, shorter: bool) -> None:
    speaker, lines = Speaker(), []
    for voice, sentences in FOREIGN.items():
        given = sentences[:2] if shorter else sentences
        clips = [Clip("", speaker.say(text, f"{voice}{('+f2', '+m3')[at % 2]}", 160)) for at, text in enumerate(given)]
        pairs = [
            Clip("", np.concatenate([one.samples, other.samples]))
            for one, other in zip(clips[::2], clips[1::2], strict=False)
        ]
        for kind, group in (("one sentence", clips), ("two sentences", pairs)):
            heard = hear(model, group)
            lines.append((voice, kind, heard.clips, heard.refused, heard.clips - heard.refused))
    table.show(
        "Speech that is not English: told as such by moonshine, or filled with invented English",
        ("language", "length", "clips", "told", "invented"),
        lines,
    )


def loaded_models() -> dict[str, Model]:
    models = {name: load_model(name) for name in MODELS}
    for model in models.values():
        model.load()
    return models


def hear(model: Model, clips: Sequence[Clip]) -> Heard:
    heard = Heard()
    for clip in clips:
        started = time.process_time()
        try:
            text = model.run([Sound(iter([clip.samples]))])[0].text
        except DataFault:
            text, heard.refused = "", heard.refused + 1
        heard.cpu += time.process_time() - started
        said = plain_words(clip.said).split()
        heard.words, heard.missed = heard.words + len(said), heard.missed + edits(said, plain_words(text).split())
        heard.clips, heard.seconds = heard.clips + 1, heard.seconds + len(clip.samples) / SAMPLE_RATE
    return heard


def _sets(shorter: bool) -> dict[str, list[Clip]]:
    clean = list(spoken(ENGLISH[:6] if shorter else ENGLISH))
    demo = [Clip(one["said"], read_wav(RECORDINGS / f"{one['name']}.wav")) for one in recordings()]
    draw, once = np.random.default_rng(SEED), clean[::2]
    return {
        CLEAN: clean,
        "demo's recordings": demo,
        "human readings": list(_readings()),
        f"noise, {NOISE_DECIBELS:.0f} dB": _changed(once, lambda one, _: _noisy(one, draw)),
        TELEPHONE: _changed(once, lambda one, _: telephone(one)),
        f"another voice, {OVERLAP_DECIBELS:.0f} dB below": _changed(once, _overlapped),
    }


def spoken(sentences: Sequence[str]) -> Iterator[Clip]:
    """Each sentence by two voices."""
    speaker = Speaker()
    for number, sentence in enumerate(sentences):
        for turn in (0, 2):
            voice = VOICES[(number + turn + turn // 2) % len(VOICES)]
            samples = speaker.say(sentence, voice, SPEEDS[(number + turn) % len(SPEEDS)], 40 + number % 3 * 8)
            yield Clip(sentence, np.pad(samples, SAMPLE_RATE // 4))


def _readings() -> Iterator[Clip]:
    for name, said in READINGS.items():
        path = metadata.distribution("moonshine-voice").locate_file(f"moonshine_voice/assets/{name}")
        with wave.open(str(path), "rb") as file:
            rate, samples = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), np.int16)
        yield Clip(said, resampled(samples, rate))


def _changed(clips: Sequence[Clip], change: Callable[[Samples, Samples], Samples]) -> list[Clip]:
    """Each clip with a change that may need the clip after it."""
    return [
        Clip(clip.said, change(clip.samples, clips[(number + 3) % len(clips)].samples))
        for number, clip in enumerate(clips)
    ]


def _noisy(samples: Samples, draw: np.random.Generator) -> Samples:
    """Noise of a room, stronger in the low tones, so many decibels below the voice."""
    spectrum = np.fft.rfft(draw.normal(size=len(samples)))
    noise = np.fft.irfft(spectrum / np.sqrt(np.arange(1, len(spectrum) + 1)), len(samples))
    return _mixed(samples, noise, NOISE_DECIBELS)


def _overlapped(samples: Samples, other: Samples) -> Samples:
    return _mixed(samples, np.resize(other, len(samples)).astype(np.float64), OVERLAP_DECIBELS)


def _mixed(samples: Samples, other: np.ndarray, decibels: float) -> Samples:
    voice = samples.astype(np.float64)
    strength = math.sqrt(float((voice**2).mean() / (other**2).mean()) / 10 ** (decibels / 10))
    return np.clip(voice + other * strength, -32768, 32767).astype(np.int16)


def telephone(samples: Samples) -> Samples:
    """As a call is carried: 8 kHz, 300 to 3,400 Hz, and the fourteen bits of G.711's curve in eight."""
    spectrum = np.fft.rfft(samples.astype(np.float64))
    hertz = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE)
    spectrum[(hertz < 300) | (hertz > 3_400)] = 0
    narrow = resampled(np.fft.irfft(spectrum, len(samples)).clip(-32768, 32767).astype(np.int16), SAMPLE_RATE, 8_000)
    curved = np.sign(narrow) * np.log1p(255 * np.abs(narrow / 32768)) / math.log(256)
    steps = np.round(curved * 127) / 127
    carried = np.sign(steps) * np.expm1(np.abs(steps) * math.log(256)) / 255 * 32767
    return resampled(carried.astype(np.int16), 8_000)
