"""Asking a LanceDB table: what is nearest to a vector, and what has the words asked for.

Each question, each row and each column that LanceDB is asked for has its price. So questions that belong together go
out at once and give places only; what stands there is read once for all of them, as one column.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import pyarrow as pa

from headwater.errors import InvalidRequest
from headwater.storage.index.lance_entries import SHOWN, TOGETHER, apart, dimension_of, entry_of, wrong_length
from headwater.storage.index.lance_filter import condition
from headwater.storage.index.lance_optimize import is_fine
from headwater.storage.index.vector_index import Candidate, Filter, Terms, Vector

if TYPE_CHECKING:
    from lancedb.table import Table

# All partitions up to this many are probed. Re-ranking this many by their true vectors keeps nearly all of the fifty
# nearest that search ranks: 0.997 of them among 200,000 static vectors by fine codes, 0.973 by a bit for each number,
# and of the ten nearest 1.000 by both (docs/benchmarks.md).
PROBES: Final = 16
REFINED_FINE: Final = 100
REFINED: Final = 400

# Texts come cut already: by `domain/terms.py`, which search asks with, too.
AS_CUT: Final[dict[str, Any]] = {
    "base_tokenizer": "whitespace", "lower_case": False, "stem": False, "remove_stop_words": False,
    "ascii_folding": False, "max_token_length": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """How a table is made; another process may train finer codes for it while this one has it open."""

    dimension: int
    shown: tuple[str, ...]
    is_fine: bool


@dataclass(frozen=True, slots=True)
class Question:
    query: Any
    measure: str

    def scores(self, rows: pa.Table) -> list[float]:
        measured: list[float] = rows[self.measure].to_pylist()
        return [1.0 - distance for distance in measured] if self.measure == "_distance" else measured


_shapes: "WeakKeyDictionary[Table, Shape]" = WeakKeyDictionary()


def find(table: "Table", probes: Sequence[Vector | Terms], k: int, only: Filter) -> list[list[Candidate]]:
    """What each of the probes finds, best first."""
    shape = _shape_of(table)
    questions = [_question(table, shape, probe, k, only) for probe in probes]
    found = _ask(questions, ())
    shown = _shown_at(table, {place for rows in found for place in rows["_rowid"].to_pylist()}, shape)
    if shown is None:  # some were moved, replaced or deleted since: each is asked again, and read as it is found
        return [
            _candidates(one, rows, apart(rows))
            for one, rows in zip(questions, _ask(questions, shape.shown), strict=True)
        ]
    return [
        _candidates(one, rows, [shown[place] for place in rows["_rowid"].to_pylist()])
        for one, rows in zip(questions, found, strict=True)
    ]


def _shape_of(table: "Table") -> Shape:
    known = _shapes.get(table)
    if known is None or not known.is_fine:
        schema = table.schema
        shown = (TOGETHER,) if TOGETHER in schema.names else SHOWN
        known = _shapes[table] = Shape(dimension_of(schema), shown, is_fine(table))
    return known


def _question(table: "Table", shape: Shape, probe: Vector | Terms, k: int, only: Filter) -> Question:
    query = _inside(table).query()
    if chosen := condition(only):
        query = query.where(chosen)
    if isinstance(probe, tuple):
        worded = query.nearest_to_text(" ".join(probe), columns=["terms"])
        return Question(worded.limit(k).with_row_id(), "_score")
    if len(probe) != shape.dimension:
        raise InvalidRequest(wrong_length(len(probe), shape.dimension))
    near = query.nearest_to(probe).column("vector").distance_type("cosine")
    # Too few results behind a narrow filter: go on to the other partitions.
    near = near.minimum_nprobes(PROBES).maximum_nprobes(0).refine_factor(_refine_factor(shape, k))
    return Question(near.limit(k).with_row_id(), "_distance")


def _refine_factor(shape: Shape, k: int) -> int:
    return max(1, math.ceil(REFINED_FINE / k)) if shape.is_fine else max(2, math.ceil(REFINED / k))


def _inside(table: Any) -> Any:
    """What LanceDB itself asks, in a loop of its own: around it, each question would ask for the schema thrice."""
    return table._table


def _ask(questions: Sequence[Question], columns: Sequence[str]) -> list[pa.Table]:
    return _answers([one.query.select([*columns, one.measure]) for one in questions])


def _answers(queries: Sequence[Any]) -> list[pa.Table]:
    from lancedb.background_loop import LOOP

    async def all_at_once() -> list[pa.Table]:
        return await asyncio.gather(*(query.to_arrow() for query in queries))

    rows: list[pa.Table] = cast(Any, LOOP).run(all_at_once())
    return rows


def _shown_at(table: "Table", places: Collection[int], shape: Shape) -> dict[int, dict[str, Any]] | None:
    """By place, where all of them are as they were found, as nearly always they are."""
    if not places:
        return {}
    query = _inside(table).take_row_ids(sorted(places)).with_row_id().select(list(shape.shown))
    try:
        [rows] = _answers([query])
    except (RuntimeError, OSError, ValueError):  # of files that were merged meanwhile; an outage shows at once again
        return None
    return dict(zip(rows["_rowid"].to_pylist(), apart(rows), strict=True)) if len(rows) == len(places) else None


def _candidates(question: Question, rows: pa.Table, shown: Sequence[dict[str, Any]]) -> list[Candidate]:
    return [
        Candidate(one["chunk_id"], score, one["object_id"], one["terms"], partial(entry_of, one, score))
        for one, score in zip(shown, question.scores(rows), strict=True)
    ]
