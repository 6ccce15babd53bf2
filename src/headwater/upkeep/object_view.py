"""Object view: an object as one looks at it: its bytes to read in stretches, and what every model made of it.

Reads   every table, by object; raw store; the ledger's labels; starts no JVM
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headwater.domain.modality import INLINE
from headwater.domain.pointer import Pointer
from headwater.domain.ref import Ref
from headwater.domain.tables import METADATA, TEXT_TABLES
from headwater.storage.query.plain_rows import to_plain
from headwater.storage.raw.store import RawStore
from headwater.storage.tables.catalog import Tables
from headwater.upkeep.labels import shown_labels
from headwater.upkeep.lineage import find_event, look_up
from headwater.upkeep.parts import Parts

_MADE: Final = ("step", "model", "fingerprint", "derived_at")
_TEXT: Final = ("text", "language", "confidence", "segments", "model_seconds", "tokens", "cost", "attempts")
_MEASURED: Final = (
    "size", "duration_ms", "width", "height", "pages", "channels", "sample_rate", "codec", "tier",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ObjectBytes:
    """The raw bytes of an object, to be read from anywhere on. `customer` says whose they are."""

    id: str
    customer: str
    modality: str
    pointer: Pointer
    size: int
    _store: RawStore
    _text: bytes | None = None

    @property
    def content_type(self) -> str:
        return self.pointer.content_type or ""

    @property
    def checksum(self) -> str:
        return self.pointer.checksum or ""

    def read(self, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """A stretch of them, in pieces, unverified: a whole object is verified by `lake.get`."""
        if self._text is not None:
            end = None if size is None else offset + size
            return iter([self._text[offset:end]])
        begin = self.pointer.offset + offset
        return self._store.chunks(self.pointer.path, begin, self.size - offset if size is None else size)


def open_object(catalog: Tables, raw_store: RawStore, name: str, customer: str | None = None) -> ObjectBytes:
    """NotFound where nothing bears that id, of that customer if one is named."""
    first = find_event(catalog, name, customer)
    pointer = Pointer.from_dict(first["pointer"])
    text = (first["text"] or "").encode() if first["modality"] in INLINE else None
    size = len(text) if text is not None else int(pointer.size or 0)
    return ObjectBytes(first["object_id"], first["customer"], first["modality"], pointer, size, raw_store, text)


def view_object(parts: Parts, name: str, customer: str | None, as_of: Ref | None = None) -> dict[str, Any]:
    """What `trace` tells but what holds the rows, with `metadata` and `texts`: a line for each model, `active` where
    readers see it."""
    columns = {METADATA: _MEASURED, **dict.fromkeys(TEXT_TABLES, _TEXT)}
    told, rows = look_up(
        parts.reader, parts.index, parts.raw_store, name, as_of, customer, columns=columns, with_refs=False
    )
    found = told.to_dict()
    del found["refs"]
    hidden = parts.book().hidden()
    texts = [
        {"table": table.short_name, "active": row["fingerprint"] not in hidden, **_plain(row, (*_MADE, *_TEXT))}
        for table in TEXT_TABLES
        for row in rows[table]
    ]
    texts.sort(key=lambda row: (row["table"], not row["active"], row["model"]))
    measured = [_plain(row, _MEASURED) for row in rows[METADATA] if row["fingerprint"] not in hidden]
    measured = measured or [_plain(row, _MEASURED) for row in rows[METADATA]]
    return {
        **found,
        "labels": shown_labels(parts.ledger, found["object"]["id"]),
        "metadata": {name: value for name, value in measured[-1].items() if value is not None} if measured else {},
        "texts": texts,
        "cost": {
            "model_seconds": round(sum(row["model_seconds"] or 0.0 for row in texts), 3),
            "tokens": sum(row["tokens"] or 0 for row in texts),
            "money": sum(row["cost"] or 0.0 for row in texts),
            "bytes": found["object"].get("size"),
        },
    }


def _plain(row: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {name: to_plain(row[name]) for name in columns}
