"""The five kinds of thing that come in, and how a file shows which one it is."""

from enum import StrEnum
from pathlib import PurePath


class Modality(StrEnum):
    AUDIO = "audio"
    IMAGE = "image"
    VIDEO = "video"
    DOCUMENT = "document"
    CHAT = "chat"

    @property
    def prefix(self) -> str:
        """The first part of a raw key."""
        return "images" if self is Modality.IMAGE else "documents" if self is Modality.DOCUMENT else self.value


# An allow-list: what is not here is refused at the door rather than guessed at by a decoder.
CONTENT_TYPES: dict[str, tuple[Modality, str]] = {
    ".wav": (Modality.AUDIO, "audio/wav"),
    ".mp3": (Modality.AUDIO, "audio/mpeg"),
    ".flac": (Modality.AUDIO, "audio/flac"),
    ".ogg": (Modality.AUDIO, "audio/ogg"),
    ".opus": (Modality.AUDIO, "audio/ogg"),
    ".m4a": (Modality.AUDIO, "audio/mp4"),
    ".aac": (Modality.AUDIO, "audio/aac"),
    ".png": (Modality.IMAGE, "image/png"),
    ".jpg": (Modality.IMAGE, "image/jpeg"),
    ".jpeg": (Modality.IMAGE, "image/jpeg"),
    ".webp": (Modality.IMAGE, "image/webp"),
    ".heic": (Modality.IMAGE, "image/heic"),
    ".heif": (Modality.IMAGE, "image/heif"),
    ".gif": (Modality.IMAGE, "image/gif"),
    ".bmp": (Modality.IMAGE, "image/bmp"),
    ".tif": (Modality.IMAGE, "image/tiff"),
    ".tiff": (Modality.IMAGE, "image/tiff"),
    ".mp4": (Modality.VIDEO, "video/mp4"),
    ".m4v": (Modality.VIDEO, "video/mp4"),
    ".mov": (Modality.VIDEO, "video/quicktime"),
    ".webm": (Modality.VIDEO, "video/webm"),
    ".mkv": (Modality.VIDEO, "video/x-matroska"),
    ".avi": (Modality.VIDEO, "video/x-msvideo"),
    ".pdf": (Modality.DOCUMENT, "application/pdf"),
}


def classify(name: str) -> tuple[Modality, str] | None:
    """Modality and content type by the name's ending, or None for a kind of file we do not take."""
    return CONTENT_TYPES.get(PurePath(name).suffix.lower())


def content_type_of(path: str) -> str | None:
    """By the name's ending, for events that do not tell; None where the ending says nothing."""
    kind = classify(path)
    return kind[1] if kind else None
