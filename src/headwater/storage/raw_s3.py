"""Raw objects on S3 and the servers that speak it.

Small objects are one conditional PUT through obstore. Large ones go part by part through boto3 and are completed with
`If-None-Match: *`, which obstore's multipart cannot do: a key is written once; memory holds one part.
An answer that got lost is resolved by reading the object back, never by deleting it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import obstore
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from headwater.domain.pointer import Pointer
from headwater.errors import DataFault, HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.storage.raw_store import (
    CHUNK_BYTES,
    ObjectStat,
    checked_key,
    digest,
    read_chunks,
    require_same,
    verified,
)
from headwater.storage.s3 import S3Target

Parts = list[dict[str, Any]]
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

    def put_bytes(self, key: str, data: bytes, content_type: str) -> Pointer:
        offered = hashlib.sha256(data).hexdigest(), len(data)
        with _translated(checked_key(key)):
            try:
                result = self._create(key, data, {"Content-Type": content_type, _CHECKSUM: offered[0]})
            except AlreadyExistsError:
                return self._same(key, offered, content_type)
        return _pointer(key, offered, content_type, result["e_tag"], result["version"])

    def _create(self, key: str, data: bytes, attributes: dict[str, str], attempts: int = 3) -> Any:
        """A conditional PUT without an answer, which obstore does not repeat, is repeated where nothing is stored."""
        try:
            return obstore.put(self._store, key, data, attributes=attributes, mode="create", use_multipart=False)
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
        first = _read_part(stream, self._part_bytes)
        if len(first) < self._part_bytes:
            return self.put_bytes(key, first, content_type)
        with _translated(checked_key(key)):
            if self.head(key) is None:
                return self._put_parts(key, first, stream, content_type)
            return self._same(key, digest(_rest(first, stream)), content_type)

    def get(self, pointer: Pointer) -> bytes:
        with _translated(checked_key(pointer.path)):
            try:
                # A foreign event may claim any size; ask the store before memory is set aside for it.
                found = obstore.head(self._store, pointer.path)
                if found["size"] < pointer.offset + pointer.size:
                    raise DataFault("CORRUPT", f"{pointer.path} is shorter than its {pointer.size} bytes.")
                span = {"start": pointer.offset, "length": pointer.size}
                data = bytes(obstore.get_range(self._store, pointer.path, **span)) if pointer.size else b""
            except FileNotFoundError:
                raise DataFault("MISSING_OBJECT", f"{pointer.path} is not in {self._place}.") from None
        return verified(pointer, data)

    def chunks(self, key: str) -> Iterator[bytes]:
        with _translated(checked_key(key)):
            try:
                found = obstore.get(self._store, key)
            except FileNotFoundError:
                raise NotFound(f"{key} is not in {self._place}.") from None
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
                yield from map(_stat_of, page)

    def local_path(self, key: str) -> Path | None:
        return None

    @property
    def _place(self) -> str:
        return self._target.uri

    def _same(self, key: str, offered: tuple[str, int], content_type: str) -> Pointer:
        """The key is taken: a no-op for the same bytes, a Conflict for others."""
        found = obstore.get(self._store, key)
        known = found.attributes.get(_CHECKSUM)
        stored = (known, found.meta["size"]) if known else digest(bytes(c) for c in found.stream())
        require_same(key, stored=stored, offered=offered)
        return _pointer(key, offered, content_type, found.meta["e_tag"], found.meta["version"])

    def _put_parts(self, key: str, first: bytes, stream: BinaryIO, content_type: str) -> Pointer:
        where = {"Bucket": self._target.bucket, "Key": "/".join(filter(None, (self._target.prefix, key)))}
        upload = {
            **where,
            "UploadId": self._client.create_multipart_upload(**where, ContentType=content_type)["UploadId"],
        }
        try:
            parts, offered = self._upload_parts(upload, first, stream)
        except BaseException:
            self._abort(upload)
            raise
        try:
            done = self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        except (ClientError, BotoCoreError):
            # Lost the race, or won it and never heard: what is there now decides.
            if self.head(key) is None:
                self._abort(upload)
                raise
            pointer = self._same(key, offered, content_type)
            self._abort(upload)
            return pointer
        return _pointer(key, offered, content_type, done.get("ETag"), done.get("VersionId"))

    def _upload_parts(self, upload: dict[str, str], first: bytes, stream: BinaryIO) -> tuple[Parts, tuple[str, int]]:
        hashed, size, part = hashlib.sha256(), 0, first
        parts: Parts = []
        while part:
            hashed.update(part)
            size += len(part)
            number = len(parts) + 1
            answer = self._client.upload_part(**upload, PartNumber=number, Body=part)
            parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            part = _read_part(stream, self._part_bytes)
        return parts, (hashed.hexdigest(), size)

    def _abort(self, upload: dict[str, str]) -> None:
        """Parts that are never completed cost money but are seen by nobody; a failed abort changes nothing."""
        with suppress(ClientError, BotoCoreError):
            self._client.abort_multipart_upload(**upload)


def _read_part(stream: BinaryIO, size: int) -> bytes:
    """A pipe may give less than asked for; a part must be full unless it is the last."""
    pieces, missing = [], size
    while missing and (piece := stream.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _rest(first: bytes, stream: BinaryIO) -> Iterator[bytes]:
    yield first
    yield from read_chunks(stream)


def _pointer(
    key: str, offered: tuple[str, int], content_type: str, etag: str | None, version_id: str | None
) -> Pointer:
    version_id = None if version_id == "null" else version_id  # how a bucket without versions spells it
    etag = etag.strip('"') if etag else None
    return Pointer(key, offered[1], content_type, offered[0], version_id=version_id, etag=etag)


def _stat_of(found: Any) -> ObjectStat:
    etag = found["e_tag"].strip('"') if found["e_tag"] else None
    return ObjectStat(found["path"], found["size"], found["last_modified"], etag, found["version"])


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """The one place where two SDKs' errors become ours."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise InvalidRequest(
            f"S3 refused access to {key}. Check s3.access_key, s3.secret_key and the policy."
        ) from error
    except (BaseError, FileNotFoundError, ClientError, BotoCoreError, ValueError) as error:
        raise _translation(error, key) from error


def _translation(error: Exception, key: str) -> HeadwaterError:
    if isinstance(error, ClientError) and error.response["ResponseMetadata"].get("HTTPStatusCode") in {401, 403}:
        return InvalidRequest(f"S3 refused access to {key}. Check s3.access_key, s3.secret_key and the policy.")
    said = str(error).partition("\n")[0][:300]
    return Unavailable(f"S3 failed at {key}: {said}. Check s3.endpoint and the bucket, then try again.")
