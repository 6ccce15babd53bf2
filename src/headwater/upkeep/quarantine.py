"""Quarantine as a place of work: what is set aside, why, and the way out.

What nobody is going to mend is dismissed, with a name and a reason: it is shown apart, counted apart, not tried again,
and raises no alarm. It can be taken back.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headwater.domain.quarantine import REASONS, SLOW, TRANSIENT
from headwater.domain.tables import QUARANTINE
from headwater.errors import InvalidRequest, NotFound
from headwater.flow.drive.pending import expect_aside
from headwater.storage.ledger.dismissals import (
    QuarantineKey,
    dismiss,
    find_dismissals,
    has_dismissals,
    undo_dismissals,
)
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.query.plain_rows import to_json_rows
from headwater.storage.query.reader import scan
from headwater.storage.query.row_stream import stream_rows
from headwater.storage.tables.catalog import Tables

Row = dict[str, Any]
_KEY: Final = QuarantineKey._fields
_WORDS_MAX: Final = 1_000
_UNKNOWN: Final = "Another version of Headwater set it aside. Try it again with this one: headwater retry."


def list_quarantine(catalog: Tables, ledger: Ledger, reason: str | None = None) -> dict[str, Any]:
    """`{"reasons": [{"reason", "count", "way_out"}], "rows": [{…}], "dismissed": [{…}]}`"""
    where = {"reason": check_reason(reason)} if reason else None
    found = to_json_rows(scan(catalog, QUARANTINE.name, QUARANTINE.columns, where))
    found.sort(key=lambda row: row["quarantined_at"])
    let_go = find_dismissals(ledger, map(QuarantineKey.of, found))
    rows = [row for row in found if QuarantineKey.of(row) not in let_go]
    counts = Counter(row["reason"] for row in rows)
    return {
        "reasons": [
            {"reason": name, "count": count, "way_out": REASONS.get(name, _UNKNOWN)}
            for name, count in counts.most_common()
        ],
        "rows": rows,
        "dismissed": [{**row, **let_go[key].to_dict()} for row in found if (key := QuarantineKey.of(row)) in let_go],
    }


def count_dismissed(catalog: Tables, ledger: Ledger) -> int:
    """Rows of quarantine that were let go; where none were, nothing is read."""
    if not has_dismissals(ledger):
        return 0
    return sum(len(keys) - len(_waiting(ledger, keys)) for keys in _keys(catalog))


def count_reasons(catalog: Tables, ledger: Ledger) -> dict[str, int]:
    """Rows that wait, by reason, the commonest first; reads that one column where none was let go."""
    if has_dismissals(ledger):
        counts = Counter(key.reason for keys in _keys(catalog) for key in _waiting(ledger, keys))
    else:
        counts = Counter(scan(catalog, QUARANTINE.name, ["reason"])["reason"].to_pylist())
    return dict(counts.most_common())


def _keys(catalog: Tables) -> Iterator[list[QuarantineKey]]:
    for batch in stream_rows(catalog, QUARANTINE.name, _KEY):
        yield [QuarantineKey.of(row) for row in batch.to_pylist()]


def _waiting(ledger: Ledger, keys: Sequence[QuarantineKey]) -> list[QuarantineKey]:
    let_go = find_dismissals(ledger, keys)
    return [key for key in keys if key not in let_go]


@dataclass(frozen=True, slots=True)
class DismissalPlan:
    """The rows that would be let go, or with `undo` taken back."""

    rows: tuple[Row, ...]
    undo: bool

    def to_dict(self) -> dict[str, Any]:
        return {"undo": self.undo, "count": len(self.rows), "rows": list(self.rows)}


def plan_dismissal(
    catalog: Tables, ledger: Ledger, ids: Sequence[str], reason: str | None, *, undo: bool
) -> DismissalPlan:
    """Pure: the rows of these events or objects, or of a reason, that are set aside; with `undo` of those let go.

    NotFound names an id that has none.
    """
    if not ids and reason is None:
        raise InvalidRequest("Say which: ids of events or objects, or --reason REASON.")
    listed = list_quarantine(catalog, ledger, reason)
    rows: list[Row] = listed["dismissed" if undo else "rows"]
    if ids:
        known = {name for row in rows for name in (row["event_id"], row["object_id"])}
        if unknown := [name for name in ids if name not in known]:
            what = "has been dismissed" if undo else "waits in quarantine"
            raise NotFound(f"Nothing of {unknown[0]} {what}. All that is there: headwater quarantine --json")
        rows = [row for row in rows if {row["event_id"], row["object_id"]} & set(ids)]
    return DismissalPlan(tuple(rows), undo)


def apply_dismissal(plan: DismissalPlan, ledger: Ledger, *, now: datetime, by: str, because: str) -> None:
    """Twice is once; a row that was let go before keeps who did it."""
    keys = [QuarantineKey.of(row) for row in plan.rows]
    if plan.undo:
        undo_dismissals(ledger, keys)
        passing, slow = (sum(key.reason in reasons for key in keys) for reasons in (TRANSIENT, (SLOW,)))
        expect_aside(ledger, now, passing, slow)
        return
    dismiss(ledger, keys, now=now, by=check_words("--by", by), because=check_words("--because", because))


def check_reason(reason: str) -> str:
    if reason.upper() not in REASONS:
        raise InvalidRequest(f"{reason} is no reason for quarantine. These are: {', '.join(sorted(REASONS))}.")
    return reason.upper()


def check_words(option: str, text: str) -> str:
    """Somebody will read them in a year."""
    words = " ".join(text.split())
    if not words or len(words) > _WORDS_MAX:
        raise InvalidRequest(f"{option} wants some words, at most {_WORDS_MAX:,} letters of them.")
    return words
