"""Speech to text by Moonshine: small, quick, English. Its weights come inside a wheel, and nothing is ever fetched.

It knows no other language, and makes English up of whatever it hears. What gives it away is how often the network is
surprised by its own words: see `Understood`. A recording that does not sound like English is told so, with no words.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Final

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.flow.models.moonshine_network import DECODER, ENCODER, TOKENS, Network
from headwater.flow.models.moonshine_speakers import Speakers, parts
from headwater.flow.models.port import SAMPLE_RATE, ModelCard, Said, Samples, Sound, packed_weights
from headwater.flow.models.voiced import LONGEST_SECONDS, PAUSE_FRAMES, stretches

DISTRIBUTION: Final = "moonshine-voice"
PACKAGE: Final = "moonshine_voice"
ASSETS: Final = "moonshine_voice/assets/tiny-en"
ENGLISH: Final = "en"
FALLBACK: Final = (
    'pocketsphinx hears English on every machine: models.transcribe = "pocketsphinx" in a new lake, '
    "headwater replay transcribe --model pocketsphinx in one that has rows"
)
# Mean log-probabilities of the tokens that are no repetition, as measured on espeak-ng and on human speech: clear
# English has −0.05 to −0.4, in loud noise down to −0.75; nineteen of twenty sentences in German, Spanish, French,
# Italian, Dutch, Polish and Turkish lie below −0.95.
SURELY_ENGLISH: Final = -0.75
NOT_ENGLISH: Final = -0.95
NOT_UNDERSTOOD: Final = -1.1  # of one stretch, which has fewer tokens to judge by
TOKENS_TO_JUDGE: Final = 10
# Noise and silence are heard as "You" and the like; said by somebody, so short a thing is far more probable.
NOTHING: Final = ("You", "you")
SHORT_TOKENS: Final = 4
SHORT_MIN: Final = -0.5

Pairs = set[tuple[int, int]]


@dataclass(kw_only=True)
class Moonshine:
    """The `Model` for `transcribe`. `language = "en"` takes every recording for English, whatever it sounds like.

    With `diarise` it tells apart who speaks, by their voices, in what is one channel.
    """

    language: str = ""
    diarise: bool = False
    _network: Network | None = field(default=None, init=False, repr=False)
    _speakers: Speakers | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.language not in ("", ENGLISH):
            raise InvalidRequest(
                f"Moonshine hears English, not {self.language}. faster-whisper and openai-transcription hear others."
            )

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name="moonshine/tiny-en",
            version=_version(),
            accepts="speech",
            produces="text",
            parameters={
                "language": self.language,
                "longest_seconds": LONGEST_SECONDS,
                "pause_frames": PAUSE_FRAMES,
                "not_english": NOT_ENGLISH,
                "not_understood": NOT_UNDERSTOOD,
                # Only where it is asked for: rows of those who do not ask stay those of one model.
                **({"diarise": True} if self.diarise else {}),
            },
            weights_digest=packed_weights(DISTRIBUTION, *(f"tiny-en/{name}" for name in (ENCODER, DECODER, TOKENS))),
        )

    def load(self) -> None:
        directory = Path(str(metadata.distribution(DISTRIBUTION).locate_file(ASSETS)))
        missing = [name for name in (ENCODER, DECODER, TOKENS) if not (directory / name).is_file()]
        if missing:
            raise Unavailable(f"{DISTRIBUTION} has no {' and no '.join(missing)} in it. Install it again; {FALLBACK}.")
        self._network = Network(directory)
        if self.diarise:
            self._speakers = Speakers(Path(str(metadata.distribution(DISTRIBUTION).locate_file(PACKAGE))), directory)

    def run(self, batch: Sequence[Sound]) -> list[Said]:
        return [self._hear(sound) for sound in batch]

    def _hear(self, sound: Sound) -> Said:
        understood = Understood()
        spoken = list(self._parts(sound, understood))
        if not self.language and understood.can_tell and understood.mean < NOT_ENGLISH:
            raise DataFault(
                "LANGUAGE",
                f"It does not sound like English: tokens have a probability of {math.exp(understood.mean):.2f}, "
                f"English has {math.exp(SURELY_ENGLISH):.2f} and more. Hear it by faster-whisper or "
                'openai-transcription, or by moonshine with its option language = "en" if it is English in loud noise.',
            )
        logprobs = [logprob for _, found in spoken for logprob in found]
        segments = tuple(segment for segment, _ in spoken)
        confidence = math.exp(sum(logprobs) / len(logprobs)) if logprobs else None
        sure = bool(self.language) or understood.mean >= SURELY_ENGLISH
        language = ENGLISH if spoken and sure else None
        return Said(" ".join(segment.text for segment in segments), language, confidence, segments)

    def _stretches(self, sound: Sound) -> Iterator[tuple[int, Samples, str | None]]:
        """Where somebody speaks: the number of the first sample, the sound and, if that is asked for, who it is."""
        if self._speakers is None or not sound.is_whole:
            for first, samples in stretches(sound.blocks):
                yield first, samples, None
            return
        with self._speakers.listen() as listener:
            # All of it is held: whose voice the first words were is known when the last ones have been listened to.
            held = list(stretches(listener.passed(sound.blocks)))
            turns = listener.turns()
        for first, samples in held:
            for begin, end, speaker in parts(first, len(samples), turns):
                name = None if speaker is None else str(speaker)
                yield begin, samples[begin - first : end - first], name

    def _parts(self, sound: Sound, understood: "Understood") -> Iterator[tuple[Segment, tuple[float, ...]]]:
        """Each stretch that was understood, and how probable its tokens were."""
        assert self._network is not None
        for first, samples, speaker in self._stretches(sound):
            heard = self._network.hear(samples)
            text = self._network.text(heard.tokens)
            if text in NOTHING or not any(map(str.isalnum, text)):  # music is heard as a row of notes
                continue
            mean, count = understood.add(heard.tokens, heard.logprobs)
            if len(heard.tokens) <= SHORT_TOKENS:
                is_clear = sum(heard.logprobs) / len(heard.logprobs) >= SHORT_MIN
            else:
                is_clear = bool(self.language) or count < TOKENS_TO_JUDGE or mean >= NOT_UNDERSTOOD
            if is_clear:
                start, end = (at * 1000 // SAMPLE_RATE for at in (first, first + len(samples)))
                yield Segment(text, Locator(start_ms=start, end_ms=end, speaker=speaker)), heard.logprobs


class Understood:
    """How far a recording is understood: the mean log-probability of its tokens, each pair of tokens counted once.

    A network that is lost says the same few words again and again, and is sure of them.
    """

    def __init__(self) -> None:
        self._seen: Pairs = set()
        self._sum, self._count = 0.0, 0

    @property
    def can_tell(self) -> bool:
        return self._count >= TOKENS_TO_JUDGE

    @property
    def mean(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def add(self, tokens: Sequence[int], logprobs: Sequence[float]) -> tuple[float, int]:
        """The mean of these tokens alone, and how many of them were no repetition."""
        total, count, before = 0.0, 0, 0
        for token, logprob in zip(tokens, logprobs, strict=True):
            if (before, token) not in self._seen:
                self._seen.add((before, token))
                total, count = total + logprob, count + 1
            before = token
        self._sum, self._count = self._sum + total, self._count + count
        return total / max(1, count), count


def _version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise InvalidRequest(
            f"{DISTRIBUTION} is not installed: it is made for Linux with glibc 2.34 and macOS 15 on arm64. {FALLBACK}."
        ) from error
