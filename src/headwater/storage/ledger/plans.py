"""Plans in the ledger: what a task is going to do, step by step, and how far it came.

Reads and writes  the ledger's tables `plans` and `plan_steps`
A step is noted before it is begun and after it is done, so that whoever comes after a kill knows which ones are left.
Neither backups nor migrations carry plans: they speak of the lake as it is here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headwater.clock import to_text
from headwater.storage.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """`begun` are numbers of steps, `ended` what came of those that are done; one that is begun and not ended may have
    been done in part."""

    id: int
    kind: str
    about: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...]
    begun: frozenset[int]
    ended: Mapping[int, Mapping[str, Any]]


def start_plan(
    ledger: Ledger, kind: str, about: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], now: datetime
) -> int:
    with ledger._database.transaction() as run:
        row = (kind, _json(about), _json(list(steps)), to_text(now))
        statement = "insert into plans (kind, about, steps, begun_at) values (?, ?, ?, ?) returning id"
        ((plan_id,),) = run(statement, row)
    return int(plan_id)


def begin_step(ledger: Ledger, plan_id: int, number: int, now: datetime) -> None:
    """Twice is once. Refused, as every change is, where the lease was lost meanwhile."""
    with ledger._database.transaction() as run:
        run(
            "insert into plan_steps (plan, number, begun_at) values (?, ?, ?) on conflict do nothing",
            (plan_id, number, to_text(now)),
        )


def end_step(ledger: Ledger, plan_id: int, number: int, now: datetime, result: Mapping[str, Any]) -> None:
    with ledger._database.transaction() as run:
        run(
            "update plan_steps set ended_at = ?, result = ? where plan = ? and number = ?",
            (to_text(now), _json(result), plan_id, number),
        )


def finish_plan(ledger: Ledger, plan_id: int, outcome: str, now: datetime) -> None:
    with ledger._database.transaction() as run:
        run("update plans set outcome = ?, finished_at = ? where id = ?", (outcome, to_text(now), plan_id))


def unfinished_plans(ledger: Ledger, kind: str | None = None) -> list[StoredPlan]:
    """Begun and without an outcome, the latest first: under way, or cut short."""
    which, values = ("and kind = ?", (kind,)) if kind else ("", ())
    rows = ledger._database.query(
        f"select id, kind, about, steps from plans where outcome is null {which} order by id desc", values
    )
    return [_stored(ledger, *row) for row in rows]


def _stored(ledger: Ledger, plan_id: int, kind: str, about: str, steps: str) -> StoredPlan:
    noted = ledger._database.query("select number, result from plan_steps where plan = ?", (plan_id,))
    begun = frozenset(int(number) for number, _ in noted)
    ended = {int(number): json.loads(result) for number, result in noted if result is not None}
    return StoredPlan(plan_id, kind, json.loads(about), tuple(json.loads(steps)), begun, ended)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
