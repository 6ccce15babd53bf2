"""An outage: somebody who does not answer is left alone for a while, and holds up nobody else."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headwater import telemetry
from headwater.errors import Unavailable

DOWN_SECONDS: Final = 10.0  # before who did not answer is asked again


@dataclass(slots=True)
class Outage:
    """`name` is what the log of events calls who did not answer; `kind` tells that from anything else that did not: a
    table that cannot be written is no embedder that is down, and ends the run."""

    name: str
    kind: type[Unavailable] = Unavailable
    error: Unavailable | None = None
    _ask_after: float = 0.0

    def spared(self, work: Callable[[], Any]) -> Any:
        """What `work` gives; None while the other side is left alone, and where it does not answer."""
        if time.monotonic() < self._ask_after:
            return None
        try:
            made = work()
            self.error = None
            return made
        except self.kind as error:
            self.error, self._ask_after = error, time.monotonic() + DOWN_SECONDS
            telemetry.note(f"{self.name}.down", level="warning", detail=str(error))
            return None

    def require_over(self) -> None:
        """Raise what is down still."""
        if self.error is not None:
            raise self.error
