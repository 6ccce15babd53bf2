"""Speech to text by faster-whisper: Whisper's models on CTranslate2, on this machine.

Nothing is downloaded here: weights are fetched once by hand, into a directory or the Hugging Face cache. Sound is heard
in pieces of some minutes, so that an hour takes the memory of one; the language told by the first holds for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.errors import InvalidRequest, Unavailable
from headwater.flow.models.confidence import confidence_of
from headwater.flow.models.extras import not_installed, version_of, weights_digest
from headwater.flow.models.pieces import pieces
from headwater.flow.models.port import SAMPLE_RATE, ModelCard, Said, Samples, Sound

PIECE_SECONDS: Final = 300
EXTRA: Final = "whisper"
FILES: Final = ("model.bin", "tokenizer.json")  # without the second, the library would ask the network for it
REMEDY: Final = (
    "Fetch it once where there is a network (hf download), and name its directory as model, by its absolute path"
)


@dataclass(kw_only=True)
class FasterWhisper:
    """The `Model` for `transcribe`. `model` is a size such as `small`, a name on the Hugging Face hub, or a directory.

    A directory is named by its absolute path; `revision` is the hash of a commit on the hub.
    `vad` leaves out what holds no voice, where Whisper would make words up.
    """

    model: str = "small"
    revision: str = ""
    cache_dir: str = ""
    device: str = "cpu"
    compute_type: str = "default"
    language: str = ""
    beam_size: int = 5
    vad: bool = True
    cpu_threads: int = 1
    _ears: Any = field(default=None, init=False, repr=False)

    @property
    def _is_directory(self) -> bool:
        return Path(self.model).is_absolute()  # a relative one would be another place in each worker

    @cached_property
    def card(self) -> ModelCard:
        name = Path(self.model).name if self._is_directory else self.model
        digest = weights_digest(Path(self.model)) if self._is_directory else f"{self.model}@{self.revision or 'main'}"
        return ModelCard(
            name=f"faster-whisper/{name}",
            version=version_of("faster-whisper", EXTRA),
            accepts="speech",
            produces="text",
            parameters={
                "compute_type": self.compute_type,
                "device": self.device,
                "language": self.language,
                "beam_size": self.beam_size,
                "vad": self.vad,
                "piece_seconds": PIECE_SECONDS,
                "temperature": 0,
            },
            weights_digest=digest,
        )

    def load(self) -> None:
        try:
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise not_installed(EXTRA, error) from error
        directory = self._find()
        try:
            self._ears = WhisperModel(
                str(directory),
                device=self.device,
                compute_type=self.compute_type,
                cpu_threads=self.cpu_threads,
                local_files_only=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise Unavailable(f"{self.model} cannot be loaded: {error}. {REMEDY}.") from error

    def _find(self) -> Path:
        directory = Path(self.model) if self._is_directory else self._find_cached()
        missing = [name for name in FILES if not (directory / name).is_file()]
        if missing:
            raise Unavailable(f"{directory} has no {' and no '.join(missing)}. {REMEDY}.")
        return directory

    def _find_cached(self) -> Path:
        from faster_whisper.utils import download_model
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        try:
            found = download_model(
                self.model,
                local_files_only=True,
                cache_dir=self.cache_dir or None,
                revision=self.revision or None,
            )
        except LocalEntryNotFoundError as error:
            raise Unavailable(f"The weights of {self.model} are not on this machine. {REMEDY}.") from error
        except (HFValidationError, ValueError) as error:
            raise InvalidRequest(f"{self.model} is no model of faster-whisper: {error}") from error
        return Path(found)

    def run(self, batch: Sequence[Sound]) -> list[Said]:
        return [self._hear(sound) for sound in batch]

    def _hear(self, sound: Sound) -> Said:
        language = self.language or None
        parts: list[tuple[int, int, Any]] = []
        for start_ms, piece in pieces(sound.blocks, PIECE_SECONDS):
            samples = np.concatenate(list(piece))
            guessed, heard = self._hear_piece(samples, language)
            ends_ms = start_ms + len(samples) * 1000 // SAMPLE_RATE
            parts.extend((start_ms, ends_ms, part) for part in heard if part.text.strip())
            language = language or (guessed if parts else None)
        segments = tuple(_segment(*part) for part in parts)
        confidence = confidence_of([(part.avg_logprob, part.end - part.start) for _, _, part in parts])
        return Said(" ".join(part.text for part in segments), language if segments else None, confidence, segments)

    def _hear_piece(self, samples: Samples, language: str | None) -> tuple[str, Iterator[Any]]:
        segments, info = self._ears.transcribe(
            samples.astype(np.float32) / 32768,
            language=language,
            beam_size=self.beam_size,
            # No second guesses by chance, and no piece coloured by the one before: the same sound, the same words.
            temperature=0.0,
            condition_on_previous_text=False,
            vad_filter=self.vad,
        )
        return info.language, segments


def _segment(start_ms: int, ends_ms: int, part: Any) -> Segment:
    # Whisper pads what it hears to half a minute, and may place words behind the end.
    start, end = (min(ends_ms, start_ms + round(seconds * 1000)) for seconds in (part.start, part.end))
    return Segment(" ".join(part.text.split()), Locator(start_ms=start, end_ms=end))
