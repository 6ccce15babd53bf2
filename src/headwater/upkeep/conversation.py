"""A conversation: the objects of one thread in the order in which they happened, with what each says.

Reads   bronze.events, the tables of texts, the ledger's labels; starts no JVM
"""

import json
from collections import defaultdict
from typing import Any, Final

from headwater.clock import to_text
from headwater.domain.tables import EVENTS, TEXT_TABLES
from headwater.errors import InvalidRequest, NotFound
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.query.plain_rows import to_rows
from headwater.storage.query.reader import scan
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.row_filter import RowFilter
from headwater.upkeep.labels import shown_labels

_EVENT: Final = (
    "seq", "event_id", "object_id", "customer", "modality", "occurred_at", "text", "meta", "thread", "first_of_object",
)  # fmt: skip
_SHOWN: Final = ("event_id", "object_id", "customer", "modality")


def read_conversation(
    catalog: Tables, ledger: Ledger, thread: str, *, customer: str | None, hidden: frozenset[str]
) -> dict[str, Any]:
    """`{"thread", "customer", "items": [{"event_id", "object_id", …, "text", "meta", "labels"}]}`"""
    where: RowFilter = {"thread": thread, **({"customer": customer} if customer else {})}
    events = [row for row in to_rows(scan(catalog, EVENTS.name, _EVENT, where)) if row["first_of_object"]]
    if not events:
        raise NotFound(f"No event belongs to the thread {thread}. If it was put just now, headwater run brings it in.")
    if len(customers := sorted({row["customer"] for row in events})) > 1:
        raise InvalidRequest(f"{thread} is a thread of {', '.join(customers[:5])}. Say whose: --customer NAME")
    said = _texts(catalog, where, hidden)
    events.sort(key=lambda row: (row["occurred_at"], row["seq"]))
    items = [
        {
            **{name: row[name] for name in _SHOWN},
            "occurred_at": to_text(row["occurred_at"]),
            "text": row["text"] if row["text"] is not None else " ".join(said[row["object_id"]]) or None,
            "meta": json.loads(row["meta"]) if row["meta"] else None,
            "labels": shown_labels(ledger, row["object_id"]),
        }
        for row in events
    ]
    return {"thread": thread, "customer": customers[0], "items": items}


def _texts(catalog: Tables, where: RowFilter, hidden: frozenset[str]) -> dict[str, list[str]]:
    """What the active models read and heard, by object."""
    found: dict[str, list[str]] = defaultdict(list)
    for table in TEXT_TABLES:
        for row in to_rows(scan(catalog, table.name, ("object_id", "fingerprint", "text"), where)):
            if row["fingerprint"] not in hidden and row["text"]:
                found[row["object_id"]].append(row["text"])
    return found
