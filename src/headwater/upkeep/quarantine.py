"""Quarantine as a place of work: what is set aside, why, and the way out.

What nobody is going to mend is dismissed, with a name and a reason: it is shown apart, counted apart, not tried again,
and raises no alarm. It can be taken back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from headwater.domain.model_book import KnownModel
from headwater.domain.quarantine import REASONS, RETRY_ATTEMPTS_MAX, SLOW, TRANSIENT
from headwater.domain.shown import ShownAsTable
from headwater.domain.steps import STEPS
from headwater.domain.tables import QUARANTINE
from headwater.errors import InvalidRequest, NotFound
from headwater.flow.drive.retry_schedule import note_set_aside
from headwater.storage.ledger.dismissals import (
    QuarantineKey,
    dismiss,
    dismissals_state,
    find_dismissals,
    has_dismissals,
    read_dismissals,
    undo_dismissals,
)
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.query.plain_rows import to_json_rows
from headwater.storage.query.reader import run_sql, scan
from headwater.storage.query.row_stream import stream_rows
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.row_filter import Match
from headwater.upkeep import work
from headwater.upkeep.parts import Parts

Row = dict[str, Any]
_KEY: Final = QuarantineKey._fields
_WORDS_MAX: Final = 1_000
_UNKNOWN: Final = "Another version of Headwater set it aside. Try it again with this one: headwater retry."


def list_quarantine(
    catalog: Tables, ledger: Ledger, reason: str | None = None, ids: Sequence[str] = ()
) -> dict[str, Any]:
    """`{"reasons": [{"reason", "count", "way_out"}], "rows": [{…}], "dismissed": [{…}]}`

    All of it, or what is of a reason, and of some events or objects.
    """
    found = _rows_of(catalog, {"reason": check_reason(reason)} if reason else {}, ids)
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


def _rows_of(catalog: Tables, where: Mapping[str, Match], ids: Sequence[str]) -> list[Row]:
    """Of ids only what names them is read, as an event and as an object."""
    if not ids:
        return to_json_rows(scan(catalog, QUARANTINE.name, QUARANTINE.columns, where))
    columns, named = (*QUARANTINE.columns, "seq"), ("event_id", "object_id")
    found = [scan(catalog, QUARANTINE.name, columns, {**where, name: tuple(ids)}) for name in named]
    return list({row.pop("seq"): row for rows in found for row in to_json_rows(rows)}.values())


def is_any_waiting(catalog: Tables, ledger: Ledger, reason: str | None = None) -> bool:
    """Whether there is a row that was not let go; of it, the first that is found, and no payload."""
    wanted = check_reason(reason) if reason else None
    if not has_dismissals(ledger):
        return len(scan(catalog, QUARANTINE.name, ["reason"], {"reason": wanted} if wanted else None, limit=1)) > 0
    of_reason = ([key for key in keys if wanted in {None, key.reason}] for keys in _keys(catalog))
    return any(_waiting(ledger, keys) for keys in of_reason)


def count_waiting_for(catalog: Tables, ledger: Ledger, fingerprint: str) -> int:
    """Objects that wait for a model which did not answer, or was slow, and are still tried again by themselves."""
    where: dict[str, Match] = {"fingerprint": fingerprint, "reason": ("MODEL_DOWN", SLOW)}
    rows = scan(catalog, QUARANTINE.name, [*_KEY, "attempts"], where).to_pylist()
    tried = [row for row in rows if row["reason"] == SLOW or row["attempts"] < RETRY_ATTEMPTS_MAX]
    return len(_waiting(ledger, [QuarantineKey.of(row) for row in tried]))


def count_missed(catalog: Tables, ledger: Ledger, model: KnownModel, other: KnownModel) -> dict[str, int]:
    """Objects that this model failed on, were not let go, and have rows of the other one; by reason."""
    rows = scan(catalog, QUARANTINE.name, [*_KEY, "object_id"], {"fingerprint": model.fingerprint}).to_pylist()
    failed = set(_waiting(ledger, [QuarantineKey.of(row) for row in rows]))
    names = ("object_id", "reason")
    if not (kept := [{name: row[name] for name in names} for row in rows if QuarantineKey.of(row) in failed]):
        return {}
    others = {"failed": pa.Table.from_pylist(kept, pa.schema([(name, pa.string()) for name in names]))}
    made = f"(SELECT object_id FROM all_models.{STEPS[model.step].table.short_name} WHERE fingerprint = '{{}}')"
    query = f"""SELECT reason, count(DISTINCT object_id) AS objects FROM failed
        WHERE object_id IN {made.format(other.fingerprint)} AND object_id NOT IN {made.format(model.fingerprint)}
        GROUP BY reason ORDER BY objects DESC"""
    return {row["reason"]: row["objects"] for row in run_sql(catalog, query, others=others)["rows"]}


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that wait, by reason, the commonest first, and how many were let go."""

    waiting: Mapping[str, int]
    dismissed: int


