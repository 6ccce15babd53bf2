"""Speech to text by an endpoint: `POST url/audio/transcriptions`, as Whisper servers and hosted services have it.

Long sound goes in pieces, each a request of its own, because services take 25 MB at a time.
"""

import hashlib
import math
import tempfile
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar, Final

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault
from headwater.flow.models.confidence import confidence_of
from headwater.flow.models.endpoint import Answer, EndpointModel
from headwater.flow.models.language import tell_language
from headwater.flow.models.pieces import pieces
from headwater.flow.models.port import SAMPLE_RATE, Accepts, Produces, Said, Samples, Sound
from headwater.flow.models.request_estimate import RequestEstimate, count_tokens

MEMORY_BYTES: Final = 8 << 20  # a longer recording waits on disk while it is sent
CHARACTERS_PER_SECOND_MAX: Final = 100  # nobody speaks a third as fast
PIECES_KEPT: Final = 64
ANSWER_BYTES: Final = 32 << 20  # words with their times, an hour of them
TOKENS_PER_SECOND: Final = 20  # where a service does not tell: of the sound, and of what is said in it
VERBOSE: Final = "verbose_json"
PLAIN: Final = "json"


@dataclass(frozen=True, slots=True)
class Heard:
    """One piece's answer; `digest` is of its samples."""

    digest: bytes
    segments: list[Segment]
    language: str | None
    logprobs: list[tuple[float, float]]  # with how long each lasts
    tokens: int
    attempts: int


@dataclass(kw_only=True)
class OpenAiTranscription(EndpointModel):
    """The `Model` for `transcribe`. `language` is ISO 639-1, or empty to let the service tell."""

    kind: ClassVar[str] = "openai-transcription"
    accepts: ClassVar[Accepts] = "speech"
    produces: ClassVar[Produces] = "text"

    price_unit: str = "audio_second"
    timeout_seconds: float = 300.0
    deadline_seconds: float = 1800.0
    language: str = ""
    prompt: str = ""
    piece_seconds: int = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("piece_seconds", above=29)
        self._format = VERBOSE
        self._kept: dict[bytes, Answer] = {}

    def answering(self) -> dict[str, Any]:
        return {"language": self.language, "prompt": self.prompt, "piece_seconds": self.piece_seconds}

    def run(self, batch: Sequence[Sound]) -> list[Said]:
        return [self._hear(sound) for sound in batch]

    def _hear(self, sound: Sound) -> Said:
        until = self.endpoint.deadline()
        cut = pieces(sound.blocks, self.piece_seconds)
        heard = [self._hear_piece(start_ms, blocks, until) for start_ms, blocks in cut]
        for piece in heard:
            self._kept.pop(piece.digest, None)
        segments = tuple(segment for piece in heard for segment in piece.segments)
        text = " ".join(segment.text for segment in segments)
        language = next((piece.language for piece in heard if piece.language), None)
        return Said(
            text,
            (self.language or language or tell_language(text)) if text else None,
            confidence_of([pair for piece in heard for pair in piece.logprobs]),
            segments,
            tokens=sum(piece.tokens for piece in heard),
            attempts=sum(piece.attempts for piece in heard),
        )

    def _hear_piece(self, start_ms: int, blocks: Iterator[Samples], until: float) -> Heard:
        """A piece that was heard is kept until the whole is: when a later one fails, it is not paid again."""
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as file:
            digest, count = write_wav(file, blocks)
            answer = self._kept.get(digest) or self._ask(file, digest, count / SAMPLE_RATE, until)
        heard = read_answer(answer, digest, start_ms, count * 1000 // SAMPLE_RATE, self.card.name)
        if len(self._kept) >= PIECES_KEPT:
            self._kept.clear()  # of works that were never finished
        self._kept[digest] = answer
        return heard

    def _ask(self, file: IO[bytes], digest: bytes, seconds: float, until: float) -> Answer:
        form = self._format
        try:
            return self._post(file, digest, form, seconds, until)
        except DataFault as fault:
            # Some services know only the short form: then there is text without times.
            if form == PLAIN or "response_format" not in fault.detail:
                raise
            self._format = PLAIN
            answer = self._post(file, digest, PLAIN, seconds, until)
            return Answer(answer.content, answer.attempts + 1)

    def _post(self, file: IO[bytes], digest: bytes, form: str, seconds: float, until: float) -> Answer:
        options = {"model": self.model, "language": self.language, "prompt": self.prompt, "response_format": form}
        fields = {name: value for name, value in options.items() if value}

        def build() -> Mapping[str, Any]:
            file.seek(0)
            return {"data": fields, "files": {"file": ("sound.wav", file, "audio/wav")}}

        asked = RequestEstimate(ANSWER_BYTES, seconds=seconds, tokens_guess=int(seconds * TOKENS_PER_SECOND))
        return self.endpoint.post("/audio/transcriptions", digest + form.encode(), build, asked, until)


def write_wav(file: IO[bytes], blocks: Iterator[Samples]) -> tuple[bytes, int]:
    """Writes what is heard as it comes; the digest of the samples, and how many there are."""
    hashed, count = hashlib.sha256(), 0
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(SAMPLE_RATE)
        for block in blocks:
            samples = block.astype("<i2", copy=False).tobytes()
            hashed.update(samples)
            count += len(block)
            wav.writeframesraw(samples)
    return hashed.digest(), count


def read_answer(answer: Answer, digest: bytes, start_ms: int, duration_ms: int, name: str) -> Heard:
    """Raises DataFault BAD_OUTPUT where text or times are missing or cannot be."""
    content = answer.content
    listed = content.get("segments")
    if listed is None:
        listed = [{"text": content.get("text"), "start": 0, "end": duration_ms / 1000}]
    if not isinstance(listed, list):
        raise DataFault("BAD_OUTPUT", f"{name} answered with segments that are no list.")
    parts = [_part(part, name) for part in listed]
    if sum(len(text) for text, _, _ in parts) > CHARACTERS_PER_SECOND_MAX * (1 + duration_ms // 1000):
        raise DataFault("BAD_OUTPUT", f"{name} answered with more text than can be spoken in {duration_ms} ms.")
    segments = [
        Segment(text, Locator(start_ms=start_ms + int(start * 1000), end_ms=start_ms + int(end * 1000)))
        for text, start, end in parts
        if text
    ]
    language = content.get("language")
    code = language if isinstance(language, str) and len(language) == 2 else None  # some say «english»
    return Heard(digest, segments, code, list(_logprobs(listed)), count_tokens(content), answer.attempts)


def _part(part: Any, name: str) -> tuple[str, float, float]:
    known: dict[str, Any] = part if isinstance(part, dict) else {}
    text, start, end = known.get("text"), _number(known.get("start")), _number(known.get("end"))
    if not isinstance(text, str) or not 0 <= start <= end < math.inf:
        raise DataFault("BAD_OUTPUT", f"{name} answered without text, or with times that cannot be.")
    return " ".join(text.split()), start, end


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _logprobs(listed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float]]:
    for part in listed:
        found = part.get("avg_logprob")
        if isinstance(found, int | float) and math.isfinite(found):
            yield float(found), float(part["end"]) - float(part["start"])
