"""Conditional puts: whether an S3 server honours `If-None-Match: *`, tried out once a process for each bucket.

Raw objects are written once, and LanceDB commits a version, by a request that the server is to refuse where the key is
taken. A server that ignores the header answers as if it had agreed, and what was there is gone. So a small object of a
reserved name is put twice before the first write: the second must be refused. Nothing of it stays.
Some servers honour the header for whole objects and not for those that come in parts; that is tried out apart, by who
writes in parts. Importing this imports no SDK.
"""

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from headwater.errors import InvalidRequest, Unavailable
from headwater.storage.io.s3 import S3Target

# No raw key begins with a dot: nobody's object is in the way, and no listing of raw objects shows it.
PROBE: Final = ".headwater-probe"
_TAKEN: Final = {409, 412}  # AWS answers 409 where two come at the same moment
_UNKNOWN: Final = ("NotImplemented", "InvalidArgument")  # who knows the header, and that it cannot heed it
_found: dict[tuple[str, str, str], bool] = {}
_lock: Final = threading.Lock()
Made = list[str | None]  # versions that came of trying


class ConditionalPut:
    """What a bucket's server does with the header. `setting` names the place that is written to, for the refusal."""

    def __init__(self, target: S3Target, client: Callable[[], Any], setting: str = "raw.uri") -> None:
        self._target = target
        self._client = client
        self._setting = setting

    def is_honoured(self) -> bool:
        """False only where `s3.unconditional` allows it: else a server that ignores the header is an InvalidRequest.

        Errors of the SDK are the caller's to translate.
        """
        if self._known("whole", self._refuses_second):
            return True
        if self._target.unconditional:
            return False
        raise InvalidRequest(
            f"The S3 server of {self._setting} ignores If-None-Match: what is stored could be replaced unseen. Nothing"
            " was written. Use a server that honours it, or set s3.unconditional = true: then it is looked for before"
            " each put, and of two that are put under one name at the same moment the later replaces the other."
        )

    def is_honoured_in_parts(self) -> bool:
        """Whether an upload that comes in parts can be completed on the same condition."""
        return self._known("parts", self._refuses_parts)

    def _known(self, kind: str, refuses: Callable[[Any, str], bool]) -> bool:
        place = (kind, self._target.endpoint, self._target.bucket)
        with _lock:
            if place not in _found:
                client = self._client()
                # One who tries it out at the same time may take our object away between two requests. A name that
                # nobody else has then decides.
                names = (PROBE, f"{PROBE}-{uuid.uuid4().hex}")
                _found[place] = self._is_locked(client) or any(refuses(client, name) for name in names)
        return _found[place]

    def _is_locked(self, client: Any) -> bool:
        """Where every object is locked none can be replaced, and what is put to try it out would stay for years."""
        from botocore.exceptions import ClientError

        with suppress(ClientError):
            answer = client.get_object_lock_configuration(Bucket=self._target.bucket)
            return "DefaultRetention" in answer["ObjectLockConfiguration"].get("Rule", {})
        return False

    def _refuses_second(self, client: Any, name: str) -> bool:
        made: Made = []
        try:
            return not (self._create(client, name, made) and self._create(client, name, made))
        finally:
            self._remove(client, name, made)

    def _refuses_parts(self, client: Any, name: str) -> bool:
        made: Made = []
        address = self._address(name)
        self._create(client, name, made)
        upload = {**address, "UploadId": client.create_multipart_upload(**address)["UploadId"]}
        try:
            tag = client.upload_part(**upload, PartNumber=1, Body=b"headwater")["ETag"]
            parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
            complete = client.complete_multipart_upload
            return not _is_done(lambda: complete(**upload, MultipartUpload=parts, IfNoneMatch="*"), made)
        finally:
            with suppress(*_errors()):
                client.abort_multipart_upload(**upload)
            self._remove(client, name, made)

    def _create(self, client: Any, name: str, made: Made) -> bool:
        return _is_done(lambda: client.put_object(**self._address(name), Body=b"headwater", IfNoneMatch="*"), made)

    def _remove(self, client: Any, name: str, made: Made) -> None:
        """What this made, by version. Who may write and not delete leaves one small object."""
        for version in made:
            with suppress(*_errors()):
                client.delete_object(**self._address(name), **({"VersionId": version} if version else {}))

    def _address(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._target.bucket, "Key": "/".join(filter(None, (self._target.prefix, name)))}


def require_conditional_put(target: S3Target | None, setting: str) -> None:
    """For who leaves the conditions to a library; nothing where the place is a directory."""
    if target is None:
        return
    try:
        ConditionalPut(target, lambda: target.client(target.session()), setting).is_honoured()
    except _errors() as error:
        message = str(error).partition("\n")[0][:300]
        raise Unavailable(
            f"The S3 server of {setting} did not answer: {message}. Check s3.endpoint, try again."
        ) from error


def _is_done(request: Callable[[], Any], made: Made) -> bool:
    """Whether the server did what was asked on the condition, or something else instead of refusing it."""
    from botocore.exceptions import ClientError

    try:
        answer = request()
    except ClientError as error:
        if error.response["ResponseMetadata"].get("HTTPStatusCode") in _TAKEN:
            return False
        if error.response.get("Error", {}).get("Code") in _UNKNOWN:
            return True
        raise
    made.append(answer.get("VersionId"))
    return True


def _errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError

    return ClientError, BotoCoreError
