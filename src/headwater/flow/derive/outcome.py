"""The outcomes of a batch: rows for several tables in one, told apart by `table`.

One table, because an object's answers come together, whichever tables they are for. Nothing enters it unjudged: what a
child said, or what the memo kept, is held to the columns that it is for, and provenance is never taken from an answer.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from headwater.domain.modality import content_type_of
from headwater.domain.tables import EMBEDDINGS, METADATA, QUARANTINE
from headwater.errors import DataFault
from headwater.flow.derive.step import PROBE_FIELDS, StepResult
from headwater.flow.derive.work import PlannedStep
from headwater.flow.map import DERIVE, tables_of
from headwater.flow.models.answers import (
    MILLISECONDS_MAX,
    checked_amount,
    checked_embedded,
    checked_text,
    checked_whole,
    said_of,
)
from headwater.flow.models.port import Embedded

TABLES: Final = tables_of(DERIVE.writes)

Row = Mapping[str, Any]


def _columns() -> list[pa.Field]:
    found: dict[str, pa.Field] = {}
    for table in TABLES:
        for field in table.schema:
            found.setdefault(field.name, field.with_nullable(True))
    del found["seq"]
    return list(found.values())


# Beside the tables' own columns, of which one is the event that a row came from: where it belongs, and whether a model
# was called for it.
_ABOUT: Final = (
    pa.field("table", pa.string()),
    pa.field("remembered", pa.bool_()),
)
SCHEMA: Final = pa.schema([*_ABOUT, *_columns()])
_CODEC_LETTERS: Final = 64
_INT32_MAX: Final = (1 << 31) - 1


def checked_result(result: object, step: PlannedStep) -> StepResult | None:
    """A step's own columns as its table takes them; raises DataFault BAD_OUTPUT where they are no good.

    None is an answer too: there was nothing to say.
    """
    if result is None:
        return None
    if not isinstance(result, dict):
        raise DataFault("BAD_OUTPUT", f"The step answered with {type(result).__name__}, not with columns.")
    if step.table == METADATA.name:
        return {name: _checked_fact(name, result.get(name)) for name in PROBE_FIELDS}
    if step.table == EMBEDDINGS.name:
        return _checked_vector(result, step.dimension)
    said = said_of(result)
    return {
        "text": said.text,
        "language": said.language,
        "confidence": said.confidence,
        "segments": [segment.to_dict() for segment in said.segments],
        "tokens": said.tokens,
        "attempts": said.attempts,
        **_checked_amounts(result),
    }


def _checked_fact(name: str, value: object) -> Any:
    if value is None:
        return None
    if name == "codec":
        return checked_text(value, name, _CODEC_LETTERS)
    return checked_whole(value, name, MILLISECONDS_MAX if name == "duration_ms" else _INT32_MAX)


def _checked_vector(result: Row, dimension: int | None) -> StepResult:
    given = Embedded(result.get("vector"), result.get("tokens", 0), result.get("attempts", 1))  # type: ignore[arg-type]
    embedded = checked_embedded(given, dimension)
    effort = {"tokens": embedded.tokens, "attempts": embedded.attempts}
    return {"vector": embedded.vector.tolist(), **effort, **_checked_amounts(result)}


def _checked_amounts(result: Row) -> dict[str, float | None]:
    given = {name: result.get(name) for name in ("model_seconds", "cost")}
    return {name: None if value is None else checked_amount(value, name) for name, value in given.items()}


def derived_row(row: Row, step: PlannedStep, result: StepResult, now: datetime, *, remembered: bool) -> dict[str, Any]:
    """`remembered` where no model was called for it."""
    return {
        **result,
        **(_as_object(row) if step.table == METADATA.name else {}),
        **(_as_chunk(row, step) if step.table == EMBEDDINGS.name else {}),
        **_provenance(row, step),
        "table": step.table,
        "derived_at": now,
        "remembered": remembered,
    }


def quarantined_row(row: Row, step: PlannedStep, reason: str, detail: str, now: datetime) -> dict[str, Any]:
    return {
        **_provenance(row, step),
        "table": QUARANTINE.name,
        "reason": reason,
        "detail": detail,
        "attempts": row["attempts"] + 1,
        "quarantined_at": now,
    }


def _provenance(row: Row, step: PlannedStep) -> dict[str, Any]:
    carried = ("event_id", "object_id", "customer", "modality", "occurred_at", "pointer", "meta", "thread")
    placed = ("log_partition", "log_offset")
    named = {"event_seq": row["seq"], "step": step.name, "model": step.label, "fingerprint": step.fingerprint}
    return {name: row[name] for name in (*carried, *placed)} | named


def _as_object(row: Row) -> dict[str, Any]:
    """An event that does not tell the type leaves it to the name."""
    pointer = row["pointer"]
    kind = pointer["content_type"] or content_type_of(pointer["path"])
    return {"size": pointer["size"], "checksum": pointer["checksum"], "content_type": kind, "tier": "standard"}


def _as_chunk(row: Row, step: PlannedStep) -> dict[str, Any]:
    """A picture is a chunk without text, the only one of its object; its own model is its source."""
    name = "\0".join((row["object_id"], "raw", step.fingerprint))
    return {
        "chunk_id": hashlib.blake2b(name.encode(), digest_size=12).hexdigest(),
        "chunk": 0,
        "source_table": "raw",
        "source_fingerprint": step.fingerprint,
        "source_model": step.label,
        "text": "",
    }
