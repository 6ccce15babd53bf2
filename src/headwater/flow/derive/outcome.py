"""The outcomes of a batch: rows for several tables in one, told apart by `table`.

One table, because an object's answers come together, whichever tables they are for.
"""

from typing import Final

import pyarrow as pa

from headwater.domain import tables
from headwater.flow.map import DERIVE

TABLES: Final = tuple(table for name in DERIVE.writes if (table := tables.find(name)))


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
