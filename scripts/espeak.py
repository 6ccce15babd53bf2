"""eSpeak NG, spoken to through its C interface: for recordings, tests and benchmarks with a known truth.

Needs the development dependencies. A process speaks with one voice at a time.
"""

import ctypes

import av
import espeakng_loader
import numpy as np
import numpy.typing as npt
from av.audio.resampler import AudioResampler

SAMPLE_RATE = 16_000
SYNCHRONOUS, RATE, PITCH, UTF8 = 2, 1, 3, 1  # constants of speak_lib.h

Samples = npt.NDArray[np.int16]


class Speaker:
    """It hands over sound in pieces by a callback."""

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

    def say(self, sentence: str, voice: str = "en-us+f2", words_per_minute: int = 165, pitch: int = 45) -> Samples:
        """Mono, 16 kHz. A voice is a language and a variant: `de+m3`."""
        self._pieces.clear()
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise SystemExit(f"eSpeak NG has no voice {voice}.")
        self._library.espeak_SetParameter(RATE, words_per_minute, 0)
        self._library.espeak_SetParameter(PITCH, pitch, 0)
        text = sentence.encode()
        self._library.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, 1, 0, UTF8, None, None)
        self._library.espeak_Synchronize()
        return resampled(np.concatenate(self._pieces), self._rate)


def resampled(samples: Samples, rate: int, to: int = SAMPLE_RATE) -> Samples:
    frame = av.AudioFrame.from_ndarray(samples[None, :], format="s16", layout="mono")
    frame.sample_rate = rate
    resampler = AudioResampler("s16", "mono", to)
    pieces = [*resampler.resample(frame), *resampler.resample(None)]
    return np.concatenate([piece.to_ndarray()[0] for piece in pieces]).astype(np.int16)
