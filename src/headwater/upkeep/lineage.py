"""Lineage: from any id to its source, and from the source to everything made of it.

Reads   every table, by object; raw store (does the object exist), index (how far it has followed)
An id may be an event's, an object's path (also with the store's prefix), a chunk's or a hit's, or one that a trace
printed. Columns that are not needed, vectors above all, are not read; files are pruned by object, customer and time.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from headwater.domain.modality import INLINE, Modality
from headwater.domain.pointer import Pointer
from headwater.domain.ref import Ref
from headwater.domain.tables import EMBEDDINGS, EVENTS, METADATA, QUARANTINE, TABLES, TEXT_TABLES, Table
from headwater.errors import DataFault, InvalidRequest, NotFound
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.query.history import refs_with_rows
from headwater.storage.query.plain_rows import to_plain, to_rows
from headwater.storage.query.reader import scan
from headwater.storage.raw.store import RawStore
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.row_filter import RowFilter
from headwater.storage.tables.time_travel import TablesAt

_MADE: Final = ("step", "model", "fingerprint", "event_id", "derived_at")
_CHUNK: Final = ("chunk_id", "chunk", "seq", "model", "fingerprint", "source_table", "source_model", "locator")
_REFUSED: Final = (
    "step", "reason", "detail", "attempts", "model", "event_id", "quarantined_at", "log_partition", "log_offset",
)  # fmt: skip
_LOOKUPS: Final = (
    (EVENTS, "object_id"), (EVENTS, "event_id"), (EMBEDDINGS, "chunk_id"), (QUARANTINE, "event_id"),
    (QUARANTINE, "object_id"),
)  # fmt: skip
_CUSTOMERS_SHOWN: Final = 5
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_PREFIXES: Final = {modality.prefix for modality in Modality}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """`object` is the pointer and whether the bytes are there; `event` the first about it; the rest are lists."""

    object: Row
    event: Row | None
    derived: tuple[Row, ...]
    vectors: tuple[Row, ...]
    quarantined: tuple[Row, ...]
    refs: tuple[Row, ...]
    as_of: Row | None = None

    def to_dict(self) -> Row:
        return {
            "object": self.object,
            "event": self.event,
            "derived": list(self.derived),
            "vectors": list(self.vectors),
            "quarantined": list(self.quarantined),
            "refs": list(self.refs),
            **({"as_of": self.as_of} if self.as_of else {}),
        }


def trace(
    lake: catalogs.Tables,
    index: VectorIndex,
    raw_store: RawStore,
    name: str,
    as_of: Ref | None = None,
    customer: str | None = None,
) -> Trace:
    """Raises NotFound where nothing in the lake bears that id, or where the ref names no state of all tables; and
    InvalidRequest where it is the id of events of several customers, and `customer` does not say whose is meant.

    With a ref it is what the tables told then. Whether the bytes are there, which vectors are in the index and what
    holds the rows is as it is now.
    """
    return look_up(lake, index, raw_store, name, as_of, customer)[0]


def look_up(
    lake: catalogs.Tables,
    index: VectorIndex,
    raw_store: RawStore,
    name: str,
    as_of: Ref | None = None,
    customer: str | None = None,
    *,
    columns: Mapping[Table, Sequence[str]] | None = None,
    with_refs: bool = True,
) -> tuple[Trace, dict[Table, list[Row]]]:
    """The trace, without what holds its rows if nobody wants to know, and the derived rows that it was told by, with
    more of their `columns` if they are named."""
    past = TablesAt(lake, as_of, [table.name for table in TABLES]) if as_of else None
    catalog = past or lake
    asked, object_id = _resolve(catalog, name, customer, as_of)
    events = events_of(catalog, object_id)
    refused = _refused(catalog, object_id, asked, events[0]["customer"] if events else customer)
    where = _where(object_id, events)
    wanted = columns or {}
    derived = {
        table: _rows(catalog, table, (*_MADE, *wanted.get(table, ())), where) for table in (METADATA, *TEXT_TABLES)
    }
    chunks = sorted(_rows(catalog, EMBEDDINGS, _CHUNK, where), key=lambda row: (row["source_table"], row["chunk"]))
    with_rows = [table for table, rows in ((EVENTS, events), *derived.items(), (EMBEDDINGS, chunks)) if rows]
    indexed = index.position()
    told = Trace(
        object=_object(raw_store, object_id, events, refused),
        event=tell_event(next((row for row in events if row["event_id"] == asked), events[0]), events)
        if events
        else None,
        derived=tuple(_derived(table, object_id, row) for table, rows in derived.items() for row in rows),
        vectors=tuple(_vector(row, indexed) for row in chunks),
        quarantined=tuple(_plain({name: row[name] for name in _REFUSED}) for row in refused),
        refs=tuple(ref for table in with_rows for ref in _refs(lake, table, where)) if with_refs else (),
        as_of=past.to_dict() if past else None,
    )
    return told, derived


def find_object(catalog: catalogs.Tables, name: str, customer: str | None = None) -> str:
    """The object that any id means; NotFound where it means none."""
    return _resolve(catalog, name, customer)[1]


def fetch_object(
    catalog: catalogs.Tables, raw_store: RawStore, name: str, customer: str | None = None
) -> Iterator[bytes]:
    """The raw bytes behind any id, in pieces; DataFault at the end where they do not match their checksum."""
    event = find_event(catalog, name, customer)
    if event["modality"] in INLINE:
        return iter([(event["text"] or "").encode()])
    return verified_chunks(raw_store, Pointer.from_dict(event["pointer"]))


def find_event(catalog: catalogs.Tables, name: str, customer: str | None = None) -> Row:
    """The event that counts about the object that any id means; NotFound where there is none."""
    _, object_id = _resolve(catalog, name, customer)
    events = events_of(catalog, object_id)
    if not events:
        raise NotFound(f"{object_id} has no event, so its bytes are not known. See: headwater trace {object_id}")
    return events[0]


def verified_chunks(raw_store: RawStore, pointer: Pointer) -> Iterator[bytes]:
    hashed = hashlib.sha256()
    for chunk in _chunks(raw_store, pointer):
        hashed.update(chunk)
        yield chunk
    if hashed.hexdigest() != pointer.checksum:
        raise DataFault("CORRUPT", f"{pointer.path} no longer has the checksum {pointer.checksum}.")


def _chunks(raw_store: RawStore, pointer: Pointer) -> Iterator[bytes]:
    """As stored under its name; where that was written over or deleted, of the version that the pointer names."""
    stored = raw_store.head(pointer.path)
    if stored is None or stored.version_id not in {None, pointer.version_id}:
        return raw_store.kept_chunks(pointer) or raw_store.chunks(pointer.path, pointer.offset, pointer.size)
    return raw_store.chunks(pointer.path, pointer.offset, pointer.size)


def _resolve(catalog: catalogs.Tables, name: str, customer: str | None, as_of: Ref | None = None) -> tuple[str, str]:
    """What was asked for, freed of prefixes, and the object it belongs to. Paths are tried first: they prune best."""
    asked = _without_store(name.strip())
    if not asked:
        raise InvalidRequest("Trace what? Give an event id, an object's path or a hit's id.")
    # A trace names a derived row by its object, # and what made it.
    for candidate in dict.fromkeys((asked, asked.partition("#")[0], _as_stored(asked))):
        for table, column in _LOOKUPS:
            where: RowFilter = {column: candidate, **({"customer": customer} if customer else {})}
            # An id belongs to its customer, so that several may have it; anything else is one object's.
            most = None if column == "event_id" else 1
            found = scan(catalog, table.name, ["object_id", "customer"], where, limit=most).to_pylist()
            if found:
                require_one_customer(candidate, {row["customer"] for row in found})
                return candidate, str(found[0]["object_id"] or candidate)
    whose = f" of {customer}" if customer else ""
    if as_of:
        raise NotFound(f"At {as_of} nothing{whose} in the lake was called {asked}: no object, event or chunk.")
    raise NotFound(
        f"Nothing{whose} in the lake is called {asked}: no object, event or chunk. "
        "If it was put just now, headwater run brings it in."
    )


def require_one_customer(event_id: str, customers: set[str | None]) -> None:
    if len(customers) > 1:
        known = sorted(filter(None, customers))
        shown = ", ".join(known[:_CUSTOMERS_SHOWN]) + (" …" if len(known) > _CUSTOMERS_SHOWN else "")
        raise InvalidRequest(f"{event_id} is an event of each of {shown}. Say whose is meant: --customer NAME")


def _without_store(name: str) -> str:
    """`s3://bucket/prefix/audio/acme/2026-03-01/call.wav` and the path of the same file name the same object."""
    parts = name.split("/")
    for at, part in enumerate(parts):
        rest = parts[at:]
        is_file = part in _PREFIXES and len(rest) > 3 and _DAY.fullmatch(rest[2])
        if is_file or (part == "chat" and len(rest) == 3):
            return "/".join(rest)
    return name


def _as_stored(name: str) -> str:
    """A path as a person wrote its names, the way tables show it, in the spelling of keys."""
    return quote(name, safe="/-_.~@+=")


def events_of(catalog: catalogs.Tables, object_id: str) -> list[Row]:
    """All that was said about an object; what counts comes first."""
    events = _rows(catalog, EVENTS, EVENTS.schema.names, {"object_id": object_id})
    counts = counting_of(events)
    return sorted(events, key=lambda row: (row is not counts, not row["first_of_object"], row["seq"]))


def counting_of(events: Sequence[Row]) -> Row | None:
    """The correction that counts, where there is one: also before derive has come to it."""
    corrections = [row for row in events if row["corrects"] is not None and row["first_of_object"]]
    return max(corrections, key=lambda row: row["seq"], default=None)


def _correction_of(row: Row, events: Sequence[Row]) -> str | None:
    """Who stands in the place of an event: not of one that only said the same again, later."""
    counts = counting_of(events)
    if counts is None or row is counts:
        return None
    place = ("bronze_at", "log_offset") if row["log_partition"] == counts["log_partition"] else ("bronze_at",)
    is_before = [row[name] for name in place] <= [counts[name] for name in place]
    return str(counts["event_id"]) if is_before else None


def _where(object_id: str, events: Sequence[Row]) -> RowFilter:
    """What an object's rows have in common with its first event; the time prunes to one day's files."""
    if not events:
        return {"object_id": object_id}
    first = events[0]
    if counting_of(events) is not None:  # what was made of another one has its time
        return {"object_id": object_id, "customer": first["customer"]}
    return {"object_id": object_id, "customer": first["customer"], "occurred_at": first["occurred_at"]}


def _refused(catalog: catalogs.Tables, object_id: str, asked: str, customer: str | None) -> list[Row]:
    columns = (*_REFUSED, "object_id", "pointer")
    by_object = _rows(catalog, QUARANTINE, columns, {"object_id": object_id})
    whose: RowFilter = {"customer": customer} if customer else {}
    return by_object or _rows(catalog, QUARANTINE, columns, {"event_id": asked, **whose})


def _rows(catalog: catalogs.Tables, table: Table, columns: Sequence[str], where: RowFilter) -> list[Row]:
    return to_rows(scan(catalog, table.name, columns, where))


def _plain(row: Row) -> Row:
    return {name: to_plain(value) for name, value in row.items()}


def tell_event(row: Row, events: Sequence[Row]) -> Row:
    """`corrected` are the events in whose place it stands, `corrected_by` is the one that stands in its own."""
    before = [other for other in events if _correction_of(other, events) == row["event_id"]]
    told: Row = {name: json.loads(row[name]) if row[name] else None for name in ("meta", "extra")}
    told |= {"corrected": [other["event_id"] for other in before], "corrected_by": _correction_of(row, events)}
    return {**_plain(row), **told}


def _object(raw_store: RawStore, object_id: str, events: Sequence[Row], refused: Sequence[Row]) -> Row:
    source = events[0] if events else refused[0] if refused else {}
    inline = source.get("modality") in INLINE
    exists = True if inline else raw_store.head(object_id) is not None if source.get("pointer") else False
    return {"id": object_id, **(source.get("pointer") or {}), "inline": inline, "exists": exists}


def _derived(table: Table, object_id: str, row: Row) -> Row:
    made = {name: row[name] for name in _MADE}
    return _plain({"table": table.name, "id": f"{object_id}#{row['step']}.{row['fingerprint']}", **made})


def _vector(row: Row, indexed: int) -> Row:
    """The index has followed every vector before its position."""
    seq = row.pop("seq")
    return _plain({"id": row.pop("chunk_id"), **row, "indexed": seq < indexed})


def _refs(catalog: catalogs.Tables, table: Table, where: RowFilter) -> list[Row]:
    loaded = catalogs.load(catalog, table.name)
    with catalogs.translated(table.name):
        return refs_with_rows(loaded, table.name, where)
