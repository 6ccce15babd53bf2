"""Uploads: files that were sent, put as if they had been named on the command line.

What is sent is on disk before anything is stored, under the name that it had there, and gone afterwards.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from fastapi import UploadFile
from starlette.formparsers import MultiPartParser

from headwater.errors import InvalidRequest
from headwater.lake import Lake

if TYPE_CHECKING:
    from headwater.flow.landed import Landed

_NAME_BYTES: Final = 240  # file systems take 255
# Of each of a call's files; what is larger goes to disk.
MultiPartParser.spool_max_size = 64 << 10


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
        landed = lake.put(*names, customer=customer, id=only, thread=thread, collect=True)
        return [_told(each, place) for each in landed]


def _keep(file: UploadFile, folder: Path, digest: "hashlib._Hash") -> str:
    """Under its name. What is on disk already is linked to and not written twice, where the system can."""
    folder.mkdir()
    kept = folder / file_name(file.filename)
    file.file.flush()
    opened = Path(f"/proc/{os.getpid()}/fd/{file.file.fileno()}")
    if opened.exists():
        kept.symlink_to(opened)
    else:
        with kept.open("wb") as copy:
            shutil.copyfileobj(file.file, copy, 1 << 20)
    with kept.open("rb") as sent:
        own = hashlib.file_digest(sent, "sha256")
    digest.update(repr((kept.name, own.hexdigest())).encode())
    return str(kept)


def _told(landed: "Landed", place: str = "") -> dict[str, Any]:
    """`place` is where it lay on this machine, which is nobody's business."""
    event, error = landed.event, landed.error
    said = re.sub(rf"{re.escape(place)}/\d+/", "", str(error)) if place else str(error)
    return {
        "name": landed.source.rpartition("/")[2],
        "status": landed.status.replace(" ", "_"),
        "id": event.event_id if event else None,
        "path": event.pointer.path if event else None,
        "event": event.to_dict() if event else None,
        "reason": landed.reason,
        "error": {"kind": error.kind, "message": said, "retryable": error.retryable} if error else None,
    }


def file_name(given: str | None) -> str:
    """The last part of it: no sender chooses a place here."""
    name = PurePosixPath((given or "").replace("\\", "/")).name.replace("\0", "").strip()
    if name in {"", ".", ".."} or len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        raise InvalidRequest(f"A file's name has 1 to {_NAME_BYTES} bytes. Send it under a shorter one.")
    return name
