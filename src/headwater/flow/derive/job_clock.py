"""How long an object may take, by the parent's own clock: nothing that a file claims can turn it back.

A step may take `limits.step_seconds`, and what it has earned on top by media that it decoded. Two bounds stand above
that, and no file moves them: `limits.object_seconds` for all steps together, and `run.patience_seconds`, which is how
long a batch waits for one of its objects; who is slower than that is set aside and done beside the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.flow.derive.source import Limits

FETCH_SECONDS: Final = 600.0  # a store may take this long to bring an object; one that says nothing gives up before
LOAD_SECONDS: Final = 60.0  # a cold machine may take this long to start a child or to load a model, on top of its step

Trouble = tuple[str, str]  # a reason of quarantine, and a sentence


@dataclass(slots=True)
class JobClock:
    """The time of one object in hand, which was begun for the first time at `begun`, and the step at hand later."""

    limits: Limits
    patience: float | None
    begun: float
    _step_begun: float
    _patient_from: float = field(init=False)
    _earned: float = 0.0
    _fetching_since: float | None = None
    _calling_since: float | None = None

    def __post_init__(self) -> None:
        self._patient_from = self.begun

    def note(self, message: Mapping[str, Any], now: float) -> None:
        """What the child says of its work on this object."""
        if "allow" in message:
            self._earned += max(0.0, float(message["allow"]))
        elif "calling" in message:
            self._call(bool(message["calling"]), now)
        elif "fetching" in message:
            self._fetch(bool(message["fetching"]), now)
        elif "ok" in message or "fault" in message:
            self._step_begun, self._earned = now, 0.0

    def skip(self, seconds: float) -> None:
        """Time that does not count, such as that of a model that is loaded."""
        self.begun += seconds
        self._step_begun += seconds
        self._patient_from += seconds

    def deadline(self) -> float:
        return min(moment for moment, _ in self._bounds())

    def trouble(self) -> Trouble:
        """What is to be said where the deadline has passed."""
        return min(self._bounds())[1]

    def _bounds(self) -> list[tuple[float, Trouble]]:
        if self._fetching_since is not None:
            return [(self._fetching_since + FETCH_SECONDS, ("TIMEOUT", f"It was not fetched in {FETCH_SECONDS:g} s."))]
        step = self.limits.step_seconds + self._earned
        most = self.limits.object_seconds
        found = [
            (self._step_begun + step, ("TIMEOUT", self._no_answer())),
            (self.begun + most, ("TIMEOUT", f"It took longer than limits.object_seconds, {most:g} s.")),
        ]
        # A call that is under way may have been paid for; its own deadline ends it.
        if self.patience is not None and self._calling_since is None:
            found.append((self._patient_from + self.patience, slow(self.patience)))
        return found

    def _no_answer(self) -> str:
        """The setting as it is set, and what came on top of it, apart."""
        earned = f", and {self._earned:.3g} s that its length or its pages earned" if self._earned else ""
        return f"No answer within limits.step_seconds, {self.limits.step_seconds:g} s{earned}."

    def _call(self, begins: bool, now: float) -> None:
        if self._calling_since is not None:
            self._patient_from += now - self._calling_since
        self._calling_since = now if begins else None

    def _fetch(self, begins: bool, now: float) -> None:
        if self._fetching_since is not None:
            self.skip(now - self._fetching_since)
        self._fetching_since = now if begins else None


def slow(patience: float) -> Trouble:
    return "SLOW", f"A batch waits {patience:.3g} s for one object; this one is derived beside the run, by itself."
