"""The list of models: what is active for each step, what stands beside it, and what each has made and cost."""

from typing import Any, Final

from headwater.domain.model_book import KnownModel, ModelBook
from headwater.domain.steps import CHOICES
from headwater.domain.tables import EMBEDDINGS, TEXT_TABLES
from headwater.settings import Settings
from headwater.storage.query.reader import run_sql
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.read_progress import read_progress

_MADE: Final = """
    SELECT fingerprint, count(*) AS rows, coalesce(sum(model_seconds), 0)::DOUBLE AS model_seconds,
        coalesce(sum(tokens), 0)::BIGINT AS tokens, coalesce(sum(cost), 0)::DOUBLE AS cost
    FROM all_models.{table} GROUP BY fingerprint"""
_NOTHING: Final = {"rows": 0, "model_seconds": 0.0, "tokens": 0, "cost": 0.0}


def list_models(reader: Tables, settings: Settings, book: ModelBook) -> list[dict[str, Any]]:
    """By step, the active one first."""
    made = _made(reader)
    order = list(CHOICES)
    models = sorted(book.models, key=lambda m: (order.index(m.step), not m.kept, m.state != "active", m.since))
    return [
        {
            "step": known.step,
            "state": str(known.state),
            "name": known.name,
            "model": known.label,
            "fingerprint": known.fingerprint,
            "since": known.since,
            "behind": _behind(settings, known),
            **made.get(known.fingerprint, _NOTHING),
        }
        for known in models
    ]


def _made(reader: Tables) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for table in (*TEXT_TABLES, EMBEDDINGS):
        for row in run_sql(reader, _MADE.format(table=table.short_name))["rows"]:
            found[row.pop("fingerprint")] = row
    return found


def _behind(settings: Settings, known: KnownModel) -> int:
    """How many events or texts the others of its step have seen and it has not."""
    step = CHOICES[known.step]
    progress = read_progress(settings, step.table)
    return sum(progress.seq_of(source.name) - progress.seq_of(known.position_in(source.name)) for source in step.reads)
