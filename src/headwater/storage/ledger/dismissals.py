"""Dismissals: rows of quarantine that nobody is going to mend, as the ledger knows them.

A row is known by what failed and why, not by where it stands: neither compaction nor a rollback of the table, nor that
it came once more for the same reason, brings it back to anybody's desk. A row that fails for another reason, or by
another model, is another one. Backups and migrations carry them with the rest of the ledger. Twice is once.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from headwater.clock import to_text
from headwater.storage.ledger.claims import KEYS_PER_QUERY
from headwater.storage.ledger.ledger import Ledger

_KEY: Final = "event_id, step, fingerprint, reason"
_ABOUT: Final = "dismissed_at, dismissed_by, because"


class QuarantineKey(NamedTuple):
    """What failed, and why."""

    event_id: str
    step: str
    fingerprint: str
    reason: str

    @classmethod
    def of(cls, row: Any) -> Self:
        """Of a row by its columns' names. A fault of the whole object has no model."""
        return cls(row["event_id"], row["step"], row["fingerprint"] or "", row["reason"])


@dataclass(frozen=True, slots=True)
class Dismissal:
    """Who let it go, when and why."""

    dismissed_at: str
    dismissed_by: str
    because: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


def dismiss(ledger: Ledger, keys: Iterable[QuarantineKey], *, now: datetime, by: str, because: str) -> None:
    """Who was first stays the one."""
    about = (to_text(now), by, because)
    with ledger._database.transaction() as run:
        for some in _batches(keys):
            marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * len(some))
            values = [value for key in some for value in (*key, *about)]
            run(f"insert into dismissed ({_KEY}, {_ABOUT}) values {marks} on conflict do nothing", values)


def undo_dismissals(ledger: Ledger, keys: Iterable[QuarantineKey]) -> None:
    with ledger._database.transaction() as run:
        for key in keys:
            run("delete from dismissed where event_id = ? and step = ? and fingerprint = ? and reason = ?", key)


def has_dismissals(ledger: Ledger) -> bool:
    return bool(ledger._database.query("select 1 from dismissed limit 1"))


def dismissals_state(ledger: Ledger) -> tuple[int, str]:
    """How many there are, and when the latest was made: another one wherever something was let go or taken back."""
    ((count, latest),) = ledger._database.query("select count(*), coalesce(max(dismissed_at), '') from dismissed")
    return int(count), str(latest)


def find_dismissals(ledger: Ledger, keys: Iterable[QuarantineKey]) -> dict[QuarantineKey, Dismissal]:
    """Those of these keys that were let go."""
    found: dict[QuarantineKey, Dismissal] = {}
    for some in _batches(keys) if has_dismissals(ledger) else ():
        wanted, events = set(some), list({key.event_id for key in some})
        marks = ", ".join("?" * len(events))
        rows = ledger._database.query(f"select {_KEY}, {_ABOUT} from dismissed where event_id in ({marks})", events)
        dismissed = {QuarantineKey(*row[:4]): Dismissal(*row[4:]) for row in rows}
        found |= {key: dismissal for key, dismissal in dismissed.items() if key in wanted}
    return found


def read_dismissals(
    ledger: Ledger, reasons: Collection[str] | None = None
) -> Iterator[tuple[QuarantineKey, Dismissal]]:
    """All, or those of some reasons."""
    where = f"where reason in ({', '.join('?' * len(reasons))})" if reasons is not None else ""
    query = f"select {_KEY}, {_ABOUT} from dismissed {where} order by dismissed_at"
    for row in ledger._database.query(query, [*(reasons or ())]):
        yield QuarantineKey(*row[:4]), Dismissal(*row[4:])


def _batches(keys: Iterable[QuarantineKey]) -> Iterator[Sequence[QuarantineKey]]:
    stream = iter(keys)
    while batch := list(islice(stream, KEYS_PER_QUERY)):
        yield batch
