"""Journal: what was started on a lake and what came of it, in the ledger and in logs/headwater.jsonl.

Writes  the ledger's runs, <lake>/logs/headwater.jsonl
A run without an outcome is at work, or was killed: the lease tells which. What its models did is noted as it goes, so a
killed run's bill is known up to its last commit.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from headwater import telemetry
from headwater.clock import Clock
from headwater.errors import HeadwaterError, InvalidRequest, describe
from headwater.settings import Settings
from headwater.storage.ledger.ledger import Ledger
from headwater.upkeep.exclusion import lease_of

DONE: Final = "done"
FAILED: Final = "failed"
INTERRUPTED: Final = "interrupted"  # told to stop before it had done all; the next run goes on


@dataclass(slots=True)
class JournalEntry:
    """Counts by stage, and by a step's model what it did and cost; `save` writes down how it stands. `interrupted` says
    that it was told to stop with work left."""

    save: Callable[[], None]
    done: dict[str, int] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {"done": self.done, "models": self.models}


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
            outcome = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
            telemetry.note(f"{kind}.{outcome}", level="error", run=number, error=describe(error), done=entry.done)
            # The ledger may be what failed; its error must not hide the first one.
            with suppress(HeadwaterError):
                ledger.finish_run(number, outcome, clock(), {"error": describe(error), **entry.to_dict()})
            raise
        seconds = round(time.monotonic() - begun, 3)
        telemetry.note(f"{kind}.stopped", run=number, seconds=seconds, done=entry.done, models=entry.models)
        ledger.finish_run(number, INTERRUPTED if entry.interrupted else DONE, clock(), entry.to_dict())


def record(ledger: Ledger, kind: str, started_at: datetime, now: datetime, detail: Mapping[str, Any]) -> None:
    """A line for work that is done: its ledger was not there to be written to while it was at it."""
    ledger.finish_run(ledger.start_run(kind, started_at, detail), DONE, now)
