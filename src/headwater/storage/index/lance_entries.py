"""Entries of the vector index as LanceDB holds them, and how rows of silver.embeddings become entries. Pure."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from headwater.domain.meta import facts_of
from headwater.domain.modality import Modality
from headwater.domain.tables import TIMESTAMP
from headwater.domain.terms import terms_of
from headwater.errors import InvalidRequest
from headwater.storage.index.vector_index import Entry

# LanceDB refuses a second row with this key only where it is declared so; otherwise two writers make two rows.
_KEY: Final = pa.field(
    "chunk_id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
)
_TEXT_COLUMNS: Final = (
    "object_id", "customer", "modality", "text", "model", "source_model", "source_fingerprint", "fingerprint",
)  # fmt: skip
_COLUMNS: Final = pa.schema(
    [
        _KEY,
        pa.field("seq", pa.int64(), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in _TEXT_COLUMNS),
        pa.field("occurred_at", TIMESTAMP, nullable=False),
        # As JSON: fetching a hit costs by the column, and these have fourteen inside.
        pa.field("locator", pa.string()),
        pa.field("pointer", pa.string()),
        pa.field("speaker", pa.string()),  # out of the locator, to be filtered by
        pa.field("meta", pa.string()),
        pa.field("facts", pa.list_(pa.string())),  # out of the meta, to be filtered by
        pa.field("thread", pa.string()),
        pa.field("terms", pa.string(), nullable=False),  # of the text and of the object's name, with blanks between
    ]
)
_AS_JSON: Final = ("locator", "pointer")
_MADE_HERE: Final = ("speaker", "facts", "terms")
_FILTERED: Final = {"source_fingerprint", "fingerprint", "speaker", "facts"}  # by, and not shown
SHOWN: Final = tuple(name for name in _COLUMNS.names if name not in _FILTERED)
# All of them once more, as JSON: reading a row costs by the column. Tables that were made before it do without.
TOGETHER: Final = "shown"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def schema_of(dimension: int) -> pa.Schema:
    vector = pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False)
    return _COLUMNS.append(pa.field(TOGETHER, pa.string())).append(vector)


def last_of_each(rows: pa.Table) -> pa.Table:
    """One row a key: two of one batch would both go in, and bring down every later merge of that key."""
    numbers = {chunk_id: number for number, chunk_id in enumerate(rows["chunk_id"].to_pylist())}
    return rows if len(numbers) == len(rows) else rows.take(pa.array(sorted(numbers.values())))


def to_entries(rows: pa.Table) -> pa.Table:
    vectors = rows["vector"].combine_chunks()
    flat = (
        vectors.flatten() if isinstance(vectors, pa.Array) else pa.concat_arrays([c.flatten() for c in vectors.chunks])
    )
    lengths = pc.unique(pc.list_value_length(rows["vector"])).to_pylist()
    if len(lengths) != 1:
        raise InvalidRequest(f"Vectors of one model have one length; these have {sorted(lengths)}.")
    schema = schema_of(lengths[0])
    fixed = pa.FixedSizeListArray.from_arrays(flat, lengths[0])
    columns = {name: rows[name] for name in _COLUMNS.names if name not in {*_AS_JSON, *_MADE_HERE}}
    columns |= {name: _as_json(rows[name]) for name in _AS_JSON}
    columns |= {"speaker": _speakers(rows["locator"]), "facts": _facts(rows["meta"]), "terms": _terms(rows)}
    columns |= {TOGETHER: _together(pa.table({name: columns[name] for name in SHOWN}))}
    return pa.table(columns | {"vector": fixed}).select(schema.names).cast(schema)


def apart(rows: pa.Table) -> list[dict[str, Any]]:
    """What is shown of each row, by name, of a table that has it together or of one that has it in columns."""
    if TOGETHER in rows.schema.names:
        return [json.loads(row) for row in rows[TOGETHER].to_pylist()]
    in_columns: list[dict[str, Any]] = rows.select(SHOWN).to_pylist()
    return in_columns


def entry_of(shown: Mapping[str, Any], score: float) -> Entry:
    read = {name: json.loads(shown[name] or "null") for name in (*_AS_JSON, "meta")}
    at = shown["occurred_at"]
    moment = at if isinstance(at, datetime) else _EPOCH + at * _MICROSECOND
    return Entry(**{**shown, **read, "occurred_at": moment, "score": score})


def dimension_of(schema: pa.Schema) -> int:
    return int(schema.field("vector").type.list_size)


def wrong_length(given: int, wanted: int) -> str:
    return f"This model's index takes vectors of {wanted} numbers, not {given}."


def _together(rows: pa.Table) -> pa.Array:
    given = rows.set_column(
        rows.schema.get_field_index("occurred_at"), "occurred_at", rows["occurred_at"].cast(pa.int64())
    )
    return pa.array([json.dumps(row, ensure_ascii=False) for row in given.to_pylist()], pa.string())


def _as_json(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([json.dumps(value) for value in column.to_pylist()], pa.string())


def _speakers(locators: pa.ChunkedArray) -> pa.Array:
    return pa.array([(locator or {}).get("speaker") for locator in locators.to_pylist()], pa.string())


def _facts(metas: pa.ChunkedArray) -> pa.Array:
    """Chunks of one object have one meta, and so do many objects of one import."""
    known = {meta: facts_of(meta) for meta in pc.unique(metas).to_pylist()}
    return pa.array([known[meta] for meta in metas.to_pylist()], pa.list_(pa.string()))


def _terms(rows: pa.Table) -> pa.Array:
    columns = (rows[name].to_pylist() for name in ("text", "object_id", "modality"))
    return pa.array([_terms_of(*row) for row in zip(*columns, strict=True)], pa.string())


def _terms_of(text: str, object_id: str, modality: str) -> str:
    # A chat message is named by its id, which nobody chose.
    name = "" if modality == Modality.CHAT else unquote(object_id.rpartition("/")[2])
    return " ".join((*terms_of(text), *terms_of(name)))
