"""Raw store: immutable bytes under a key, kept once.

The port, what both adapters share, and the choice by URI: a directory, or `s3://bucket/prefix`.
Invariant: a key is written once. The same bytes again are a no-op; other bytes are refused and the original stays.
"""

import hashlib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from headwater.domain.pointer import Pointer
from headwater.errors import Conflict, DataFault, InvalidRequest
from headwater.settings import Settings
from headwater.storage.io.s3 import S3Target, is_s3

CHUNK_BYTES: Final = 1 << 20
KEY_BYTES_MAX: Final = 1024  # S3's own limit


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What a store tells about an object without reading it."""

    path: str
    size: int
    modified_at: datetime
    etag: str | None = None
    version_id: str | None = None


class RawStore(Protocol):
    """Twice is once: putting the same bytes under the same key again changes nothing and gives the same pointer.

    Other bytes under a known key raise Conflict. What a put returned is durable; what it did not return is not seen.
    """

    def put_bytes(self, key: str, data: bytes, content_type: str) -> Pointer: ...

    def put_stream(self, key: str, stream: BinaryIO, content_type: str) -> Pointer:
        """Reads the stream to its end, once, in bounded memory."""
        ...

    def get(self, pointer: Pointer) -> bytes:
        """Exactly the bytes the pointer names, or DataFault: MISSING_OBJECT, or CORRUPT where the checksum differs."""
        ...

    def chunks(self, key: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """The object, or a stretch of it, in pieces, unverified; NotFound where there is none.

        Never more than `size` bytes; fewer where the object ends before.
        """
        ...

    def kept_chunks(self, pointer: Pointer) -> Iterator[bytes] | None:
        """The version that the pointer names, in pieces, unverified; None where the store keeps no such version."""
        ...

    def head(self, key: str) -> ObjectStat | None: ...

    def list(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Every object below a prefix of whole parts: `audio`, `audio/acme`."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object's bytes, all versions of them; twice is once. Conflict where a lock holds them."""
        ...

    def is_answering(self) -> bool:
        """Whether it answers us, whatever it refuses: it tells of a name of our own what there is to tell."""
        ...

    def open_local(self, key: str) -> BinaryIO | None:
        """The object as an open file, for a decoder; None where the store is not on this machine."""
        ...


def open_raw_store(uri: str, settings: Settings) -> RawStore:
    """Adapters are imported when chosen: a directory needs no S3 client."""
    part_bytes = settings.whole("raw.part_bytes")
    scheme, separator, rest = uri.partition("://")
    if is_s3(uri):
        from headwater.storage.raw.s3_store import S3RawStore

        return S3RawStore(S3Target.from_settings(uri, settings), part_bytes)
    if separator and scheme != "file":
        raise InvalidRequest(
            f"raw.uri is {uri}, but {scheme} is not known here. Use a directory or s3://bucket/prefix."
        )
    from headwater.storage.raw.directory_store import DirectoryRawStore

    return DirectoryRawStore(Path(rest if separator else uri))


def is_remote(uri: str) -> bool:
    """Whether objects come over a network, where several are fetched at a time."""
    return is_s3(uri)


def checked_key(key: str) -> str:
    """The second lock behind `domain.keys`: a foreign event's key is held to the rules before it is followed."""
    parts = key.split("/")
    sound = all(part not in {"", ".", ".."} for part in parts) and not parts[0].startswith(".")
    plain = "\\" not in key and not any(unicodedata.category(char) in {"Cc", "Cs"} for char in key)
    if not sound or not plain or len(key.encode(errors="replace")) > KEY_BYTES_MAX:
        raise InvalidRequest(
            f"{key[:200]!r} is not a raw key. A key is plain parts joined by '/': audio/acme/2026-01-31/a.wav"
        )
    return key


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


def digest(chunks: Iterator[bytes]) -> tuple[str, int]:
    """SHA-256 and size."""
    hashed, size = hashlib.sha256(), 0
    for chunk in chunks:
        hashed.update(chunk)
        size += len(chunk)
    return hashed.hexdigest(), size


def require_same(key: str, *, stored: tuple[str, int], offered: tuple[str, int]) -> None:
    if stored != offered:
        raise Conflict(
            f"{key} is already stored with other bytes ({stored[1]} bytes, sha256 {stored[0][:12]}…; "
            f"offered {offered[1]} bytes, {offered[0][:12]}…). The original stays; use --id to name this one."
        )


def verified(pointer: Pointer, data: bytes) -> bytes:
    if hashlib.sha256(data).hexdigest() != pointer.checksum:
        raise DataFault("CORRUPT", f"{pointer.path} no longer matches its checksum {pointer.checksum}.")
    return data
