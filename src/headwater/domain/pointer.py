"""A pointer: where bytes are and what they hash to, in the field names of Parquet's FILE type."""

from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Pointer:
    """`checksum` is the SHA-256 of the bytes in lower-case hex; it is the memo's key, not an identity."""

    path: str
    size: int
    content_type: str
    checksum: str
    offset: int = 0
    version_id: str | None = None
    etag: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """A foreign event need not say of what type its object is."""
        given = {name: fields[name] for name in cls.__slots__ if fields.get(name) is not None}
        return cls(**{"content_type": "", **given})


POINTER_TYPE = pa.struct(
    [
        pa.field("path", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("content_type", pa.string()),
        pa.field("checksum", pa.string()),
        pa.field("version_id", pa.string()),
        pa.field("etag", pa.string()),
    ]
)
