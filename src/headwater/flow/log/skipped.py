"""Skipped: lines of the log that nobody reads, because somebody who tends the lake said so.

Reads   a fact of the ledger
Writes  the same fact
A line that is no event costs a row of quarantine and stops nothing. This is for the one that stops the reading all the
same, as a fault of ours would have it: its bytes are not looked at, and its row says who passed over it, and why.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from headwater.storage.ledger.ledger import Ledger
from headwater.storage.log.pointer_log import PointerLog

_FACT: Final = "log.skipped"


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """`log` is the identity of the log in which the place is meant: in another one another line stands there."""

    partition: int
    offset: int
    log: str
    by: str
    because: str
    at: str

    def __str__(self) -> str:
        return f"skipped by {self.by}: {self.because}"


def note_skipped(ledger: Ledger, line: SkippedLine) -> None:
    """Twice is once: who said it first is kept."""

    def change(noted: str | None) -> str:
        known = _parse(noted)
        known.setdefault((line.partition, line.offset, line.log), line)
        return json.dumps([asdict(each) for each in known.values()])

    ledger.change_fact(_FACT, change)


def read_skipped(ledger: Ledger, log: PointerLog) -> dict[tuple[int, int], SkippedLine]:
    """Of the log that is there, by place. Where there are none the log is not asked."""
    found = _parse(ledger.fact(_FACT))
    identity = log.identity() if found else None
    return {(line.partition, line.offset): line for line in found.values() if line.log == identity}


def _parse(noted: str | None) -> dict[tuple[int, int, str], SkippedLine]:
    rows: list[Mapping[str, str]] = json.loads(noted) if noted else []
    lines = (SkippedLine(**row) for row in rows)  # type: ignore[arg-type]
    return {(line.partition, line.offset, line.log): line for line in lines}
