"""How work on a lake begins: alone under a lease, recorded in the journal, with a run over the lake's parts."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from headwater import faults, telemetry
from headwater.components import Components

if TYPE_CHECKING:
    from headwater.flow.run import Run
    from headwater.storage.holding import Held
    from headwater.storage.table_writer import TableWriter
    from headwater.upkeep.journal import JournalEntry

Report = Callable[[str, int], None]


@contextmanager
def alone(parts: Components, name: str, stop: threading.Event) -> "Iterator[Held]":
    """Conflict where another process holds the lease; `stop` is set where it is lost."""
    from headwater.storage.holding import holding

    def lost() -> None:
        telemetry.note("lease.lost", level="error", lease=name)
        stop.set()

    faults.arm()
    with holding(parts.ledger, name, f"headwater {name}", parts.clock, lost) as held:
        yield held


def recorded(
    parts: Components, kind: str, listen: Callable[[str], None] | None = None
) -> "AbstractContextManager[JournalEntry]":
    from headwater.upkeep.journal import recorded

    return recorded(parts.settings, parts.ledger, kind, parts.clock, listen)


def new_writer(parts: Components, held: "Held | None") -> "TableWriter":
    """Starts Spark. Whoever held the lease before and only sleeps is shut out before anything is read.

    Without a lease nobody is: that is for tests, which are alone.
    """
    from headwater.domain.tables import TABLES
    from headwater.storage.peek import peek_progress
    from headwater.storage.table_writer import TableWriter

    if held is None:
        return TableWriter(parts.spark_and_index(), parts.settings)
    held.raise_above(max(peek_progress(parts.settings, table).epoch for table in TABLES))
    writer = TableWriter(parts.spark_and_index(), parts.settings, held.lease.epoch)
    if held.lease.takeover:
        writer.fence()
    return writer


def new_run(
    parts: Components,
    held: "Held | None",
    entry: "JournalEntry",
    report: Report | None,
    stop: threading.Event | None = None,
) -> "Run":
    """Starts Spark."""
    from headwater.flow.account import Account
    from headwater.flow.run import Run

    return Run(
        new_writer(parts, held),
        held.ledger if held else parts.ledger,
        parts.log,
        parts.index,
        parts.clock,
        report or _silent,
        stop or threading.Event(),
        Account(entry.done, entry.models, entry.save),
    )


def _silent(*_: object) -> None:
    pass
