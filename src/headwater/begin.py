"""How work on a lake begins: alone under a lease, recorded in the journal, with a run over the lake's parts."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from headwater import faults, telemetry
from headwater.components import Components

if TYPE_CHECKING:
    from headwater.flow.run import Run
    from headwater.upkeep.journal import JournalEntry

Report = Callable[[str, int], None]


@contextmanager
def alone(parts: Components, name: str, stop: threading.Event) -> Iterator[None]:
    """Conflict where another process holds the lease; `stop` is set where it is lost."""
    from headwater.storage.holding import holding

    def lost() -> None:
        telemetry.note("lease.lost", level="error", lease=name)
        stop.set()

    faults.arm()
    with holding(parts.ledger, name, f"headwater {name}", parts.clock, lost):
        yield


def recorded(
    parts: Components, kind: str, listen: Callable[[str], None] | None = None
) -> "AbstractContextManager[JournalEntry]":
    from headwater.upkeep.journal import recorded

    return recorded(parts.settings, parts.ledger, kind, parts.clock, listen)


def new_run(
    parts: Components, entry: "JournalEntry", report: Report | None, stop: threading.Event | None = None
) -> "Run":
    """Starts Spark."""
    from headwater.flow.account import Account
    from headwater.flow.run import Run

    return Run(
        parts.spark_and_index(),
        parts.settings,
        parts.ledger,
        parts.log,
        parts.index,
        parts.clock,
        report or _silent,
        stop or threading.Event(),
        Account(entry.done, entry.models, entry.save),
    )


def _silent(*_: object) -> None:
    pass
