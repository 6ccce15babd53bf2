"""Which log a lake reads: noted in the ledger, and compared with what is there now. Needs no Spark.

Reads   the pointer log, the ledger
Writes  facts of the ledger: the log's identity, and by partition a mark, the last line that was read of it
A log that was wiped, replaced, or set back to an older copy of itself holds lines at offsets that were read already;
who went on from the old position would pass them over. Another identity tells the first two, an end before the position
or another line at the mark the third.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.domain.progress import log_name
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.log.pointer_log import ADOPTED, PointerLog

IDENTITY: Final = "log.identity"
MADE_ANEW: Final = "the log was made anew"
_MARK: Final = "log.mark"
_SHORTER: Final = "the log is shorter than what was read of it"
_OTHER_LINES: Final = "the log holds other lines than those that were read"
_BEFORE_IDENTITIES: Final = "directory"  # what earlier versions noted of every log in a directory


@dataclass(frozen=True, slots=True)
class Unread:
    """Events that the log holds and bronze has not read. `anew` has the partitions that are to be read from their
    beginning, with the cause."""

    events: int
    anew: Mapping[int, str]


def note_identity(log: PointerLog, ledger: Ledger) -> None:
    """By whoever publishes first: a log that is lost before anybody read it is missed all the same. Twice is once."""
    if ledger.fact(IDENTITY) is None:
        identity = log.identity()
        ledger.change_fact(IDENTITY, lambda noted: noted or identity)


def same_identity(log: PointerLog, ledger: Ledger) -> str | None:
    """The log's identity, where it is the noted one, else None: what is asked before every commit."""
    found = log.identity()
    return found if ledger.fact(IDENTITY) in {None, found} else None


def name_logs(
    identity: str, before: Mapping[str, str], partitions: Iterable[int], anew: Collection[int] = ()
) -> dict[str, str]:
    """For `Progress.logs`: what these partitions' offsets are offsets of; `before` is what it said until now."""
    names = {str(partition): partition in anew for partition in partitions}
    return {name: log_name(identity, before.get(name, ""), anew=is_anew) for name, is_anew in names.items()}


def find_anew(log: PointerLog, ledger: Ledger, consumed: Mapping[int, int], end: Mapping[int, int]) -> dict[int, str]:
    """The partitions that must be read from their beginning, and why; none where the log is the one that was read."""
    if _is_replaced(ledger.fact(IDENTITY), log.identity(), consumed):
        return dict.fromkeys(consumed or list(end)[:1], MADE_ANEW)
    shorter = {partition: _SHORTER for partition, offset in consumed.items() if offset > end.get(partition, 0)}
    return _differing(log, ledger, end) | shorter


def find_unread(log: PointerLog, ledger: Ledger, consumed: Mapping[int, int]) -> Unread:
    end = log.end()
    anew = find_anew(log, ledger, consumed, end)
    begin = log.begin() if anew else {}
    return Unread(count_lag(end, {**consumed, **{partition: begin.get(partition, 0) for partition in anew}}), anew)


def count_lag(end: Mapping[int, int], read: Mapping[int, int]) -> int:
    """By partition: one that was made anew may end far before its position, and must not hide another's."""
    return sum(max(0, offset - read.get(partition, 0)) for partition, offset in end.items())


def note_marks(log: PointerLog, ledger: Ledger, ends: Mapping[int, int]) -> None:
    """Before the commit that moves the positions to `ends`: a line that was seen must stay what it was."""
    seen = {str(partition): (end - 1, log.fingerprint(partition, end - 1)) for partition, end in ends.items() if end}
    known = {partition: mark for partition, mark in seen.items() if mark[1]}
    if known:
        marks = {**_marks(ledger, identity := log.identity()), **known}
        ledger.set_fact(_MARK, json.dumps({"log": identity, "marks": marks}))


def forget_marks(ledger: Ledger) -> None:
    ledger.set_fact(_MARK, "")


def _is_replaced(noted: str | None, found: str, consumed: Mapping[int, int]) -> bool:
    if noted == _BEFORE_IDENTITIES:
        return any(consumed.values()) and not found.startswith(ADOPTED)
    return noted not in {None, found}


def _differing(log: PointerLog, ledger: Ledger, end: Mapping[int, int]) -> dict[int, str]:
    """Partitions whose line at the mark is another one, or not there yet. One that expired since says nothing."""
    found = {}
    for partition, (offset, noted) in _marks(ledger, log.identity()).items():
        if offset >= end.get(int(partition), 0):
            found[int(partition)] = _SHORTER
        elif log.fingerprint(int(partition), offset) not in {None, noted}:
            found[int(partition)] = _OTHER_LINES
    return found


def _marks(ledger: Ledger, identity: str) -> dict[str, tuple[int, str]]:
    """Of this very log: a lake that moved to another one has marks of the old."""
    noted = json.loads(ledger.fact(_MARK) or "{}")
    marks: dict[str, tuple[int, str]] = noted.get("marks", {}) if noted.get("log") == identity else {}
    return marks
