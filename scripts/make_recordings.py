"""Speak the demo's support calls with eSpeak NG, and note how many words the default model misses in each.

Run by hand when a sentence changes; the recordings are kept in the package. Needs the development dependencies:
`.venv/bin/python scripts/make_recordings.py`
"""

import ctypes
import json
import time
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import espeakng_loader
import numpy as np
import numpy.typing as npt
from av.audio.resampler import AudioResampler

from headwater.domain.words import word_error_rate
from headwater.flow.models.port import SAMPLE_RATE, Sound
from headwater.flow.models.speech import PocketSphinx

DIRECTORY = Path(__file__).parent.parent / "src" / "headwater" / "demo" / "recordings"
PAUSE_SECONDS = 0.6
SYNCHRONOUS, RATE, PITCH, UTF8 = 2, 1, 3, 1  # constants of speak_lib.h

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


class Speaker:
    """eSpeak NG through its C interface; it hands over sound in pieces by a callback."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self._rate = self._library.espeak_Initialize(SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
        self._pieces: list[Samples] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._callback = kind(self._take)
        self._library.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, _: object) -> int:
        if samples and count > 0:
            self._pieces.append(np.ctypeslib.as_array(samples, shape=(count,)).copy())
        return 0

    def say(self, sentence: str, call: Call) -> Samples:
        self._pieces.clear()
        if self._library.espeak_SetVoiceByName(call.voice.encode()) != 0:
            raise SystemExit(f"eSpeak NG has no voice {call.voice}.")
        self._library.espeak_SetParameter(RATE, call.words_per_minute, 0)
        self._library.espeak_SetParameter(PITCH, call.pitch, 0)
        text = sentence.encode()
        self._library.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, 1, 0, UTF8, None, None)
        self._library.espeak_Synchronize()
        return resampled(np.concatenate(self._pieces), self._rate)


def resampled(samples: Samples, rate: int) -> Samples:
    frame = av.AudioFrame.from_ndarray(samples[None, :], format="s16", layout="mono")
    frame.sample_rate = rate
    resampler = AudioResampler("s16", "mono", SAMPLE_RATE)
    pieces = [*resampler.resample(frame), *resampler.resample(None)]
    return np.concatenate([piece.to_ndarray()[0] for piece in pieces]).astype(np.int16)


def spoken(speaker: Speaker, call: Call) -> Samples:
    pause = np.zeros(int(PAUSE_SECONDS / 2 * SAMPLE_RATE), np.int16)
    pieces = [piece for sentence in call.sentences for piece in (pause, speaker.say(sentence, call), pause)]
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
