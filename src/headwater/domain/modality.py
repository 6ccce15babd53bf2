"""The kinds of thing that come in, each with its steps, and how a file shows which one it is.

A modality is one entry here, and one file of its name in `flow/derive` that has a function for each of its steps.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePath
from types import MappingProxyType
from typing import Final, Self

from headwater.domain.steps import CAPTION, EXTRACT, MESSAGE, PICTURE, PROBE, READ, TRANSCRIBE, Step

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"


class Modality(StrEnum):
    """`prefix` is the first part of a raw key. `steps` are done in this order; a fault of the first may speak for the
    whole object. `content_types`, by ending, are an allow-list: what is not there is refused at the door rather than
    guessed at by a decoder. A modality without any comes as the text of its event.
    """

    _value_: str
    prefix: str
    steps: tuple[Step, ...]
    content_types: Mapping[str, str]

    def __new__(
        cls, value: str, prefix: str = "", steps: tuple[Step, ...] = (), content_types: Mapping[str, str] = _NONE
    ) -> Self:
        made = str.__new__(cls, value)
        made._value_, made.prefix, made.steps, made.content_types = value, prefix, steps, content_types
        return made

    AUDIO = "audio", "audio", (PROBE, TRANSCRIBE), {
        ".wav": "audio/wav",
        ".mp3": "audio/mpeg",
        ".flac": "audio/flac",
        ".ogg": "audio/ogg",
        ".opus": "audio/ogg",
        ".m4a": "audio/mp4",
        ".aac": "audio/aac",
    }  # fmt: skip
    IMAGE = "image", "images", (PROBE, CAPTION, PICTURE), {
        ".png": "image/png",
        ".jpg": "image/jpeg",
        ".jpeg": "image/jpeg",
        ".webp": "image/webp",
        ".heic": "image/heic",
        ".heif": "image/heif",
        ".avif": "image/avif",
        ".gif": "image/gif",
        ".bmp": "image/bmp",
        ".tif": "image/tiff",
        ".tiff": "image/tiff",
    }  # fmt: skip
    VIDEO = "video", "video", (PROBE, TRANSCRIBE, CAPTION), {
        ".mp4": "video/mp4",
        ".m4v": "video/mp4",
        ".mov": "video/quicktime",
        ".webm": "video/webm",
        ".mkv": "video/x-matroska",
        ".avi": "video/x-msvideo",
    }  # fmt: skip
    DOCUMENT = "document", "documents", (PROBE, EXTRACT, READ), {
        ".pdf": "application/pdf",
        ".docx": f"{_OFFICE}.wordprocessingml.document",
        ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
        ".pptx": f"{_OFFICE}.presentationml.presentation",
        ".txt": "text/plain",
        ".md": "text/markdown",
        ".markdown": "text/markdown",
        ".html": "text/html",
        ".htm": "text/html",
        ".eml": "message/rfc822",
        ".srt": "application/x-subrip",
        ".vtt": "text/vtt",
    }  # fmt: skip
    CHAT = "chat", "chat", (MESSAGE,)

    @property
    def is_text(self) -> bool:
        """Whether what is read in it is about as much as it holds; of what is heard or seen, that is little."""
        return any(step is not PROBE and step.accepts in {"document", "text"} for step in self.steps)


def modalities_with(step: Step) -> tuple[Modality, ...]:
    return tuple(modality for modality in Modality if step in modality.steps)


# As tables spell them: those that come as the text of their event, without bytes in the raw store.
INLINE: Final = frozenset(modality.value for modality in Modality if not modality.content_types)

CONTENT_TYPES: Final[dict[str, tuple[Modality, str]]] = {
    ending: (modality, kind) for modality in Modality for ending, kind in modality.content_types.items()
}


def classify(name: str) -> tuple[Modality, str] | None:
    """Modality and content type by the name's ending, or None for a kind of file we do not take."""
    return CONTENT_TYPES.get(PurePath(name).suffix.lower())


def content_type_of(path: str) -> str | None:
    """By the name's ending, for events that do not tell; None where the ending says nothing."""
    kind = classify(path)
    return kind[1] if kind else None
