"""Claims: the ledger is brought to know every event and object that bronze.events has.

Reads   bronze.events
Writes  the ledger's first-seen keys; twice is once
Sealed, as the ledger calls it: a row that is committed is never read from the log again.
"""

from typing import TYPE_CHECKING, Any, Final

from headwater.domain.keys import event_key, is_raw_key
from headwater.domain.tables import EVENTS
from headwater.flow.known_files import FILE, FLAT_FILE, FLAT_FILES_FACT, file_claim
from headwater.storage.ledger.copy import count_claims
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.query.row_stream import stream_rows

if TYPE_CHECKING:
    from headwater.storage.tables.catalog import Tables

BY_CUSTOMER: Final = 6  # the format since which an id belongs to its customer
_COLUMNS: Final = (
    "event_id", "customer", "content_hash", "object_id", "pointer", "first_of_object", "log_partition", "log_offset",
)  # fmt: skip


def claim_what_bronze_has(catalog: "Tables", ledger: Ledger, version: int) -> int:
    """How many keys the ledger did not have. `version` is the format of the ledger, which says what a key is."""
    before = count_claims(ledger)
    for batch in stream_rows(catalog, EVENTS.name, _COLUMNS):
        _claim(ledger, batch.to_pylist(), by_customer=version >= BY_CUSTOMER)
    return count_claims(ledger) - before


def claim_by_customer(catalog: "Tables", ledger: Ledger) -> None:
    """Ids that were of a whole lake become their customers' own. Twice is once."""
    for batch in stream_rows(catalog, EVENTS.name, _COLUMNS):
        rows = batch.to_pylist()
        _claim(ledger, rows, by_customer=True)
        # What bronze has no row of was claimed and never committed: it is claimed anew when it is read.
        ledger.forget_claims("event", {row["event_id"] for row in rows})
        # Their folders were not kept: a file in one is known by its name alone.
        ledger.claim_first(FLAT_FILE, _files(rows))
    ledger.set_fact(FLAT_FILES_FACT, "1")


def _claim(ledger: Ledger, rows: list[dict[str, Any]], *, by_customer: bool) -> None:
    at = [(-1 - row["log_partition"], row["log_offset"]) for row in rows]
    keys = [event_key(row["event_id"], row["customer"]) if by_customer else row["event_id"] for row in rows]
    events = [(key, row["content_hash"], *where) for key, row, where in zip(keys, rows, at, strict=True)]
    objects = [
        (row["object_id"], row["pointer"]["checksum"], *where)
        for row, where in zip(rows, at, strict=True)
        if row["first_of_object"]
    ]
    ledger.claim_first("event", events)
    ledger.claim_first("object", objects)
    if by_customer:
        ledger.claim_first(FILE, _files(rows))


def _files(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    """What was put as a file, told by its key; a producer may name its objects as it likes."""
    named = ((row["object_id"], row["pointer"]["checksum"]) for row in rows if row["first_of_object"])
    return [file_claim(key, checksum) for key, checksum in named if is_raw_key(key)]
