"""Claims: the ledger is brought to know every event and object that bronze.events has.

Reads   bronze.events
Writes  the ledger's first-seen keys; twice is once
Sealed, as the ledger calls it: a row that is committed is never read from the log again.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.domain.tables import EVENTS
from headwater.storage.ledger.copy import count_claims
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.query.row_stream import stream_rows

if TYPE_CHECKING:
    from headwater.storage.tables.catalog import Tables

_COLUMNS: Final = (
    "event_id", "content_hash", "object_id", "pointer", "first_of_object", "log_partition", "log_offset",
)  # fmt: skip


def claim_what_bronze_has(catalog: "Tables", ledger: Ledger) -> int:
    """How many keys the ledger did not have."""
    before = count_claims(ledger)
    for batch in stream_rows(catalog, EVENTS.name, _COLUMNS):
        _claim(ledger, batch)
    return count_claims(ledger) - before


def _claim(ledger: Ledger, batch: pa.RecordBatch) -> None:
    rows = batch.to_pylist()
    at = [(-1 - row["log_partition"], row["log_offset"]) for row in rows]
    events = [(row["event_id"], row["content_hash"], *where) for row, where in zip(rows, at, strict=True)]
    objects = [
        (row["object_id"], row["pointer"]["checksum"], *where)
        for row, where in zip(rows, at, strict=True)
        if row["first_of_object"]
    ]
    ledger.claim_first("event", events)
    ledger.claim_first("object", objects)
