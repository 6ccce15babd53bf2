"""Notebook: the medium of a hit or an object as a part of a notebook's page: a thumbnail, or a player at the words.

Pictures, pages and key frames are drawn anew as small JPEGs in a child, so that no file of a stranger reaches the
browser; sound is handed over as it is where it is small, as a kind that no browser takes for a page.
"""

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from headwater.components import Components
from headwater.errors import HeadwaterError

_WIDTH: Final = 240
_HEIGHT: Final = 180
_SOUND_BYTES: Final = 1 << 20  # a notebook keeps what it shows: ten hits are at most some megabytes
_SOUNDS: Final = frozenset(
    {"audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm"}
)
_DRAWN: Final = frozenset({"image", "video", "document"})


class NotebookMedia:
    """Called with an object's id, its event's fields and a place in it; "" where there is nothing to show."""

    def __init__(self, components: Components | None) -> None:
        self._parts = components

    def __reduce__(self) -> tuple[type["NotebookMedia"], tuple[None]]:
        """A copy has no lake behind it."""
        return NotebookMedia, (None,)

    def __call__(self, id: str, event: Mapping[str, Any], place: Mapping[str, Any]) -> str:
        if self._parts is None:
            return ""
        try:
            return self._drawn(self._parts, id, event, place)
        except HeadwaterError:
            return ""

    def _drawn(self, parts: Components, id: str, event: Mapping[str, Any], place: Mapping[str, Any]) -> str:
        from headwater.upkeep.object_view import open_object

        modality = event.get("modality")
        if modality not in _DRAWN and modality != "audio":
            return ""
        found = open_object(parts.reader, parts.raw_store, id, event.get("customer"))
        if modality == "audio":
            if found.size > _SOUND_BYTES or found.content_type not in _SOUNDS:
                return ""
            start = f"#t={place['start_ms'] / 1000:.1f}" if place.get("start_ms") else ""
            data = b64encode(b"".join(found.read())).decode()
            return f'<audio controls preload="metadata" src="data:{found.content_type};base64,{data}{start}"></audio>'
        page = place.get("page") if modality == "document" else None
        moment = (place.get("frame_ms") or place.get("start_ms") or 0) if modality == "video" else None
        drawn = parts.previews.draw(found.modality, found.pointer, page=page, frame_ms=moment, width=_WIDTH)
        data = b64encode(drawn).decode()
        style = f"max-width: {_WIDTH}px; max-height: {_HEIGHT}px; border: 1px solid #ccc"
        return f'<img src="data:image/jpeg;base64,{data}" alt="{escape(id)}" style="{style}">'
