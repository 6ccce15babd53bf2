"""A source: the bytes of one object while they are being derived, with the limits that hold for them."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from headwater.errors import DataFault
from headwater.settings import BY_NAME


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of [limits], as a decoder needs them."""

    step_seconds: float
    realtime_factor: float
    child_mb: int
    pixels: int
    media_minutes: float
    pages: int
    frames: int
    object_mb: int

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> "Limits":
        """Names as in the settings; what is missing takes its default."""
        return cls(**{name: values.get(f"limits.{name}", BY_NAME[f"limits.{name}"].default) for name in cls.__slots__})


def _say_nothing(seconds: float) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Source:
    """`content` is the bytes themselves, or a file where they are many. `allow` asks for more time for this object."""

    content: bytes | Path
    content_type: str
    limits: Limits
    text: str | None = None
    allow: Callable[[float], None] = field(default=_say_nothing)

    @property
    def size(self) -> int:
        return self.content.stat().st_size if isinstance(self.content, Path) else len(self.content)

    def open(self) -> BinaryIO:
        return self.content.open("rb") if isinstance(self.content, Path) else io.BytesIO(self.content)

    def head(self, size: int) -> bytes:
        with self.open() as file:
            return file.read(size)

    def require_bytes(self) -> None:
        if self.size == 0:
            raise DataFault("EMPTY", "The object has no bytes.")

    def allow_media(self, duration_ms: int | None) -> None:
        """Long media may take long: so many seconds more for each second of it. Too long is refused."""
        if duration_ms is None:
            return
        if duration_ms > self.limits.media_minutes * 60_000:
            raise DataFault(
                "TOO_LARGE",
                f"It claims {duration_ms / 60_000:.0f} minutes; limits.media_minutes is {self.limits.media_minutes:g}.",
            )
        self.allow(duration_ms / 1000 * self.limits.realtime_factor)
