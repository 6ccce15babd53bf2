"""How work on a lake begins: alone under a lease, recorded in the journal, with a run over the lake's parts."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater import faults, telemetry
from headwater.upkeep.parts import Parts

if TYPE_CHECKING:
    from headwater.flow.drive.run import Run
    from headwater.storage.ledger.hold_lease import Held
    from headwater.storage.tables.writer import TableWriter
    from headwater.upkeep.journal import JournalEntry

Report = Callable[[str, int], None]


@contextmanager
def alone(
    parts: Parts, kind: str, stop: threading.Event | None = None, *, any_format: bool = False
) -> "Iterator[Held]":
    """Conflict where somebody is at work that must not be beside this; `stop` is set where the lease is lost.

    `any_format` is for who brings a lake to its format, or to where it is opened.
    """
    from headwater.upkeep import exclusion
    from headwater.upkeep.format import check_format

    def lost() -> None:
        telemetry.note("lease.lost", level="error", lease=exclusion.lease_of(kind))
        if stop is not None:
            stop.set()

    faults.arm()
    with exclusion.alone(parts.ledger, kind, parts.clock, lost) as held:
        if not any_format:
            check_format(parts.ledger)  # it may have been moved or upgraded since it was opened
        faults.point("work.begun")
        yield held


@contextmanager
def recorded(parts: Parts, kind: str, listen: Callable[[str], None] | None = None) -> "Iterator[JournalEntry]":
    """With an outcome in the journal; what Spark raises is one of our errors there, and for the caller."""
    from headwater.storage.spark.errors import translated_spark
    from headwater.upkeep.journal import recorded

    with recorded(parts.settings, parts.ledger, kind, parts.clock, listen) as entry, translated_spark():
        yield entry


def new_writer(parts: Parts, held: "Held | None") -> "TableWriter":
    """Starts Spark. Whoever held the lease before and only sleeps is shut out before anything is read.

    Without a lease nobody is: that is for tests, which are alone.
    """
    from headwater.domain.tables import TABLES
    from headwater.storage.tables.read_progress import read_progress
    from headwater.storage.tables.writer import TableWriter

    if held is None:
        return TableWriter(parts.spark_and_index(), parts.settings)
    held.raise_above(max(read_progress(parts.settings, table).epoch for table in TABLES))
    writer = TableWriter(parts.spark_and_index(), parts.settings, held.lease.epoch)
    if held.lease.takeover:
        writer.fence()
        held.note_fenced()
    return writer


def check_models(parts: Parts, held: "Held", model: str | None = None) -> None:
    """Before Spark is started for a run or a retry, by `model`: raises where a model is not there, or is another one by
    now. A replay asks for no such thing, since it is the way out."""
    from headwater.flow.drive.register_models import check_models

    check_models(parts.settings, held.ledger, parts.clock, model)


def new_run(
    parts: Parts,
    held: "Held | None",
    entry: "JournalEntry",
    report: Report | None,
    stop: threading.Event | None = None,
) -> "Run":
    """Starts Spark."""
    from headwater.flow.drive.account import Account
    from headwater.flow.drive.run import Run

    return Run(
        new_writer(parts, held),
        held.ledger if held else parts.ledger,
        parts.log,
        parts.index,
        parts.clock,
        stop or threading.Event(),
        Account(entry.done, entry.models, entry.save, report or _silent),
    )


def _silent(*_: object) -> None:
    pass
