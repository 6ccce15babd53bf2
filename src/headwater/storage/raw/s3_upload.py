"""A large object on its way to S3, which nobody sees before its last request: in parts, or whole from disk.

In parts memory holds one of them. Whole is for servers that heed a condition on whole objects only. Either way the
bytes are sent first, and only then is the key taken, by one request that the caller makes and whose outcome it settles.
What does not come to an end is given up: parts that nobody completes cost money, and nobody sees them.
"""

import base64
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final

from botocore.exceptions import BotoCoreError, ClientError

from headwater.errors import InvalidRequest

WHOLE_BYTES_MAX: Final = 5 << 30  # S3's own limit for one request
Offered = tuple[str, int]  # SHA-256 and size
Address = dict[str, str]  # bucket and key
Finish = Callable[[], Any]


@contextmanager
def sent_in_parts(
    client: Any, address: Address, content_type: str, parts: Iterator[bytes], condition: dict[str, str]
) -> Iterator[tuple[Offered, Finish]]:
    """What was offered, and the request that makes an object of it; without that nothing is left."""
    upload = {**address, "UploadId": client.create_multipart_upload(**address, ContentType=content_type)["UploadId"]}
    finished = False

    def finish() -> Any:
        nonlocal finished
        answer = client.complete_multipart_upload(**upload, MultipartUpload={"Parts": sent}, **condition)
        finished = True
        return answer

    try:
        sent, offered = _send(client, upload, parts)
        yield offered, finish
    finally:
        if not finished:
            with suppress(ClientError, BotoCoreError):  # what is left of it maintenance gives up
                client.abort_multipart_upload(**upload)


def _send(client: Any, upload: Address, parts: Iterator[bytes]) -> tuple[list[dict[str, Any]], Offered]:
    hashed, size = hashlib.sha256(), 0
    sent: list[dict[str, Any]] = []
    for number, part in enumerate(parts, start=1):
        hashed.update(part)
        size += len(part)
        # A bucket that locks objects takes no part without a checksum; this one every server knows.
        md5 = _base64(hashlib.md5(part, usedforsecurity=False))
        answer = client.upload_part(**upload, PartNumber=number, Body=part, ContentMD5=md5)
        sent.append({"PartNumber": number, "ETag": answer["ETag"]})
    return sent, (hashed.hexdigest(), size)


@contextmanager
def sent_whole(
    client: Any, address: Address, content_type: str, parts: Iterator[bytes], condition: dict[str, str]
) -> Iterator[tuple[Offered, Finish]]:
    """The same in one request, whose length and checksum must be known before: it waits on disk until they are."""
    hashed, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with tempfile.TemporaryFile() as file:
        for part in parts:
            hashed.update(part)
            md5.update(part)
            size += file.write(part)
        if size > WHOLE_BYTES_MAX:
            raise InvalidRequest(
                f"{address['Key']} has {size} bytes. This server honours If-None-Match for whole objects only, and"
                f" those have at most {WHOLE_BYTES_MAX}. Use a server that honours it for uploads in parts too."
            )
        file.seek(0)
        checked = {"ContentType": content_type, "ContentMD5": _base64(md5), **condition}
        yield (hashed.hexdigest(), size), lambda: client.put_object(**address, Body=file, **checked)


def in_parts(first: bytes, stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The stream, of which `first` was read already, in parts that are full unless they are the last."""
    part = first
    while part:
        yield part
        part = read_part(stream, size)


def read_part(stream: BinaryIO, size: int) -> bytes:
    """A pipe may give less than asked for."""
    pieces, missing = [], size
    while missing and (piece := stream.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _base64(hashed: Any) -> str:
    return base64.b64encode(hashed.digest()).decode()
