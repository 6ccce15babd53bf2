"""Pages: a table's newest rows, page by page: `seq` is dense, so a window of it tells which files to read."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.domain.tables import Table
from headwater.storage.query.reader import scan, seen
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.row_filter import Between

_WIDER: Final = 4  # where rows went or are hidden, so that a sparse table takes few looks


def newest_below(
    catalog: Tables, table: Table, columns: Sequence[str], limit: int, before: int | None, hidden: Collection[str]
) -> pa.Table:
    """At most `limit` rows whose seq is below `before`, the newest first; rows of `hidden` models are left out."""
    asked = [*columns, *(name for name in table.model_columns if name not in columns)]
    high = _end(catalog, table) if before is None else before
    size, found, count = limit, list[Any](), 0
    while high > 0 and count < limit:
        low = max(0, high - size)
        rows = seen(scan(catalog, table.name, asked, {"seq": Between(low, high)}), table, hidden)
        found.append(rows.sort_by([("seq", "descending")]))
        count, high, size = count + len(rows), low, size * _WIDER
    if not found:
        found = [scan(catalog, table.name, asked, {"seq": Between(0, 0)})]
    return pa.concat_tables(found).slice(0, limit).select(list(columns))


def _end(catalog: Tables, table: Table) -> int:
    """The seq of the row that comes next."""
    rows = scan(catalog, table.name, ["seq"])
    return int(pc.max(rows["seq"]).as_py()) + 1 if len(rows) else 0
