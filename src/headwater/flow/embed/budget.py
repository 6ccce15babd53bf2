"""A batch of texts that the money did not reach to the end of: cut back to what was paid, without gaps.

A position is one number for each table, so what lies behind the first text that could not be paid is left for the next
time, when the memo has it and it costs nothing.
"""

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.domain.tables import Table
from headwater.flow.models.spending import OVER_BUDGET

Ends: TypeAlias = dict[Table, int]


def in_order(texts: pa.Table) -> pa.Table:
    """As a purse is spent on them: the order in which their tables grew."""
    return texts.sort_by([("source_table", "ascending"), ("seq", "ascending")]).combine_chunks()


def cut_back(texts: pa.Table, made: pa.Table, ends: Mapping[Table, int]) -> tuple[pa.Table, pa.Table, Ends, bool]:
    """The texts that were paid, what was made of them, where they end, and whether that is before the batch's end."""
    unpaid = set(_names(made.filter(pc.fill_null(pc.equal(made["reason"], OVER_BUDGET), False)), "source_fingerprint"))
    if not unpaid:
        return texts, made, dict(ends), False
    names = list(_names(texts, "fingerprint"))
    places = list(zip(texts["source_table"].to_pylist(), texts["seq"].to_pylist(), strict=True))
    short = {table.name: end for table, end in ends.items()}
    for name, (table, seq) in zip(names, places, strict=True):
        if name in unpaid:
            short[table] = min(short[table], seq)
    kept = [seq < short[table] for table, seq in places]
    paid = {name for name, keep in zip(names, kept, strict=True) if keep}
    of_paid = [name in paid for name in _names(made, "source_fingerprint")]
    new_ends = {table: short[table.name] for table in ends}
    return texts.filter(pa.array(kept, pa.bool_())), made.filter(pa.array(of_paid, pa.bool_())), new_ends, True


def _names(rows: pa.Table, fingerprint: str) -> "zip[tuple[str, str, str]]":
    """What tells a text: its object, and the model that made it."""
    columns = (rows[name].to_pylist() for name in ("source_table", "object_id", fingerprint))
    return zip(*columns, strict=True)
