"""Speak the demo's support calls with eSpeak NG, and note how many words the default model misses in each.

Run by hand when a sentence changes; the recordings are kept in the package. Needs the development dependencies:
`.venv/bin/python scripts/make_recordings.py`
"""

import json
import time
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from espeak import Speaker

from headwater.domain.words import word_error_rate
from headwater.flow.models.port import SAMPLE_RATE, Sound
from headwater.flow.models.speech import PocketSphinx

DIRECTORY = Path(__file__).parent.parent / "src" / "headwater" / "demo" / "recordings"
PAUSE_SECONDS = 0.6

Samples = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Call:
    name: str
    customer: str
    voice: str
    words_per_minute: int
    pitch: int
    sentences: tuple[str, ...]


CALLS = (
    Call("refund-call", "acme", "en-us+f2", 170, 40, ("i would like to cancel my order and get my money back",)),
    Call(
        "broken-screen-call",
        "globex",
        "en-us+f5",
        150,
        50,
        ("i want to return the computer because the screen is broken", "my account was charged twice this month"),
    ),
    Call(
        "update-call",
        "initech",
        "en-us+f2",
        170,
        40,
        ("the machine does not start after the last update can you help me",),
    ),
    Call(
        "slow-software-call",
        "acme",
        "en-us+f5",
        150,
        50,
        ("the new version of the software is very slow", "i forgot my password and cannot log in"),
    ),
    Call(
        "office-hours-call",
        "globex",
        "en-us+f2",
        170,
        40,
        ("thank you for calling our office is open from monday to friday",),
    ),
    Call("screen-video", "initech", "en-us+f2", 170, 40, ("i want to show you the problem with the new software",)),
)


def spoken(speaker: Speaker, call: Call) -> Samples:
    pause = np.zeros(int(PAUSE_SECONDS / 2 * SAMPLE_RATE), np.int16)
    voice = (call.voice, call.words_per_minute, call.pitch)
    pieces = [piece for sentence in call.sentences for piece in (pause, speaker.say(sentence, *voice), pause)]
    return np.concatenate(pieces)


def write_wav(path: Path, samples: Samples) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(samples.tobytes())


def blocks(samples: Samples) -> Iterator[Samples]:
    yield samples


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    speaker, model = Speaker(), PocketSphinx()
    model.load()
    truths = []
    for call in CALLS:
        samples, sentence = spoken(speaker, call), " ".join(call.sentences)
        write_wav(DIRECTORY / f"{call.name}.wav", samples)
        truths.append({"name": call.name, "customer": call.customer, "said": sentence})
        started = time.perf_counter()
        said = model.run([Sound(blocks(samples))])[0]
        seconds = len(samples) / SAMPLE_RATE
        speed = seconds / (time.perf_counter() - started)
        error = word_error_rate(sentence, said.text)
        print(f"{call.name}: {seconds:.1f} s, word error {error:.0%}, {speed:.1f} × real time: {said.text}")
    (DIRECTORY / "recordings.json").write_text(json.dumps(truths, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
