"""Raw objects on S3 and the servers that speak it.

Small objects are one conditional PUT through obstore. Large ones go part by part through boto3 and are completed with
`If-None-Match: *`, which obstore's multipart cannot do: a key is written once; memory holds one part. Whether the
server honours that header is tried out before the first put (`conditional_put`); one that does so for whole objects
only gets large ones whole, from disk.
An answer that got lost is resolved by reading the object back, never by deleting it.
Where the bucket keeps versions, a pointer names one: it is read also after others wrote over it or deleted the
name, and a delete removes them all. Where it locks objects, a delete is refused with the lock's name.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, Literal

import obstore
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from headwater.domain.pointer import Pointer
from headwater.errors import Conflict, DataFault, NotFound
from headwater.storage.io.conditional_put import PROBE, ConditionalPut
from headwater.storage.io.s3 import S3Target
from headwater.storage.io.s3_errors import KEY_TROUBLE, NO_BUCKET, OUT_OF_RANGE, code_of, status_of, translate
from headwater.storage.raw.s3_upload import in_parts, read_part, sent_in_parts, sent_whole
from headwater.storage.raw.store import (
    CHUNK_BYTES,
    ObjectStat,
    checked_key,
    digest,
    require_same,
    verified,
)

PRECONDITION_FAILED: Final = 412
_OWN: Final = f"{PROBE}-own"
_CHECKSUM: Final = "sha256"  # the object's own metadata; only small objects have it, a stream's is known too late


class S3RawStore:
    """A `RawStore` in a bucket, below a prefix."""

    def __init__(self, target: S3Target, part_bytes: int) -> None:
        self._target = target
        self._part_bytes = part_bytes
        with _translated(target.bucket):
            session = target.session()
            self._client = target.client(session)
            self._store = target.store(session)
        self._conditional = ConditionalPut(target, lambda: self._client)

    def put_bytes(self, key: str, data: bytes, content_type: str) -> Pointer:
        offered = hashlib.sha256(data).hexdigest(), len(data)
        with _translated(checked_key(key)):
            try:
                self._look_first(key)
                result = self._create(key, data, {"Content-Type": content_type, _CHECKSUM: offered[0]})
            except AlreadyExistsError:
                return self._same(key, offered, content_type)
        return _pointer(key, offered, content_type, result["e_tag"], result["version"])

    def _look_first(self, key: str) -> None:
        """Where the server would put one object over another: s3.unconditional allows for that."""
        if not self._conditional.is_honoured() and self.head(key) is not None:
            raise AlreadyExistsError(key)

    def _create(self, key: str, data: bytes, attributes: dict[str, str], attempts: int = 3) -> Any:
        """A conditional PUT without an answer, which obstore does not repeat, is repeated where nothing is stored."""
        mode: Literal["create", "overwrite"] = "create" if self._conditional.is_honoured() else "overwrite"
        try:
            return obstore.put(self._store, key, data, attributes=attributes, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PermissionDeniedError, UnauthenticatedError):
            raise
        except BaseError as error:
            # A server may refuse by closing the connection while the bytes are still being sent.
            if self.head(key) is not None:
                raise AlreadyExistsError(str(error)) from error
            if attempts <= 1:
                raise
        return self._create(key, data, attributes, attempts - 1)

    def put_stream(self, key: str, stream: BinaryIO, content_type: str) -> Pointer:
        first = read_part(stream, self._part_bytes)
        if len(first) < self._part_bytes:
            return self.put_bytes(key, first, content_type)
        with _translated(checked_key(key)):
            parts = in_parts(first, stream, self._part_bytes)
            if self.head(key) is None:
                return self._put_large(key, parts, content_type)
            return self._same(key, digest(parts), content_type)

    def get(self, pointer: Pointer) -> bytes:
        with _translated(checked_key(pointer.path)):
            try:
                return verified(pointer, self._current(pointer))
            except DataFault:
                # Somebody wrote over it, or deleted its name. The version is asked for only then: a lake that was
                # moved here names versions of the store that it came from.
                if pointer.version_id is None or (kept := self._version(pointer)) is None:
                    raise
            return verified(pointer, kept)

    def _current(self, pointer: Pointer) -> bytes:
        try:
            found = self._opened(pointer.path, pointer.offset, pointer.size)
            # A foreign event may claim any size; ask the store before memory is set aside for it.
            if found is None or found.meta["size"] < pointer.offset + pointer.size:
                raise DataFault("CORRUPT", f"{pointer.path} is shorter than its {pointer.size} bytes.")
            return bytes(found.bytes()) if pointer.size else b""
        except NotFound as error:
            raise DataFault("MISSING_OBJECT", str(error)) from None

    def _opened(self, key: str, offset: int, size: int | None) -> Any:
        """What is stored there now, or a stretch of it, unread; None where the stretch begins behind the end."""
        # An empty stretch cannot be asked for: then the answer is that of the whole, of which nothing is read.
        span: Any = {"range": (offset, offset + size)} if size else {}
        try:
            return obstore.get(self._store, key, options=span)
        except FileNotFoundError as error:
            if code_of(error) == NO_BUCKET:
                raise translate(error, key) from error
            raise NotFound(f"{key} is not in {self._place}.") from None
        except BaseError as error:
            if code_of(error) == OUT_OF_RANGE:
                return None
            raise

    def _version(self, pointer: Pointer) -> bytes | None:
        kept = self._kept(pointer)
        return bytes(kept.read()) if kept else None

    def kept_chunks(self, pointer: Pointer) -> Iterator[bytes] | None:
        with _translated(checked_key(pointer.path)):
            kept = self._kept(pointer) if pointer.version_id else None
        return _read_on(kept, pointer.path) if kept else None

    def _kept(self, pointer: Pointer) -> Any:
        """The body of the version; None where the store has no such version, or does not know what one is."""
        span = f"bytes={pointer.offset}-{pointer.offset + pointer.size - 1}"
        try:
            found = self._client.get_object(**self._address(pointer.path), VersionId=pointer.version_id, Range=span)
        except ClientError as error:
            if status_of(error) in {400, 404, 405, 416} and code_of(error) not in KEY_TROUBLE:
                return None
            raise
        return found["Body"]

    def chunks(self, key: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        with _translated(checked_key(key)):
            found = self._opened(key, offset, size)
            if found is not None and size != 0:
                for chunk in found.stream(min_chunk_size=CHUNK_BYTES):
                    yield bytes(chunk)

    def head(self, key: str) -> ObjectStat | None:
        with _translated(checked_key(key)):
            try:
                return _stat_of(obstore.head(self._store, key))
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "") -> Iterator[ObjectStat]:
        with _translated(prefix):
            for page in obstore.list(self._store, prefix=checked_key(prefix) if prefix else None):
                yield from (_stat_of(found) for found in page if not str(found["path"]).startswith(PROBE))

    def delete(self, key: str) -> None:
        address = self._address(checked_key(key))
        with _translated(key):
            for version in list(self._versions(address)):
                try:
                    self._client.delete_object(**address, VersionId=version)
                except ClientError as error:
                    if "object lock" in str(error):
                        raise Conflict(self._locked(key, {**address, "VersionId": version})) from error
                    raise

    def is_answering(self) -> bool:
        """A server that does not know us says so of any name. One that knows us and does not let us list says the same
        of a name that is not there: there an object is left, of a name that nobody else's has, and asked for."""
        for attempt in (self._read_own, self._put_own, self._read_own):
            try:
                attempt()
            except FileNotFoundError as error:
                return code_of(error) != NO_BUCKET
            except (PermissionDeniedError, UnauthenticatedError):
                continue
            except BaseError:
                return False
            if attempt == self._read_own:
                return True
        return False

    def _read_own(self) -> None:
        obstore.get(self._store, _OWN).bytes()

    def _put_own(self) -> None:
        obstore.put(self._store, _OWN, b"headwater", use_multipart=False)

    def open_local(self, key: str) -> BinaryIO | None:
        return None

    @property
    def _place(self) -> str:
        return self._target.uri

    def _address(self, key: str) -> dict[str, str]:
        return {"Bucket": self._target.bucket, "Key": "/".join(filter(None, (self._target.prefix, key)))}

    def _versions(self, address: dict[str, str]) -> Iterator[str]:
        """Delete markers too; a bucket that keeps no versions tells of one, called null."""
        pages = self._client.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=address["Bucket"], Prefix=address["Key"]):
            for found in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                if found["Key"] == address["Key"]:
                    yield found["VersionId"]

    def _locked(self, key: str, which: dict[str, str]) -> str:
        """What holds it, as far as the server tells: one that locks by the bucket's default may say nothing here."""
        until, held = "", ""
        with suppress(ClientError, BotoCoreError):
            found = self._client.get_object_retention(**which)["Retention"]
            until = f" ({found['Mode'].lower()} until {found['RetainUntilDate']:%Y-%m-%d %H:%M} UTC)"
        with suppress(ClientError, BotoCoreError):
            on = self._client.get_object_legal_hold(**which)["LegalHold"]["Status"] == "ON"
            held = ", with a legal hold" if on else ""
        return f"{key} is under object lock in {self._place}{until}{held}. Delete it when the lock has ended."

    def _same(self, key: str, offered: tuple[str, int], content_type: str) -> Pointer:
        """The key is taken: a no-op for the same bytes, a Conflict for others."""
        try:
            found = obstore.get(self._store, key)
        except FileNotFoundError:
            # A server may count what a delete marker hides; AWS does not, and the put is a new version there.
            raise Conflict(
                f"{key} was written before and deleted since; {self._place} still has its versions. "
                "Remove the delete marker, or use --id to name this one."
            ) from None
        known = found.attributes.get(_CHECKSUM)
        stored = (known, found.meta["size"]) if known else digest(bytes(c) for c in found.stream())
        require_same(key, stored=stored, offered=offered)
        return _pointer(key, offered, content_type, found.meta["e_tag"], found.meta["version"])

    def _put_large(self, key: str, parts: Iterator[bytes], content_type: str) -> Pointer:
        honoured = self._conditional.is_honoured()
        sent = sent_whole if honoured and not self._conditional.is_honoured_in_parts() else sent_in_parts
        condition = {"IfNoneMatch": "*"} if honoured else {}
        with sent(self._client, self._address(key), content_type, parts, condition) as (offered, finish):
            try:
                done = finish()
            except (ClientError, BotoCoreError) as error:
                # Lost the race, or won it and never heard: what is there now decides.
                if self.head(key) is None and _status(error) != PRECONDITION_FAILED:
                    raise
                return self._same(key, offered, content_type)
        return _pointer(key, offered, content_type, done.get("ETag"), done.get("VersionId"))


def _pointer(
    key: str, offered: tuple[str, int], content_type: str, etag: str | None, version_id: str | None
) -> Pointer:
    version_id = None if version_id == "null" else version_id  # how a bucket without versions spells it
    etag = etag.strip('"') if etag else None
    return Pointer(key, offered[1], content_type, offered[0], version_id=version_id, etag=etag)


def _stat_of(found: Any) -> ObjectStat:
    etag = found["e_tag"].strip('"') if found["e_tag"] else None
    return ObjectStat(found["path"], found["size"], found["last_modified"], etag, found["version"])


def _read_on(body: Any, key: str) -> Iterator[bytes]:
    with _translated(key):
        while chunk := body.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """The one place where two SDKs' errors become ours."""
    try:
        yield
    except (BaseError, FileNotFoundError, ClientError, BotoCoreError, ValueError) as error:
        raise translate(error, key) from error


def _status(error: Exception) -> int | None:
    """What the server answered, where boto3 heard an answer."""
    return status_of(error) if isinstance(error, ClientError) else None
