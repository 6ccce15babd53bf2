"""Chat: what was written, as it was written. No bytes to fetch, no model to call."""

from headwater.errors import DataFault
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Effort, StepResult, said_result
from headwater.flow.models.inline import Inline
from headwater.flow.models.loaded import Models


def message_result(text: str | None) -> StepResult:
    """A message's row; it needs no sandbox, because nothing is decoded."""
    if not text or not text.strip():
        raise DataFault("EMPTY", "The message has no text.")
    model = Inline()
    return said_result(model.run([text])[0], model.card, Effort(0.0))


def message(source: Source, models: Models) -> StepResult:
    return message_result(source.text)
