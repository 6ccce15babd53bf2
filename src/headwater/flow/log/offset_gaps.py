"""Offset gaps: offsets of a broker's log that no line has, and what they tell.

A transaction leaves a mark, which takes an offset, and an aborted one its lines, which nobody is to read: neither is a
loss. A compacted topic drops events, read or not, and leaves the same gaps. The broker does not say which is which, so:
in what stood in the topic while it was known to be compacted, every gap is a loss; elsewhere a gap is one where there
are more offsets without a line than transactions can have ended, as each has at least one line before its mark.
Where we may not ask how the topic is set up, the first gap that is no loss by this is told all the same, once a run.

Writes  facts of the ledger: up to which offsets the topic may have been compacted; whether we may not ask
"""

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from headwater import telemetry
from headwater.errors import InvalidRequest
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.log.pointer_log import BrokerLog, PointerLog

COMPACTED_AWAY: Final = "compacted away"
_COMPACTED: Final = "log.compacted"
_UNKNOWN: Final = "log.policy_unknown"  # of which topic, as long as no gap in it was told
# Before the first line of a batch, marks of transactions that began in an earlier one: as many as producers, at most.
OPEN_TRANSACTIONS: Final = 100
Gap = tuple[int, int]  # its first offset, and the one after it


def check_policy(log: PointerLog, ledger: Ledger) -> None:
    """Before a run reads: InvalidRequest where the topic is compacted, which is then known of what is in it."""
    if not isinstance(log, BrokerLog):
        return
    try:
        is_known = log.check_policy()
    except InvalidRequest:
        _note(log, ledger, is_open=True)
        raise
    ledger.set_fact(_UNKNOWN, "" if is_known else log.identity())
    if _noted(log, ledger).get("open"):
        _note(log, ledger, is_open=False)  # what came until now, too


def watch_policy(log: PointerLog, ledger: Ledger) -> None:
    """While a run reads. It goes on, and tells every gap from here on: what was read is safe, what waits is not."""
    if not isinstance(log, BrokerLog):
        return
    try:
        log.check_policy()
    except InvalidRequest as error:
        if not _noted(log, ledger).get("open"):
            _note(log, ledger, is_open=True)
            telemetry.note("log.compacted", level="error", error=str(error))


def find_compacted(log: PointerLog, ledger: Ledger, partition: int, offsets: Sequence[int], expected: int) -> list[Gap]:
    """Gaps in what was read of a partition, from an offset on, that are losses."""
    gaps = find_gaps(offsets, expected)
    if not gaps or not isinstance(log, BrokerLog):
        return []
    known_until = _compacted_until(log, ledger, partition)
    if known_until <= expected and not _beyond_marks(offsets, gaps, expected):
        _note_unknown(log, ledger, partition, gaps)
        return []
    hidden = log.uncommitted(partition, gaps[0][0], gaps[-1][1]) - {*offsets}
    gaps = find_gaps(sorted({*offsets, *hidden}), expected)
    surplus = _beyond_marks(sorted({*offsets, *hidden}), gaps, expected)
    return [gap for gap in gaps if gap[0] < known_until or gap in surplus]


def _note_unknown(log: PointerLog, ledger: Ledger, partition: int, gaps: Sequence[Gap]) -> None:
    """Marks of transactions, most likely; but a compacted topic would look the same."""
    if ledger.fact(_UNKNOWN) == log.identity():
        ledger.set_fact(_UNKNOWN, "")
        missing = sum(until - first for first, until in gaps)
        way_out = "allow DescribeConfigs on the topic, or see that its cleanup.policy is delete; then headwater rescan"
        telemetry.note(
            "log.gaps", level="warning", partition=partition, first=gaps[0][0], offsets=missing, way_out=way_out
        )


def find_gaps(offsets: Sequence[int], expected: int) -> list[Gap]:
    """Pure: in ascending offsets, of which `expected` would be the first."""
    if not offsets or offsets[-1] - expected < len(offsets):
        return []
    return [(before + 1, after) for before, after in pairwise([expected - 1, *offsets]) if after > before + 1]


def _beyond_marks(offsets: Sequence[int], gaps: Sequence[Gap], expected: int) -> set[Gap]:
    """Pure: those that come when every transaction there can have been has ended already."""
    open_most, read, found = min(expected, OPEN_TRANSACTIONS), 0, set[Gap]()
    for first, until in gaps:
        lines = bisect_left(offsets, first) - read
        read += lines
        open_most += lines - (until - first)
        if open_most < 0:
            found.add((first, until))
            open_most = 0
    return found


def _compacted_until(log: PointerLog, ledger: Ledger, partition: int) -> float:
    noted = _noted(log, ledger)
    return math.inf if noted.get("open") else float(noted.get("until", {}).get(str(partition), 0))


def _note(log: PointerLog, ledger: Ledger, *, is_open: bool) -> None:
    until: Mapping[int, int] = log.end()
    ledger.set_fact(_COMPACTED, json.dumps({"log": log.identity(), "open": is_open, "until": until}))


def _noted(log: PointerLog, ledger: Ledger) -> dict[str, Any]:
    """Of this very topic."""
    text = ledger.fact(_COMPACTED)
    noted: dict[str, Any] = json.loads(text) if text else {}
    return noted if noted and noted["log"] == log.identity() else {}
