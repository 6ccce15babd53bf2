"""Asking a LanceDB table: what is nearest to a vector, what has the words asked for, and what is shown of it."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from headwater.errors import InvalidRequest
from headwater.storage.index.lance_entries import AS_JSON, SHOWN, dimension_of, wrong_length
from headwater.storage.index.lance_filter import any_of, condition
from headwater.storage.index.vector_index import Candidate, Entry, Filter, Terms, Vector

if TYPE_CHECKING:
    from lancedb.table import Table

# All partitions up to this many are probed, and re-ranking this many by their true vectors keeps the recall: on
# 100,000 static vectors 0.998 of the ten nearest, against 0.980 for 100 (see docs/benchmarks.md).
PROBES: Final = 16
REFINED: Final = 400

# Each column that is fetched costs a tenth of a question, so a candidate has only what it is ranked by.
_RANKED: Final = ["chunk_id", "object_id", "terms"]
_FETCHED: Final = [name for name in SHOWN if name not in {"object_id", "terms"}]

# Texts come cut already: by `domain/terms.py`, which search asks with, too.
AS_CUT: Final[dict[str, Any]] = {
    "base_tokenizer": "whitespace", "lower_case": False, "stem": False, "remove_stop_words": False,
    "ascii_folding": False, "max_token_length": None,
}  # fmt: skip


def by_vector(table: "Table", probe: Vector, k: int, only: Filter) -> list[dict[str, Any]]:
    if len(probe) != (wanted := dimension_of(table.schema)):
        raise InvalidRequest(wrong_length(len(probe), wanted))
    query = _question(table, only).nearest_to(probe).column("vector").distance_type("cosine")
    # Too few results behind a narrow filter: go on to the other partitions.
    query = query.minimum_nprobes(PROBES).maximum_nprobes(0).refine_factor(max(2, math.ceil(REFINED / k)))
    return [{**row, "score": 1.0 - row["score"]} for row in _candidates(query, k, "_distance")]


def by_words(table: "Table", terms: Terms, k: int, only: Filter) -> list[dict[str, Any]]:
    query = _question(table, only).nearest_to_text(" ".join(terms), columns=["terms"])
    return _candidates(query, k, "_score")


def shown(table: "Table", candidates: Sequence[Candidate]) -> dict[Candidate, Entry]:
    """Without those that are gone meanwhile."""
    rows = _at_their_places(table, candidates)
    if len(rows) < len(candidates):  # some were moved, or replaced
        wanted = any_of("chunk_id", [one.chunk_id for one in candidates])
        rows = _by_id(_answer(_inside(table).query().where(wanted).limit(len(candidates)).select(_FETCHED)))
    return {one: _entry(one, rows[one.chunk_id]) for one in candidates if one.chunk_id in rows}


def _question(table: "Table", only: Filter) -> Any:
    query = _inside(table).query()
    return query.where(chosen) if (chosen := condition(only)) else query


def _inside(table: Any) -> Any:
    """What LanceDB itself asks, in a loop of its own: around it, each question would ask for the schema thrice."""
    return table._table


def _answer(query: Any) -> pa.Table:
    from lancedb.background_loop import LOOP

    rows: pa.Table = cast(Any, LOOP).run(query.to_arrow())
    return rows


def _candidates(query: Any, k: int, measure: str) -> list[dict[str, Any]]:
    """As a `Candidate` wants them."""
    rows = _answer(query.limit(k).with_row_id().select([*_RANKED, measure]))
    found: list[dict[str, Any]] = rows.rename_columns({"_rowid": "place", measure: "score"}).to_pylist()
    return found


def _at_their_places(table: "Table", candidates: Sequence[Candidate]) -> dict[str, dict[str, Any]]:
    """Those that are still where they were found, as nearly always all are."""
    try:
        rows = _by_id(_answer(_inside(table).take_row_ids([one.place for one in candidates]).select(_FETCHED)))
    except (RuntimeError, OSError, ValueError):  # of files that were merged meanwhile; an outage shows at once again
        return {}
    return {one.chunk_id: rows[one.chunk_id] for one in candidates if one.chunk_id in rows}


def _by_id(rows: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["chunk_id"]: row for row in rows.to_pylist()}


def _entry(candidate: Candidate, row: dict[str, Any]) -> Entry:
    read = {name: json.loads(row[name] or "null") for name in (*AS_JSON, "meta")}
    known = {"object_id": candidate.object_id, "terms": candidate.terms, "score": candidate.score}
    return Entry(**(row | read | known))
