"""What a step's function is given and gives: a row's own columns, judged against what its model was given."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, Final

from headwater.errors import DataFault
from headwater.flow.derive.source import Source
from headwater.flow.models.answers import LETTERS_MAX, checked_amount, checked_said
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import ModelCard, Said

StepResult = dict[str, Any]
# None where there is nothing to say: a video without sound has no transcript.
StepFunction = Callable[[Source, Models], StepResult | None]
LETTERS_PER_SECOND, LETTERS_BESIDES = 60, 2_000
LETTERS_PER_PICTURE: Final = 100_000
SECONDS_BESIDES: Final = 60  # a model that hears in windows of half a minute may end its last segment beyond the sound
PROBE_FIELDS: Final = ("duration_ms", "width", "height", "pages", "channels", "sample_rate", "codec")


def probed(**found: Any) -> StepResult:
    """A probe's result: every field, None where it does not apply."""
    return {name: found.get(name) for name in PROBE_FIELDS}


@dataclass(frozen=True, slots=True)
class Effort:
    """What a model was given and how long it took, from which its cost is told."""

    model_seconds: float
    audio_seconds: float = 0.0
    images: int = 0
    calls: int = 1

    def plus(self, other: "Effort") -> "Effort":
        return Effort(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))


def said_result(answer: Said, card: ModelCard, effort: Effort) -> StepResult:
    """A row's columns; raises DataFault BAD_OUTPUT where a model answered with something unusable."""
    said = checked_said(answer)
    _require_sensible(said, card, effort)
    cost = card.cost(seconds=effort.audio_seconds, images=effort.images, tokens=said.tokens, calls=effort.calls)
    return {
        "text": said.text,
        "language": said.language,
        "confidence": said.confidence,
        "segments": [segment.to_dict() for segment in said.segments],
        "model_seconds": round(effort.model_seconds, 4),
        "tokens": said.tokens,
        "cost": checked_amount(cost, "cost"),
        "attempts": said.attempts,
    }


def _require_sensible(said: Said, card: ModelCard, effort: Effort) -> None:
    """Against what the model was given; a text is told once more by its segments, with some white space between."""
    letters, most = max(len(said.text), sum(len(part.text) for part in said.segments)), _letters_max(card, effort)
    if letters > most:
        raise DataFault("BAD_OUTPUT", f"The model answered with {letters:,} letters; {most:,} would be many.")
    ends = [part.locator.end_ms or part.locator.start_ms or 0 for part in said.segments]
    if effort.audio_seconds and max(ends, default=0) > (effort.audio_seconds + SECONDS_BESIDES) * 1000:
        raise DataFault("BAD_OUTPUT", f"A segment ends at {max(ends)} ms; the sound at {effort.audio_seconds:g} s.")


def _letters_max(card: ModelCard, effort: Effort) -> int:
    """Far more than anybody says or shows: a model that goes round in circles goes past it."""
    if card.accepts == "speech" and effort.audio_seconds:
        return LETTERS_BESIDES + int(effort.audio_seconds * LETTERS_PER_SECOND)
    if card.accepts == "picture" and effort.images:
        return LETTERS_PER_PICTURE * effort.images
    return LETTERS_MAX
