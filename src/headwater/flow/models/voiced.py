"""Where in a sound somebody speaks: stretches of seconds, cut at pauses, so that an hour takes the memory of a minute.

What is loud enough is told from the sound itself, half a minute at a time: the noise of a line is no voice, and a quiet
speaker is none the less. In doubt it is voice, because a word that is cut off here is heard by nobody.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.flow.models.port import SAMPLE_RATE, Samples

FRAME: Final = SAMPLE_RATE // 50
LONGEST_SECONDS: Final = 14
CHUNK_SECONDS: Final = 16  # looked at together with what was left open before
PAUSE_FRAMES: Final = 30  # 0.6 s: more is a pause between two things said
MARGIN_FRAMES: Final = 12  # 0.24 s of sound are kept before and after: words begin and end softly
VOICE_FRAMES_MIN: Final = 5  # 0.1 s: a shorter one is a click
SILENCE_DECIBELS: Final = -62.0  # of full scale: below, there is nothing whatever it is compared with
OVER_NOISE_DECIBELS: Final = 8.0
UNDER_VOICE_DECIBELS: Final = 26.0
RANGE_DECIBELS_MIN: Final = 3.5  # syllables rise and fall by more, even in noise as loud as they; noise does not
CUT_WINDOW_SECONDS: Final = 5  # a stretch that is too long is cut where it is quietest in its last seconds

Frames = npt.NDArray[np.float64]


def stretches(blocks: Iterator[Samples]) -> Iterator[tuple[int, Samples]]:
    """Each stretch that may hold voice, with the number of its first sample; how blocks are cut changes nothing."""
    held, start = np.empty(0, np.int16), 0
    for chunk, is_last in _chunks(blocks):
        held = np.concatenate([held, chunk])
        keep_from = len(held) if is_last else max(0, len(held) - MARGIN_FRAMES * FRAME)
        for begin, end in _voiced(held):
            # What reaches the end may go on in the next chunk, and is looked at again together with it.
            is_open = not is_last and end > len(held) - PAUSE_FRAMES * FRAME
            cuts = _cuts(held[begin:end])
            for cut, after in pairwise(begin + cut for cut in cuts):
                yield start + cut, held[cut:after]
            if is_open:
                keep_from = min(keep_from, begin + cuts[-1])
            else:
                yield start + begin + cuts[-1], held[begin + cuts[-1] : end]
        held, start = held[keep_from:], start + keep_from


def _chunks(blocks: Iterator[Samples]) -> Iterator[tuple[Samples, bool]]:
    """Sound in chunks of one length, the last one told as such."""
    size, waiting, length = CHUNK_SECONDS * SAMPLE_RATE, [np.empty(0, np.int16)], 0
    for block in blocks:
        waiting.append(block)
        length += len(block)
        if length > size:
            joined = np.concatenate(waiting)
            while len(joined) > size:
                yield joined[:size], False
                joined = joined[size:]
            waiting, length = [joined], len(joined)
    yield np.concatenate(waiting), True


def _voiced(samples: Samples) -> Iterator[tuple[int, int]]:
    """Where voice begins and ends, pauses within and margins around included."""
    loud = _decibels(samples)
    if not len(loud):
        return
    at = np.flatnonzero(loud > _threshold(loud))
    if not len(at):
        return
    for run in np.split(at, np.flatnonzero(np.diff(at) > PAUSE_FRAMES) + 1):
        if len(run) >= VOICE_FRAMES_MIN and _range(loud[run[0] : run[-1] + 1]) > RANGE_DECIBELS_MIN:
            begin, end = (int(run[0]) - MARGIN_FRAMES) * FRAME, (int(run[-1]) + 1 + MARGIN_FRAMES) * FRAME
            yield max(0, begin), min(len(samples), end)


def _threshold(loud: Frames) -> float:
    noise, voice = (float(np.percentile(loud, share)) for share in (10, 95))
    return max(SILENCE_DECIBELS, min(noise + OVER_NOISE_DECIBELS, voice - UNDER_VOICE_DECIBELS))


def _range(loud: Frames) -> float:
    return float(np.percentile(loud, 95) - np.percentile(loud, 10))


def _decibels(samples: Samples) -> Frames:
    """Of each frame, by its power; a rest shorter than a frame counts to the last one."""
    whole = samples[: len(samples) // FRAME * FRAME].astype(np.float64).reshape(-1, FRAME) / 32768
    return np.asarray(10 * np.log10(np.square(whole).mean(axis=1) + 1e-12))


def _cuts(samples: Samples) -> list[int]:
    """Where parts of it begin that are none too long."""
    longest, cuts = LONGEST_SECONDS * SAMPLE_RATE, [0]
    while len(samples) - cuts[-1] > longest:
        cuts.append(cuts[-1] + _quietest(samples[cuts[-1] : cuts[-1] + longest]))
    return cuts


def _quietest(samples: Samples) -> int:
    """The middle of the fifth of a second that is quietest, late in the samples."""
    first = max(0, len(samples) - CUT_WINDOW_SECONDS * SAMPLE_RATE) // FRAME
    power = np.square(samples[: len(samples) // FRAME * FRAME].astype(np.float64)).reshape(-1, FRAME).sum(axis=1)
    around = np.convolve(power, np.ones(11), "same")[first:-6]
    return (first + int(around.argmin())) * FRAME + FRAME // 2
