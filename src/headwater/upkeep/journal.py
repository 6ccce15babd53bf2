"""Journal: what was started on a lake and what came of it, in the ledger and in logs/headwater.jsonl.

Writes  the ledger's runs, <lake>/logs/headwater.jsonl
A run without an outcome is at work, or was killed: the lease tells which.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from headwater import telemetry
from headwater.clock import Clock
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.settings import Settings
from headwater.storage.ledger import Ledger

DONE: Final = "done"
FAILED: Final = "failed"
RUN_LEASE: Final = "run"
MAINTAIN_LEASE: Final = "maintain"


def lease_of(kind: str) -> str:
    """Which lease work of this kind holds: maintenance has its own, because it is safe beside a run."""
    return MAINTAIN_LEASE if kind == MAINTAIN_LEASE else RUN_LEASE


@contextmanager
def recorded(
    settings: Settings, ledger: Ledger, kind: str, clock: Clock, listen: Callable[[str], None] | None = None
) -> Iterator[dict[str, int]]:
    """Gives a dictionary for the counts, which are kept with the outcome whether the work ends well or not."""
    level = settings.text("telemetry.level")
    if level not in telemetry.LEVELS:
        raise InvalidRequest(f"telemetry.level is {level}; it must be one of {', '.join(telemetry.LEVELS)}.")
    done: dict[str, int] = {}
    with telemetry.writing(telemetry.Sink(settings.lake / "logs", level, clock, listen)):
        number, begun = ledger.start_run(kind, clock()), time.monotonic()
        telemetry.note(f"{kind}.started", run=number, lease=lease_of(kind))
        try:
            yield done
        except BaseException as error:
            telemetry.note(f"{kind}.failed", level="error", run=number, error=_said(error), done=done)
            # The ledger may be what failed; its error must not hide the first one.
            with suppress(HeadwaterError):
                ledger.finish_run(number, FAILED, clock(), {"error": _said(error), "done": done})
            raise
        telemetry.note(f"{kind}.stopped", run=number, seconds=round(time.monotonic() - begun, 3), done=done)
        ledger.finish_run(number, DONE, clock(), {"done": done})


def _said(error: BaseException) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:300]}"