def count_dismissed(catalog: Tables, ledger: Ledger) -> int:
    """Rows of quarantine that were let go; where none were, nothing is read."""
    return count_rows(catalog, ledger).dismissed if has_dismissals(ledger) else 0


def count_reasons(catalog: Tables, ledger: Ledger) -> dict[str, int]:
    """Rows that wait, by reason, the commonest first."""
    return dict(count_rows(catalog, ledger).waiting)


_counted: "WeakKeyDictionary[Ledger, tuple[tuple[str, int, str], Counts]]" = WeakKeyDictionary()


def count_rows(catalog: Tables, ledger: Ledger) -> Counts:
    """Counted by the query engine, of the key's columns at the most; and once for a state of quarantine and of what was
    let go, however often it is asked for."""
    state = (catalogs.load(catalog, QUARANTINE.name).metadata_location, *dismissals_state(ledger))
    known = _counted.get(ledger)
    if known is None or known[0] != state:
        known = _counted[ledger] = (state, _count(catalog, ledger, any_let_go=state[1] > 0))
    return known[1]


def _count(catalog: Tables, ledger: Ledger, *, any_let_go: bool) -> Counts:
    if any_let_go:
        keys = [key._asdict() for key, _ in read_dismissals(ledger)]
        let_go = pa.Table.from_pylist(keys, pa.schema([(name, pa.string()) for name in _KEY]))
        rows = run_sql(catalog, _COUNTS_APART, others={"let_go": let_go})["rows"]
    else:
        rows = run_sql(catalog, _COUNTS)["rows"]
    waiting = Counter({row["reason"]: row["rows"] - row["dismissed"] for row in rows if row["rows"] > row["dismissed"]})
    return Counts(dict(waiting.most_common()), sum(row["dismissed"] for row in rows))


_COUNTS: Final = "SELECT reason, count(*) AS rows, 0 AS dismissed FROM all_models.quarantine GROUP BY reason"
_COUNTS_APART: Final = """
    SELECT q.reason, count(*) AS rows, count(d.event_id) AS dismissed
    FROM all_models.quarantine q LEFT JOIN let_go d ON q.event_id = d.event_id AND q.step = d.step
        AND q.reason = d.reason AND coalesce(q.fingerprint, '') = d.fingerprint
        AND (d.customer IS NULL OR coalesce(q.customer, '') = d.customer)
    GROUP BY q.reason"""


def _keys(catalog: Tables) -> Iterator[list[QuarantineKey]]:
    for batch in stream_rows(catalog, QUARANTINE.name, _KEY):
        yield [QuarantineKey.of(row) for row in batch.to_pylist()]


def _waiting(ledger: Ledger, keys: Sequence[QuarantineKey]) -> list[QuarantineKey]:
    let_go = find_dismissals(ledger, keys)
    return [key for key in keys if key not in let_go]


@dataclass(frozen=True, slots=True)
class DismissalPlan(ShownAsTable):
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
    listed = list_quarantine(catalog, ledger, reason, ids)
    rows: list[Row] = listed["dismissed" if undo else "rows"]
    if ids:
        known = {name for row in rows for name in (row["event_id"], row["object_id"])}
        if unknown := [name for name in ids if name not in known]:
            what = "has been dismissed" if undo else "waits in quarantine"
            raise NotFound(f"Nothing of {unknown[0]} {what}. All that is there: headwater quarantine --json")
    return DismissalPlan(tuple(rows), undo)


def apply_dismissal(plan: DismissalPlan, ledger: Ledger, *, now: datetime, by: str, because: str) -> None:
    """Twice is once; a row that was let go before keeps who did it."""
    keys = [QuarantineKey.of(row) for row in plan.rows]
    if plan.undo:
        undo_dismissals(ledger, keys)
        passing, slow = (sum(key.reason in reasons for key in keys) for reasons in (TRANSIENT, (SLOW,)))
        note_set_aside(ledger, now, passing, slow)
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


def dismiss_rows(
    parts: Parts, ids: Sequence[str], reason: str | None, *, because: str, by: str, undo: bool
) -> DismissalPlan:
    """Planned and done in one transaction's lease, so that what is let go is what was found."""
    with work.alone(parts, "dismiss") as held, work.recorded(parts, "dismiss") as entry:
        plan = plan_dismissal(parts.reader, parts.ledger, ids, reason, undo=undo)
        apply_dismissal(plan, held.ledger, now=parts.clock(), by=by, because=because)
        entry.done["taken back" if undo else "dismissed"] = len(plan.rows)
    return plan
