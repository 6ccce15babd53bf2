"""A source: the bytes of one object while they are being derived, with the limits that hold for them."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from headwater.errors import DataFault
from headwater.flow.derive.call_times import CallTimes
from headwater.flow.models.port import ModelCard
from headwater.settings import BY_NAME

LONG_FACTOR: Final = 10  # a batch is not kept waiting by what lasts so many times as long as it waits for one object


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of [limits], as a decoder needs them."""

    step_seconds: float
    object_seconds: float
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


def _say_nothing(_: Any) -> None:
    pass


class Keep(Protocol):
    def __call__(self, so_far: Callable[[], dict[str, Any]], *, cheap: bool = False) -> None:
        """`cheap` where no model was asked for what is new: then it need not be told each time."""


def _keep_nothing(so_far: Callable[[], dict[str, Any]], *, cheap: bool = False) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Source:
    """`content` is the bytes themselves, or a file where they are many.

    `allow` asks for more time for the step at hand. `keep` is given what a step has so far, as a function that tells
    it: if the time runs out, that is its answer. `patience` is how long the batch waits for this object, and
    `call_times` how long the calls of each model take.
    """

    content: bytes | Path
    content_type: str
    limits: Limits
    text: str | None = None
    allow: Callable[[float], None] = field(default=_say_nothing)
    keep: Keep = field(default=_keep_nothing)
    patience: float | None = None
    call_times: CallTimes = field(default_factory=CallTimes)

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

    def require_length(self, duration_ms: int | None) -> None:
        """What claims to be too long is refused; what claims less has earned nothing by that."""
        if duration_ms is not None and duration_ms > self.limits.media_minutes * 60_000:
            raise DataFault(
                "TOO_LARGE",
                f"It claims {duration_ms / 60_000:.0f} minutes; limits.media_minutes is {self.limits.media_minutes:g}.",
            )

    def require_quick(self, duration_ms: int | None) -> None:
        """What would hold up its batch is not even begun, where somebody waits for the batch."""
        if self.patience is not None and (duration_ms or 0) > self.patience * LONG_FACTOR * 1000:
            raise DataFault("SLOW", f"It lasts {(duration_ms or 0) / 60_000:.0f} minutes: derived beside the run.")

    def require_few_calls(self, card: ModelCard, most: int, count: Callable[[int], int]) -> None:
        """Before the first of several calls: all of them must fit into the patience, or none is made.

        There are at most `most`. `count` looks how many there are, as far as it is told, and is asked only where it
        matters.
        """
        if self.patience is None:
            return
        fit = self.call_times.calls_within(self.patience, card)
        if most > fit and count(fit + 1) > fit:
            raise DataFault("SLOW", f"It takes more than {fit} calls of {card.name}: derived beside the run.")
