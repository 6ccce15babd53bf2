"""Dismissals: rows of quarantine that nobody is going to mend, as the ledger knows them.

A row is known by what failed and why, not by where it stands: neither compaction nor a rollback of the table, nor that
it came once more for the same reason, brings it back to anybody's desk. A row that fails for another reason, by another
model, or of another customer is another one; an id belongs to its customer, so both are kept in one word. Where that
is an id alone, it was let go when ids were of a whole lake, and is whoever's. Backups and migrations carry them with
the rest of the ledger. Twice is once.
"""

import json
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
    """What failed, and why. `customer` is empty where a line did not say whose it is, and None where it may be any."""

    event_id: str
    customer: str | None
    step: str
    fingerprint: str
    reason: str

    @classmethod
    def of(cls, row: Any) -> Self:
        """Of a row by its columns' names. A fault of the whole object has no model."""
        return cls(row["event_id"], row["customer"] or "", row["step"], row["fingerprint"] or "", row["reason"])

    @property
    def of_anybody(self) -> Self:
        return self._replace(customer=None)


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
            values = [value for key in some for value in (*_kept(key), *about)]
            run(f"insert into dismissed ({_KEY}, {_ABOUT}) values {marks} on conflict do nothing", values)


def undo_dismissals(ledger: Ledger, keys: Iterable[QuarantineKey]) -> None:
    with ledger._database.transaction() as run:
        for key in keys:
            for kept in (_kept(key), _kept(key.of_anybody)):
                run("delete from dismissed where event_id = ? and step = ? and fingerprint = ? and reason = ?", kept)


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
        names = list({_kept(each)[0] for key in some for each in (key, key.of_anybody)})
        marks = ", ".join("?" * len(names))
        rows = ledger._database.query(f"select {_KEY}, {_ABOUT} from dismissed where event_id in ({marks})", names)
        dismissed = {_told(row[:4]): Dismissal(*row[4:]) for row in rows}
        for key in some:
            if dismissal := dismissed.get(key) or dismissed.get(key.of_anybody):
                found[key] = dismissal
    return found


def read_dismissals(
    ledger: Ledger, reasons: Collection[str] | None = None
) -> Iterator[tuple[QuarantineKey, Dismissal]]:
    """All, or those of some reasons; none beside one that is whoever's and says the same."""
    where = f"where reason in ({', '.join('?' * len(reasons))})" if reasons is not None else ""
    query = f"select {_KEY}, {_ABOUT} from dismissed {where} order by dismissed_at"
    found = {_told(row[:4]): Dismissal(*row[4:]) for row in ledger._database.query(query, [*(reasons or ())])}
    for key, dismissal in found.items():
        if key.customer is None or key.of_anybody not in found:
            yield key, dismissal


def _kept(key: QuarantineKey) -> tuple[str, str, str, str]:
    """As a row of the ledger; Postgres takes no zero between two names."""
    name, whose = key.event_id, key.customer
    kept = name if whose is None else json.dumps([name, whose], ensure_ascii=False)
    return kept, key.step, key.fingerprint, key.reason


def _told(row: Sequence[str]) -> QuarantineKey:
    name, *why = row
    try:
        event_id, customer = json.loads(name) if name.startswith('["') else (name, None)
    except ValueError:
        event_id, customer = name, None
    return QuarantineKey(event_id, customer, *why)


def _batches(keys: Iterable[QuarantineKey]) -> Iterator[Sequence[QuarantineKey]]:
    stream = iter(keys)
    while batch := list(islice(stream, KEYS_PER_QUERY)):
        yield batch
