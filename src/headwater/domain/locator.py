"""A locator says where in an object a text or a vector comes from: milliseconds, speaker, page, section,
frame, box."""

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Locator:
    """`box` is left, top, right, bottom in pixels of the picture or frame; `speaker` is who says it, where that is
    known; `section` the heading that it stands below, or the rows of a sheet."""

    start_ms: int | None = None
    end_ms: int | None = None
    page: int | None = None
    frame_ms: int | None = None
    box: tuple[float, float, float, float] | None = None
    speaker: str | None = None
    section: str | None = None

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields, "box": list(self.box) if self.box else None}


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text and its place."""

    text: str
    locator: Locator = Locator()

    def to_dict(self) -> dict[str, Any]:
        return {**self.locator.to_dict(), "text": self.text}


_PLACE = [
    pa.field("start_ms", pa.int64()),
    pa.field("end_ms", pa.int64()),
    pa.field("page", pa.int32()),
    pa.field("frame_ms", pa.int64()),
    pa.field("box", pa.list_(pa.float32())),
]
# Last in both, since they came last: a lake that was upgraded has them there, and one order serves all lakes.
_LATER = [pa.field("speaker", pa.string()), pa.field("section", pa.string())]
LOCATOR_TYPE = pa.struct([*_PLACE, *_LATER])
SEGMENT_TYPE = pa.struct([*_PLACE, pa.field("text", pa.string()), *_LATER])
