"""The tables as values: columns, key, partition and order. Arrow schemas are the contract everywhere.

Every row has `seq`, its dense position in the order in which its table grew, and every table remembers the next one
in a property. So what a stage has yet to read is a subtraction of two properties: no scan, no JVM, and neither
compaction nor snapshot expiry moves it.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.domain.locator import LOCATOR_TYPE, SEGMENT_TYPE
from headwater.domain.pointer import POINTER_TYPE
from headwater.errors import NotFound

TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Table:
    """`day` is the column whose day partitions the table (hidden); `order` keeps a customer's rows together."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    day: str
    order: tuple[str, ...]
    purpose: str

    @property
    def model_columns(self) -> tuple[str, ...]:
        """Which models a row depends on: a vector is of its own and of the one that made its text."""
        if "derived_at" not in self.schema.names:
            return ()
        return tuple(name for name in ("fingerprint", "source_fingerprint") if name in self.schema.names)

    @property
    def columns(self) -> list[str]:
        """What a writer gives; `seq` comes with the commit."""
        return [name for name in self.schema.names if name != "seq"]

    @property
    def short_name(self) -> str:
        return self.name.partition(".")[2]


def _field(name: str, kind: pa.DataType, *, required: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=not required)


_SEQ = _field("seq", pa.int64(), required=True)

# What every silver row carries: its source, its customer, the model that made it and the event that caused it.
PROVENANCE: Final = (
    _SEQ,
    _field("object_id", pa.string(), required=True),
    _field("customer", pa.string(), required=True),
    _field("modality", pa.string(), required=True),
    _field("step", pa.string(), required=True),
    _field("model", pa.string(), required=True),
    _field("fingerprint", pa.string(), required=True),
    _field("event_id", pa.string(), required=True),
    _field("occurred_at", TIMESTAMP, required=True),
    _field("derived_at", TIMESTAMP, required=True),
    _field("pointer", POINTER_TYPE, required=True),
)

# What a row took to make: seconds in the model, tokens that it billed, money, and how often the call was made.
EFFORT: Final = (
    _field("model_seconds", pa.float64()),
    _field("tokens", pa.int64()),
    _field("cost", pa.float64()),
    _field("attempts", pa.int32()),
)

# What is known of an object beside its bytes, carried to all that is made of it: a JSON object, and a conversation.
META: Final = (
    _field("meta", pa.string()),
    _field("thread", pa.string()),
)

_TEXT_COLUMNS = (
    *PROVENANCE,
    _field("text", pa.string()),
    _field("language", pa.string()),
    _field("confidence", pa.float64()),
    _field("segments", pa.list_(SEGMENT_TYPE)),
    *EFFORT,
    *META,
)

_DERIVED_KEY = ("object_id", "step", "fingerprint")
_DERIVED_ORDER = ("customer", "object_id")

EVENTS: Final = Table(
    "bronze.events",
    pa.schema(
        [
            _SEQ,
            _field("event_id", pa.string(), required=True),
            _field("object_id", pa.string(), required=True),
            _field("modality", pa.string(), required=True),
            _field("customer", pa.string(), required=True),
            _field("occurred_at", TIMESTAMP, required=True),
            _field("pointer", POINTER_TYPE, required=True),
            _field("text", pa.string()),
            _field("content_hash", pa.string(), required=True),
            # False for a second event about an object already known, and for one that was corrected: both are kept as
            # sent, and the other is derived.
            _field("first_of_object", pa.bool_(), required=True),
            _field("log_partition", pa.int32(), required=True),
            _field("log_offset", pa.int64(), required=True),
            _field("bronze_at", TIMESTAMP, required=True),
            *META,
            # What its producer sent beside the fields of an event: a JSON object, kept here alone.
            _field("extra", pa.string()),
            # The event in whose place it stands; that one's `first_of_object` is taken from it.
            _field("corrects", pa.string()),
        ]
    ),
    key=("customer", "event_id"),
    day="occurred_at",
    order=("customer", "event_id"),
    purpose="the first event of each id of a customer, as sent",
)

