"""Raw objects on S3 and the servers that speak it.

Small objects are one conditional PUT through obstore. Large ones go part by part through boto3 and are completed with
`If-None-Match: *`, which obstore's multipart cannot do: a key is written once; memory holds one part.
An answer that got lost is resolved by reading the object back, never by deleting it.
Where the bucket keeps versions, a pointer names one: it is read also after others wrote over it or deleted the
name, and a delete removes them all. Where it locks objects, a delete is refused with the lock's name.
"""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import obstore
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from headwater.domain.pointer import Pointer
from headwater.errors import AccessRefused, Conflict, DataFault, HeadwaterError, NotFound, Unavailable
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
PRECONDITION_FAILED: Final = 412
_KEY_TROUBLE: Final = (
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidToken",
    "RequestExpired",
    "RequestTimeTooSkewed",
)
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
                return verified(pointer, self._current(pointer))
            except DataFault:
                # Somebody wrote over it, or deleted its name. The version is asked for only then: a lake that was
                # moved here names versions of the store that it came from.
                if pointer.version_id is None or (kept := self._version(pointer)) is None:
                    raise
            return verified(pointer, kept)

    def _current(self, pointer: Pointer) -> bytes:
        try:
            # A foreign event may claim any size; ask the store before memory is set aside for it.
            found = obstore.head(self._store, pointer.path)
            if found["size"] < pointer.offset + pointer.size:
                raise DataFault("CORRUPT", f"{pointer.path} is shorter than its {pointer.size} bytes.")
            span = {"start": pointer.offset, "length": pointer.size}
            return bytes(obstore.get_range(self._store, pointer.path, **span)) if pointer.size else b""
        except FileNotFoundError:
            raise DataFault("MISSING_OBJECT", f"{pointer.path} is not in {self._place}.") from None

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
            found = self._client.get_object(**self._where(pointer.path), VersionId=pointer.version_id, Range=span)
        except ClientError as error:
            if _status(error) in {400, 404, 405, 416} and not _is_about_key(error):
                return None
            raise
        return found["Body"]

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

    def delete(self, key: str) -> None:
        where = self._where(checked_key(key))
        with _translated(key):
            for version in list(self._versions(where)):
                try:
                    self._client.delete_object(**where, VersionId=version)
                except ClientError as error:
                    if "object lock" in str(error):
                        raise Conflict(self._locked(key, {**where, "VersionId": version})) from error
                    raise

    def local_path(self, key: str) -> Path | None:
        return None

    @property
    def _place(self) -> str:
        return self._target.uri

    def _where(self, key: str) -> dict[str, str]:
        return {"Bucket": self._target.bucket, "Key": "/".join(filter(None, (self._target.prefix, key)))}

    def _versions(self, where: dict[str, str]) -> Iterator[str]:
        """Delete markers too; a bucket that keeps no versions tells of one, called null."""
        pages = self._client.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=where["Bucket"], Prefix=where["Key"]):
            for found in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                if found["Key"] == where["Key"]:
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

    def _put_parts(self, key: str, first: bytes, stream: BinaryIO, content_type: str) -> Pointer:
        where = self._where(key)
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
        except (ClientError, BotoCoreError) as error:
            # Lost the race, or won it and never heard: what is there now decides.
            try:
                if self.head(key) is None and _status(error) != PRECONDITION_FAILED:
                    raise
                return self._same(key, offered, content_type)
            finally:
                self._abort(upload)
        return _pointer(key, offered, content_type, done.get("ETag"), done.get("VersionId"))

    def _upload_parts(self, upload: dict[str, str], first: bytes, stream: BinaryIO) -> tuple[Parts, tuple[str, int]]:
        hashed, size, part = hashlib.sha256(), 0, first
        parts: Parts = []
        while part:
            hashed.update(part)
            size += len(part)
            number = len(parts) + 1
            answer = self._client.upload_part(**upload, PartNumber=number, Body=part, ContentMD5=_md5(part))
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


def _md5(part: bytes) -> str:
    """A bucket that locks objects takes no part without a checksum; this one every server knows."""
    return base64.b64encode(hashlib.md5(part, usedforsecurity=False).digest()).decode()


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


def _read_on(body: Any, key: str) -> Iterator[bytes]:
    with _translated(key):
        while chunk := body.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """The one place where two SDKs' errors become ours."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise _refused(key) from error
    except (BaseError, FileNotFoundError, ClientError, BotoCoreError, ValueError) as error:
        raise _translation(error, key) from error


def _status(error: Exception) -> int | None:
    """What the server answered, where boto3 heard an answer."""
    return error.response["ResponseMetadata"].get("HTTPStatusCode") if isinstance(error, ClientError) else None


def _is_about_key(error: Exception) -> bool:
    """Some refusals come as a bad request."""
    return isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") in _KEY_TROUBLE


def _refused(key: str) -> AccessRefused:
    return AccessRefused(f"S3 refused access to {key}. Check s3.access_key, s3.secret_key and the policy.")


def _translation(error: Exception, key: str) -> HeadwaterError:
    if _status(error) in {401, 403} or _is_about_key(error):
        return _refused(key)
    said = str(error).partition("\n")[0][:300]
    return Unavailable(f"S3 failed at {key}: {said}. Check s3.endpoint and the bucket, then try again.")
