"""What the ledger knows, as tables to ask: the journal (what was run, how it ended, what its models did and cost), and
what was dismissed from quarantine, and what objects were labelled with."""

import json
from typing import Any, Final

import pyarrow as pa

from headwater.clock import parse_time, to_text
from headwater.domain.tables import TIMESTAMP
from headwater.storage.ledger.dismissals import read_dismissals
from headwater.storage.ledger.labels import read_labels
from headwater.storage.ledger.ledger import Ledger, Run

SCHEMA: Final = pa.schema(
    [
        pa.field("run", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("started_at", TIMESTAMP),
        pa.field("finished_at", TIMESTAMP),
        pa.field("outcome", pa.string()),
        # One row a model that was at work; null for a run that asked none.
        pa.field("step", pa.string()),
        pa.field("model", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("calls", pa.int64()),
        pa.field("remembered", pa.int64()),
        pa.field("faults", pa.int64()),
        pa.field("model_seconds", pa.float64()),
        pa.field("tokens", pa.int64()),
        pa.field("cost", pa.float64()),
        pa.field("attempts", pa.int64()),
        pa.field("detail", pa.string()),
    ]
)
DISMISSALS: Final = pa.schema(
    [
        (name, pa.string())
        for name in ("event_id", "customer", "step", "fingerprint", "reason", "dismissed_by", "because")
    ]
)
LABELS: Final = pa.schema([(name, pa.string()) for name in ("object_id", "key", "value", "labelled_by")])
_ALL: Final = 1_000_000_000
_SUMS: Final = ("calls", "remembered", "faults", "model_seconds", "tokens", "cost", "attempts")


def runs_table(ledger: Ledger) -> pa.Table:
    """One row a run and model; runs without a model call have one row with nulls."""
    return pa.Table.from_pylist([row for run in ledger.runs(_ALL) for row in _rows(run)], schema=SCHEMA)


def list_runs(ledger: Ledger, limit: int) -> list[dict[str, Any]]:
    """The latest first, with their models as a list."""
    return [
        {
            "run": run.id,
            "kind": run.kind,
            "started_at": to_text(run.started_at),
            "finished_at": to_text(run.finished_at) if run.finished_at else None,
            "seconds": (run.finished_at - run.started_at).total_seconds() if run.finished_at else None,
            "outcome": run.outcome,
            "detail": {name: value for name, value in run.detail.items() if name != "models"},
            "models": [_of_model(tag, spent) for tag, spent in (run.detail.get("models") or {}).items()],
        }
        for run in ledger.runs(limit)
    ]


def dismissals_table(ledger: Ledger) -> pa.Table:
    """One row a key of quarantine that was let go, whether or not a row with it is still there."""
    rows = [{**key._asdict(), **dismissal.to_dict()} for key, dismissal in read_dismissals(ledger)]
    moments = [parse_time(row.pop("dismissed_at")) for row in rows]
    given = pa.Table.from_pylist(rows, schema=DISMISSALS)
    return given.append_column("dismissed_at", pa.array(moments, TIMESTAMP))


def labels_table(ledger: Ledger) -> pa.Table:
    """One row an object and key that somebody labelled it with."""
    rows = [label.to_dict() for label in read_labels(ledger)]
    moments = [parse_time(row.pop("labelled_at")) for row in rows]
    return pa.Table.from_pylist(rows, schema=LABELS).append_column("labelled_at", pa.array(moments, TIMESTAMP))


def _rows(run: Run) -> list[dict[str, Any]]:
    about = {
        "run": run.id,
        "kind": run.kind,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "outcome": run.outcome,
        "detail": json.dumps({name: value for name, value in run.detail.items() if name != "models"}),
    }
    models = run.detail.get("models") or {}
    if not models:
        return [about]
    return [{**about, **_of_model(tag, spent)} for tag, spent in models.items()]


def _of_model(tag: str, spent: dict[str, Any]) -> dict[str, Any]:
    step, _, fingerprint = tag.partition("/")
    return {
        "step": step,
        "fingerprint": fingerprint,
        "model": spent.get("model"),
        **{name: spent.get(name) for name in _SUMS},
    }
