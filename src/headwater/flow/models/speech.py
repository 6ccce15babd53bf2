"""Speech to text by PocketSphinx: real, small, English. It misses many words, so its confidence is carried.

Sound is heard in utterances of a few seconds, cut where it is quietest, so that an hour takes the memory of a minute.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.flow.models.port import (
    SAMPLE_RATE,
    ModelCard,
    Said,
    Samples,
    Sound,
    installed_version,
    packed_weights,
)

UTTERANCE_SECONDS: Final = 10
CUT_WINDOW_SECONDS: Final = 4  # the quietest moment in the last four seconds of an utterance is where it is cut
CUT_SAMPLES: Final = SAMPLE_RATE // 5
SILENCE_PEAK: Final = 50  # of 32,768: no voice, only the noise of a line
PAUSE_MS: Final = 500
SEGMENT_MS: Final = 10_000
FRAME_MS: Final = 10


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    start_ms: int
    end_ms: int
    confidence: float


class PocketSphinx:
    """The `Model` for `transcribe`."""

    def __init__(self) -> None:
        self._decoder: Any = None

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name="pocketsphinx",
            version=installed_version("pocketsphinx"),
            accepts="speech",
            produces="text",
            parameters={
                "model": "en-us",
                "utterance_seconds": UTTERANCE_SECONDS,
                "pause_ms": PAUSE_MS,
            },
            weights_digest=packed_weights(
                "pocketsphinx",
                ".bin",
                ".dict",
                "/mdef",
                "/means",
                "/variances",
                "/sendump",
            ),
        )

    def load(self) -> None:
        from pocketsphinx import Decoder

        self._decoder = Decoder(samprate=SAMPLE_RATE, loglevel="FATAL")

    def run(self, batch: Sequence[Sound]) -> list[Said]:
        return [self._hear(sound) for sound in batch]

    def _hear(self, sound: Sound) -> Said:
        # Noise estimates of the last call would colour this one: the same sound must always give the same words.
        self._decoder.reinit_feat()
        words = [word for start_ms, samples in utterances(sound.blocks) for word in self._words(start_ms, samples)]
        confidence = sum(word.confidence for word in words) / len(words) if words else None
        segments = tuple(_segment(group) for group in grouped(words))
        text = " ".join(word.text for word in words)
        return Said(text, "en" if words else None, confidence, segments)

    def _words(self, start_ms: int, samples: Samples) -> Iterator[Word]:
        if int(np.abs(samples.astype(np.int32)).max(initial=0)) < SILENCE_PEAK:
            return
        decoder = self._decoder
        decoder.start_utt()
        decoder.process_raw(samples.tobytes(), no_search=False, full_utt=True)
        decoder.end_utt()
        for part in decoder.seg() or ():
            if part.word[0] not in "<[":
                text = part.word.partition("(")[0]
                start, end = (
                    start_ms + part.start_frame * FRAME_MS,
                    start_ms + (part.end_frame + 1) * FRAME_MS,
                )
                yield Word(text, start, end, min(1.0, max(0.0, float(part.prob))))


def utterances(blocks: Iterator[Samples]) -> Iterator[tuple[int, Samples]]:
    """Sound cut into pieces of at most `UTTERANCE_SECONDS`, each with its start in milliseconds."""
    longest = UTTERANCE_SECONDS * SAMPLE_RATE
    held, heard = np.empty(0, np.int16), 0
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) > longest:
            cut = _quietest(held[:longest])
            yield heard * 1000 // SAMPLE_RATE, held[:cut]
            held, heard = held[cut:], heard + cut
    if len(held):
        yield heard * 1000 // SAMPLE_RATE, held


def _quietest(samples: Samples) -> int:
    start = len(samples) - CUT_WINDOW_SECONDS * SAMPLE_RATE
    pieces = samples[start:].astype(np.float64).reshape(-1, CUT_SAMPLES)
    return start + int(np.square(pieces).sum(axis=1).argmin()) * CUT_SAMPLES + CUT_SAMPLES // 2


def grouped(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Words between pauses, at most `SEGMENT_MS` together."""
    group: list[Word] = []
    for word in words:
        if group and (word.start_ms - group[-1].end_ms > PAUSE_MS or word.end_ms - group[0].start_ms > SEGMENT_MS):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _segment(words: Sequence[Word]) -> Segment:
    place = Locator(start_ms=words[0].start_ms, end_ms=words[-1].end_ms)
    return Segment(" ".join(word.text for word in words), place)
