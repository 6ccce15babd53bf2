"""Uploads: files that were sent, put as if they had been named on the command line.

What is sent is on disk before anything is stored, under the name that it had there, and gone afterwards.
"""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from fastapi import UploadFile

from headwater.errors import InvalidRequest
from headwater.lake import Lake

if TYPE_CHECKING:
    from headwater.flow.landed import Landed

_NAME_LETTERS: Final = 200


def put_uploads(
    lake: Lake,
    files: Sequence[UploadFile],
    text: str | None,
    *,
    customer: str,
    id: str | None,
    thread: str | None,
    check: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """One result for each file, or for the text; one that failed is a result. `check` is told a digest of all that was
    sent, before any of it is stored."""
    digest = hashlib.sha256(repr((customer, id, thread, text)).encode())
    check = check or (lambda _: None)
    if text:
        if files:
            raise InvalidRequest("Send files or a text, not both.")
        check(digest.hexdigest())
        return [_told(lake.put_text(text, customer=customer, id=id, thread=thread))]
    if not files:
        raise InvalidRequest("Put what? Send files, or a text.")
    with tempfile.TemporaryDirectory(prefix="headwater-upload-") as place:
        names = [_keep(file, Path(place, str(number)), digest) for number, file in enumerate(files)]
        check(digest.hexdigest())
        only = id if len(files) == 1 else None
        return [_told(landed) for landed in lake.put(*names, customer=customer, id=only, thread=thread, collect=True)]


def _keep(file: UploadFile, folder: Path, digest: "hashlib._Hash") -> str:
    folder.mkdir()
    name = file_name(file.filename)
    own = hashlib.sha256()
    with (folder / name).open("wb") as kept:
        while piece := file.file.read(1 << 20):
            own.update(piece)
            kept.write(piece)
    digest.update(repr((name, own.hexdigest())).encode())
    return str(folder / name)


def _told(landed: "Landed") -> dict[str, Any]:
    event, error = landed.event, landed.error
    return {
        "name": landed.source.rpartition("/")[2],
        "status": landed.status.replace(" ", "_"),
        "id": event.event_id if event else None,
        "path": event.pointer.path if event else None,
        "reason": landed.reason,
        "error": {"kind": error.kind, "message": str(error), "retryable": error.retryable} if error else None,
    }


def file_name(given: str | None) -> str:
    """The last part of it: no sender chooses a place here."""
    name = PurePosixPath((given or "").replace("\\", "/")).name.replace("\0", "").strip()
    if name in {"", ".", ".."} or len(name) > _NAME_LETTERS:
        raise InvalidRequest(f"A file's name has 1 to {_NAME_LETTERS} letters.")
    return name
