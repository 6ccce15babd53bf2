"""An embedder kept apart: its model runs in a child, so that a text which kills, freezes or bloats it costs a child.

What was under way is then Lost, which is the embedder's fault until a plain word says otherwise: see `asking`. The next
call starts a new child. A call may take `limits.step_seconds`, and what the model's card asks for on top; a batch that
took longer is cut smaller from then on, for it may be the model that is slow and not a text that hangs. Each text that
hung alone leaves the next one less time, down to what others needed: hundreds of them must not add up to hours.
"""

import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.flow.child.environment import model_variables
from headwater.flow.child.process import ChildProcess
from headwater.flow.models.port import Embedded, ModelCard
from headwater.flow.models.registry import load_model
from headwater.flow.models.spending import money_left, note_paid
from headwater.settings import Settings

LOAD_SECONDS: Final = 600.0  # for weights of some gigabytes from a slow disk
CALL_SECONDS_MIN: Final = 5.0
_CUT: Final = 4  # how much smaller the batches are after one took too long
_AS_OTHERS: Final = 10.0  # times what the slowest text that was answered alone took


class Lost(Unavailable):
    """The child ended, or was ended, before it answered. `reason` is what a text is set aside for whose fault it is."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ModelProcess:
    """A `Model` for texts whose `run` may be lost. `load` starts the child; `close` it."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._name = name
        self._settings = settings
        self.card: ModelCard = load_model(name, settings.models).card
        self._child: ChildProcess | None = None
        self._most = max(1, self.card.batch_items)
        self._seconds_most = settings.number("limits.step_seconds") + max(0.0, self.card.deadline_seconds)
        self._limit = f"limits.step_seconds is {settings.number('limits.step_seconds'):g}"
        self._seconds = self._seconds_most
        self._slowest = 0.0  # of those that were answered alone

    def rest(self) -> None:
        """Between tasks: what hung in one says nothing of the next."""
        self._seconds = self._seconds_most

    def load(self) -> None:
        """Raises Unavailable, or InvalidRequest, where the model cannot be loaded."""
        self.close()
        options = dict(self._settings.models.get(self._name, {}))
        config = {
            "name": self._name,
            "models": {self._name: options},
            "variables": model_variables(options),
            "child_mb": self._settings.whole("limits.child_mb"),
        }
        named = self._settings.text("limits.child_variables")
        self._child = ChildProcess("headwater.flow.embed.child", config, named)
        try:
            message = self._receive(LOAD_SECONDS)
        except Lost as lost:
            raise Unavailable(f"The model {self._name} cannot be loaded: {lost} Mend it, then try again.") from lost
        if "ready" not in message:
            self.close()
            refused = message.get("refused")
            raise InvalidRequest(str(refused)) if refused else Unavailable(str(message.get("unavailable")))

    def run(self, batch: Sequence[str]) -> list[Embedded | DataFault]:
        found: list[Embedded | DataFault] = []
        for start in range(0, len(batch), self._most):
            found += self._run(batch[start : start + self._most])
        return found

    def close(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def _run(self, texts: Sequence[str]) -> list[Embedded | DataFault]:
        if self._child is None or not self._child.is_alive:
            self.load()
        assert self._child is not None
        begun = time.monotonic()
        self._child.send({"texts": list(texts), "money": money_left()})
        try:
            message = self._receive(self._seconds)
        except Lost as lost:
            if lost.reason == "TIMEOUT":
                self._shorten(len(texts))
            raise
        if len(texts) == 1:
            self._slowest = max(self._slowest, time.monotonic() - begun)
        if "ends" in message:
            self.close()
        return self._read(message, len(texts))

    def _read(self, message: Mapping[str, Any], asked: int) -> list[Embedded | DataFault]:
        try:
            if "unavailable" in message:
                raise Unavailable(str(message["unavailable"]), after_seconds=float(message.get("after_seconds", 0.0)))
            if "fault" in message:
                raise _fault(message["fault"])
            found = [_answer(answer) for answer in message["answers"]]
            if len(found) != asked:
                raise ValueError(f"{len(found)} answers to {asked} texts")
        except (KeyError, TypeError, ValueError) as error:
            raise self._lost("CRASHED", f"The embedder's process said what nobody understands: {error}.") from error
        return found

    def _shorten(self, texts: int) -> None:
        if texts > 1:
            self._most = max(1, texts // _CUT)
            return
        least = min(self._seconds_most, max(CALL_SECONDS_MIN, _AS_OTHERS * self._slowest))
        self._seconds = max(least, self._seconds / 2)

    def _receive(self, seconds: float) -> dict[str, Any]:
        """The next answer; what its calls have cost is noted as it is said. Raises Lost, and then there is no child."""
        assert self._child is not None
        deadline = time.monotonic() + seconds
        while True:
            data = self._child.receive(deadline)
            if data is None:
                raise self._lost("TIMEOUT", f"The embedder gave no answer in {seconds:.3g} s; {self._limit}.")
            if not data:
                how, words = self._child.how_it_died(), self._child.last_words()
                raise self._lost("CRASHED", f"The embedder's process ended: {how}; {words}.")
            try:
                for message in self._child.unpack(data):
                    if "billed" not in message:
                        return dict(message)
                    note_paid(float(message["billed"]))
            except (ValueError, TypeError, RecursionError) as error:
                sentence = f"The embedder's process said what nobody understands: {error}."
                raise self._lost("CRASHED", sentence) from error

    def _lost(self, reason: str, sentence: str) -> Lost:
        self.close()
        return Lost(reason, sentence)


def _answer(answer: Mapping[str, Any]) -> Embedded | DataFault:
    if "fault" in answer:
        return _fault(answer["fault"])
    vector = np.frombuffer(base64.b64decode(answer["vector"]), "<f4")
    return Embedded(vector, int(answer["tokens"]), int(answer["attempts"]))


def _fault(fault: Sequence[object]) -> DataFault:
    reason, detail = fault
    return DataFault(str(reason), str(detail))
