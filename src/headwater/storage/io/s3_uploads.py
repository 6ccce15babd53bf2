"""Uploads in parts that nobody completed: what a writer that was killed left in a bucket, unseen by all but the bill.

Every library that writes large files there leaves some: raw objects, Spark's tasks, LanceDB. A writer that fails gives
its own up by itself. What is old and in a lake's places is given up here; a bucket's lifecycle rule does the same.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from headwater import telemetry
from headwater.errors import Unavailable
from headwater.settings import Settings
from headwater.storage.io.s3 import S3Target, is_s3

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

PLACES: Final = ("raw.uri", "catalog.warehouse", "index.uri", "memo.uri")
_REFUSED: Final = {401, 403, 405, 501}  # not ours to list or to give up, or a server without


@dataclass(frozen=True, slots=True, order=True)
class Upload:
    """One that was begun and not completed."""

    bucket: str
    key: str
    id: str


def abandoned_uploads(settings: Settings, *, begun_before: datetime) -> tuple[Upload, ...]:
    """In all places of the lake that are on S3; writes nothing. Where listing is refused none are told of."""
    found = {
        upload
        for name in PLACES
        if is_s3(settings.text(name))
        for upload in _list(S3Target.from_settings(settings.text(name), settings, name), begun_before)
    }
    return tuple(sorted(found))


def give_up(settings: Settings, uploads: Sequence[Upload]) -> int:
    """How many; one that is gone already counts as given up, and one that our key may not give up does not."""
    done = 0
    for bucket, some in groupby(uploads, key=lambda upload: upload.bucket):
        target = S3Target.from_settings(f"s3://{bucket}", settings)
        with _translated(bucket):
            client = target.client(target.session())
            answers = [_abort(client, upload) for upload in some]
        refused = [error for error in answers if error is not None]
        done += len(answers) - len(refused)
        if refused:
            _warn_of_refusal(refused[0], len(refused))
    return done


def _list(target: S3Target, begun_before: datetime) -> Iterator[Upload]:
    from botocore.exceptions import ClientError

    prefix = f"{target.prefix}/" if target.prefix else ""
    with _translated(target.uri):
        pages = target.client(target.session()).get_paginator("list_multipart_uploads")
        try:
            for page in pages.paginate(Bucket=target.bucket, Prefix=prefix):
                for found in page.get("Uploads", ()):
                    if found["Initiated"] < begun_before:
                        yield Upload(target.bucket, found["Key"], found["UploadId"])
        except ClientError as error:
            if not _is_refused(error):
                raise
            _warn_of_refusal(error)


def _abort(client: Any, upload: Upload) -> "ClientError | None":
    """The error where our key has no right to it: what else there is to maintain does not wait for one."""
    from botocore.exceptions import ClientError

    try:
        client.abort_multipart_upload(Bucket=upload.bucket, Key=upload.key, UploadId=upload.id)
    except ClientError as error:
        if _is_refused(error):
            return error
        if error.response.get("Error", {}).get("Code") != "NoSuchUpload":
            raise
    return None


def _is_refused(error: "ClientError") -> bool:
    return error.response["ResponseMetadata"].get("HTTPStatusCode") in _REFUSED


def _warn_of_refusal(error: "ClientError", uploads: int | None = None) -> None:
    """`uploads` is how many of them; None where they could not even be listed."""
    telemetry.note("maintain.skipped", level="warning", table="uploads", uploads=uploads, detail=str(error))


@contextmanager
def _translated(place: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        message = str(error).partition("\n")[0][:300]
        raise Unavailable(f"Uploads to {place} could not be looked after: {message}. Try again.") from error
