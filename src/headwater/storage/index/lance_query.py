"""Asking a LanceDB table: what is nearest to a vector, and what has the words that are asked for."""

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import InvalidRequest
from headwater.storage.index.lance_entries import AS_JSON, SHOWN, dimension_of, wrong_length
from headwater.storage.index.lance_filter import condition
from headwater.storage.index.vector_index import Entry, Filter, Terms, Vector

if TYPE_CHECKING:
    from lancedb.table import Table

# All partitions up to this many are probed, and re-ranking this many by their true vectors keeps the recall: on
# 100,000 static vectors 0.998 of the ten nearest, against 0.980 for 100 (see docs/benchmarks.md).
PROBES: Final = 16
REFINED: Final = 400

# Texts come cut already: by `domain/terms.py`, which search asks with, too.
AS_CUT: Final[dict[str, Any]] = {
    "base_tokenizer": "whitespace", "lower_case": False, "stem": False, "remove_stop_words": False,
    "ascii_folding": False, "max_token_length": None,
}  # fmt: skip


def _entries(query: Any, k: int, measure: str) -> Iterator[tuple[float, dict[str, Any]]]:
    for row in query.limit(k).select([*SHOWN, measure]).to_arrow().to_pylist():
        yield row.pop(measure), {**row, **{name: json.loads(row[name] or "null") for name in (*AS_JSON, "meta")}}


def by_vector(table: "Table", probe: Vector, k: int, only: Filter) -> list[Entry]:
    if len(probe) != (wanted := dimension_of(table.schema)):
        raise InvalidRequest(wrong_length(len(probe), wanted))
    query: Any = table.search(probe, vector_column_name="vector", query_type="vector")
    query = query.distance_type("cosine")
    # Too few results behind a narrow filter: go on to the other partitions.
    query = query.minimum_nprobes(PROBES).maximum_nprobes(0).refine_factor(max(2, math.ceil(REFINED / k)))
    if chosen := condition(only):
        query = query.where(chosen, prefilter=True)
    return [Entry(score=1.0 - distance, **row) for distance, row in _entries(query, k, "_distance")]


def by_words(table: "Table", terms: Terms, k: int, only: Filter) -> list[Entry]:
    query: Any = table.search(" ".join(terms), query_type="fts", fts_columns="terms")
    if chosen := condition(only):
        query = query.where(chosen, prefilter=True)
    return [Entry(score=score, **row) for score, row in _entries(query, k, "_score")]