METADATA: Final = Table(
    "silver.metadata",
    pa.schema(
        [
            *PROVENANCE,
            _field("size", pa.int64()),
            _field("checksum", pa.string()),
            _field("content_type", pa.string()),
            _field("duration_ms", pa.int64()),
            _field("width", pa.int32()),
            _field("height", pa.int32()),
            _field("pages", pa.int32()),
            _field("channels", pa.int32()),
            _field("sample_rate", pa.int32()),
            _field("codec", pa.string()),
            _field("tier", pa.string()),
            *META,
        ]
    ),
    key=_DERIVED_KEY,
    day="occurred_at",
    order=_DERIVED_ORDER,
    purpose="one row per object: size, type, duration, dimensions, tier",
)


def _text_table(name: str, purpose: str) -> Table:
    return Table(
        name, pa.schema(_TEXT_COLUMNS), key=_DERIVED_KEY, day="occurred_at", order=_DERIVED_ORDER, purpose=purpose
    )


TRANSCRIPTS: Final = _text_table("silver.transcripts", "what was said in calls and videos, with its times")
CAPTIONS: Final = _text_table("silver.captions", "what is to be read in pictures, frames and pages, with its boxes")
MESSAGES: Final = _text_table("silver.messages", "what people wrote in chat")

EMBEDDINGS: Final = Table(
    "silver.embeddings",
    pa.schema(
        [
            *PROVENANCE,
            _field("chunk_id", pa.string(), required=True),
            _field("chunk", pa.int32(), required=True),
            _field("source_table", pa.string(), required=True),
            _field("source_fingerprint", pa.string(), required=True),
            _field("source_model", pa.string(), required=True),
            _field("text", pa.string(), required=True),
            _field("locator", LOCATOR_TYPE),
            _field("vector", pa.list_(pa.float32()), required=True),
            *EFFORT,
            *META,
        ]
    ),
    key=("chunk_id",),
    day="occurred_at",
    order=("customer", "object_id", "chunk"),
    purpose="vectors of every chunk of text; the vector index is a view of this",
)

QUARANTINE: Final = Table(
    "silver.quarantine",
    pa.schema(
        [
            _SEQ,
            _field("event_id", pa.string(), required=True),
            _field("object_id", pa.string()),
            _field("customer", pa.string()),
            _field("modality", pa.string()),
            _field("step", pa.string(), required=True),
            _field("model", pa.string()),
            _field("fingerprint", pa.string()),
            _field("reason", pa.string(), required=True),
            _field("detail", pa.string()),
            _field("attempts", pa.int32(), required=True),
            # Where in bronze.events it stands, so that who tries again need not look for it; null where nobody knows.
            _field("event_seq", pa.int64()),
            _field("occurred_at", TIMESTAMP),
            _field("quarantined_at", TIMESTAMP, required=True),
            _field("pointer", POINTER_TYPE),
            _field("payload", pa.string()),
            # Where its event stands in the log; null where only its text was at hand, or the place is damaged.
            _field("log_partition", pa.int32()),
            _field("log_offset", pa.int64()),
        ]
    ),
    key=("customer", "event_id", "step"),
    day="quarantined_at",
    order=("reason", "customer"),
    purpose="what could not be processed, why, and how to retry",
)

TEXT_TABLES: Final = (TRANSCRIPTS, CAPTIONS, MESSAGES)
TABLES: Final = (EVENTS, METADATA, *TEXT_TABLES, EMBEDDINGS, QUARANTINE)


def find(name: str) -> Table | None:
    """By full or short name: `silver.transcripts`, `transcripts`."""
    return next((table for table in TABLES if name in {table.name, table.short_name}), None)


def require(name: str) -> Table:
    """As `find`; NotFound names those that there are."""
    if (table := find(name)) is None:
        known = ", ".join(table.short_name for table in TABLES)
        raise NotFound(f"There is no table {name}. These are: {known}.")
    return table
