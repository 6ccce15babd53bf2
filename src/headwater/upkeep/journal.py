"""Journal: what was started on a lake and what came of it, in the ledger and in logs/headwater.jsonl.

Writes  the ledger's runs, <lake>/logs/headwater.jsonl
A run without an outcome is at work, or was killed: the lease tells which. What its models did is noted as it goes, so a
killed run's bill is known up to its last commit.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from headwater import telemetry
from headwater.clock import Clock
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.settings import Settings
from headwater.storage.ledger import Ledger

DONE: Final = "done"
FAILED: Final = "failed"
RUN_LEASE: Final = "run"
MAINTAIN_LEASE: Final = "maintain"


@dataclass(slots=True)
class JournalEntry:
    """Counts by stage, and by a step's model what it did and cost; `save` writes down how it stands."""

    save: Callable[[], None]
    done: dict[str, int] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"done": self.done, "models": self.models}


def lease_of(kind: str) -> str:
    """Which lease work of this kind holds: maintenance has its own, because it is safe beside a run."""
    return MAINTAIN_LEASE if kind == MAINTAIN_LEASE else RUN_LEASE


@contextmanager
def recorded(
    settings: Settings, ledger: Ledger, kind: str, clock: Clock, listen: Callable[[str], None] | None = None
) -> Iterator[JournalEntry]:
    """Gives an entry for the counts, which are kept with the outcome whether the work ends well or not."""
    level = settings.text("telemetry.level")
    if level not in telemetry.LEVELS:
        raise InvalidRequest(f"telemetry.level is {level}; it must be one of {', '.join(telemetry.LEVELS)}.")
    with telemetry.writing(telemetry.Sink(settings.lake / "logs", level, clock, listen)):
        number, begun = ledger.start_run(kind, clock()), time.monotonic()
        entry = JournalEntry(lambda: ledger.note_run(number, entry.to_dict()))
        telemetry.note(f"{kind}.started", run=number, lease=lease_of(kind))
        try:
            yield entry
        except BaseException as error:
            telemetry.note(f"{kind}.failed", level="error", run=number, error=_said(error), done=entry.done)
            # The ledger may be what failed; its error must not hide the first one.
            with suppress(HeadwaterError):
                ledger.finish_run(number, FAILED, clock(), {"error": _said(error), **entry.to_dict()})
            raise
        seconds = round(time.monotonic() - begun, 3)
        telemetry.note(f"{kind}.stopped", run=number, seconds=seconds, done=entry.done, models=entry.models)
        ledger.finish_run(number, DONE, clock(), entry.to_dict())


def _said(error: BaseException) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:300]}"
