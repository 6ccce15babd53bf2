"""Channels: a call with one person on each side is told from one sound in two channels, and each side is let through.

A recorder of calls puts one side on each channel. What is the same on both, or as loud on both as a room is to two
microphones, is one sound and is heard as one. On each side what the other says may faintly be there too: a side is shut
where the other is much louder, or its words would be heard twice. Times stay, because what is shut out is silence.
In memory is a second of sound, whatever its length, and how loud each fiftieth of a second is.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.flow.models.port import SAMPLE_RATE, Samples

HOP: Final = SAMPLE_RATE // 50  # in which loudness is told
WINDOW: Final = 25 * HOP  # in which the two channels are compared
SILENCE_DECIBELS: Final = -62.0  # of full scale
OVER_NOISE_DECIBELS: Final = 8.0
UNDER_VOICE_DECIBELS: Final = 26.0
RANGE_DECIBELS_MIN: Final = 3.5  # a voice rises and falls by more, the noise of a line by less
VOICE_HOPS_MIN: Final = 10  # a fifth of a second: who says less says nothing
# A channel by so much louder is the one that is spoken on. A line lets a hundredth of the other side through, a loud
# headset a tenth of that; two who speak at once differ by less.
LOUDER_DECIBELS: Final = 12.0
# How alike two windows are at the most, one moved against the other by up to 20 ms (seven metres between microphones):
# one sound in two channels 0.7 to 1, two people at once 0.1 to 0.4.
ALIKE: Final = 0.55
LAG_SAMPLES: Final = SAMPLE_RATE // 50
ALIKE_SHARE: Final = 0.5  # of what is voiced; music on hold may be alike on both sides, and is not the call
AROUND: Final = 4  # hops before and after whose mean is the loudness: less would follow the pulses of a voice
# What comes through of the other may come late: so many hops after him it is still taken for his, less and less.
HELD: Final = 12
_FADING: Final = 10 ** (-np.arange(HELD, -1, -1) / 10)
_BEFORE, _AHEAD = AROUND + HELD + 1, AROUND + 1

Powers = npt.NDArray[np.float64]  # a row a hop, a column a channel
Flags = npt.NDArray[np.bool_]


def sides_of(stereo: Iterator[Samples]) -> tuple[int, ...]:
    """The channels on which somebody speaks, to be heard each by itself; none where both are one sound."""
    found, alike = [np.zeros((0, 2), np.float32)], [np.zeros(0, np.bool_)]
    for window in _pieces(stereo, WINDOW):
        found.append(_powers(window).astype(np.float32))
        alike.append(np.full(len(found[-1]), _are_alike(window)))
    powers = np.concatenate(found).astype(np.float64)
    voiced = np.stack([_voiced(powers[:, side]) for side in (0, 1)], axis=1)
    either = voiced.any(axis=1)
    if (np.concatenate(alike) & either).sum() >= ALIKE_SHARE * either.sum():
        return ()
    around = np.pad(powers, ((_BEFORE, _AHEAD), (0, 0)))
    spoken = [(voiced[:, side] & _is_open(around, side)[1:-1]).sum() for side in (0, 1)]
    return tuple(side for side in (0, 1) if spoken[side] >= VOICE_HOPS_MIN)


def one_side(stereo: Iterator[Samples], side: int) -> Iterator[Samples]:
    """What is said on this channel; silence where the other is much louder. How blocks are cut changes nothing."""
    held, before = np.zeros((0, 2), np.int16), np.zeros((_BEFORE, 2))
    for piece in _pieces(stereo, WINDOW):
        held = np.concatenate([held, piece])
        known = np.concatenate([before, _powers(held)])
        ready = len(held) // HOP - _AHEAD
        if ready > 0:
            yield _let_through(held[: ready * HOP, side], _is_open(known, side))
            held, before = held[ready * HOP :], known[ready : ready + _BEFORE]
    if len(held):
        known = np.concatenate([before, _powers(held), np.zeros((_AHEAD, 2))])
        yield _let_through(held[:, side], _is_open(known, side))


def _is_open(powers: Powers, side: int) -> Flags:
    """Whether a side is to be heard, from the hop before those between `_BEFORE` and `_AHEAD` to the one after them."""
    loud = np.stack([np.convolve(powers[:, each], np.ones(2 * AROUND + 1), "valid") for each in (0, 1)], axis=1)
    other = (np.lib.stride_tricks.sliding_window_view(loud[:, 1 - side], HELD + 1) * _FADING).max(axis=1)
    opened: Flags = loud[HELD:, side] * 10 ** (LOUDER_DECIBELS / 10) >= other
    return opened


def _let_through(samples: Samples, is_open: Flags) -> Samples:
    """`is_open` has a hop more at either end; between hops it goes up or down gently, since a click is a sound too."""
    if is_open.all():
        return samples
    middles = (np.arange(len(is_open)) - 0.5) * HOP
    share = np.interp(np.arange(len(samples)), middles, is_open.astype(np.float32))
    return np.asarray(samples * share, np.int16)


def _are_alike(window: Samples) -> bool:
    """As loud as one another, and of one shape."""
    left, right = window.astype(np.float64).T
    powers = float(np.square(left).mean()), float(np.square(right).mean())
    if min(powers) <= 32768**2 * 10 ** (SILENCE_DECIBELS / 10):
        return False
    if max(powers) >= min(powers) * 10 ** (LOUDER_DECIBELS / 10):
        return False
    size = 2 * len(window)
    shape = np.fft.irfft(np.fft.rfft(left, size) * np.conj(np.fft.rfft(right, size)), size)
    most = max(shape[: LAG_SAMPLES + 1].max(), shape[-LAG_SAMPLES:].max())
    return bool(most >= ALIKE * len(window) * (powers[0] * powers[1]) ** 0.5)


def _voiced(powers: Powers) -> Flags:
    """The hops of one channel that may be voice, by the noise of the line and the loudness of who speaks."""
    loud = 10 * np.log10(powers + 1e-12)
    if not len(loud):
        return np.zeros(0, np.bool_)
    noise, voice = (float(np.percentile(loud, share)) for share in (10, 95))
    floor = max(SILENCE_DECIBELS, min(noise + OVER_NOISE_DECIBELS, voice - UNDER_VOICE_DECIBELS))
    voiced: Flags = (loud > floor) & (voice - noise > RANGE_DECIBELS_MIN)
    return voiced


def _powers(samples: Samples) -> Powers:
    """Of each hop; what is left at the end is one too."""
    whole = np.pad(samples, ((0, -len(samples) % HOP), (0, 0))).astype(np.float64) / 32768
    return np.asarray(np.square(whole).reshape(-1, HOP, 2).mean(axis=1))


def _pieces(blocks: Iterator[Samples], size: int) -> Iterator[Samples]:
    waiting, length = [np.zeros((0, 2), np.int16)], 0
    for block in blocks:
        waiting.append(block)
        length += len(block)
        if length >= size:
            joined = np.concatenate(waiting)
            for start in range(0, length - size + 1, size):
                yield joined[start : start + size]
            waiting = [joined[length - length % size :]]
            length %= size
    if length:
        yield np.concatenate(waiting)
