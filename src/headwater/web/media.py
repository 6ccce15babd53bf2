"""Media: an object's bytes for a player: stretches of them, as a kind that no browser takes for a page.

What is no sound, picture or film is downloaded: whatever an object claims to be, nothing of it runs.
"""

import re
from itertools import chain
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from headwater.errors import NotFound
from headwater.upkeep.object_view import ObjectBytes
from headwater.web.asked import Asked

router = APIRouter()
PLAYED: Final = frozenset(
    {
        "audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac",
        "audio/webm", "video/mp4", "video/webm", "video/ogg", "video/quicktime", "image/png", "image/jpeg",
        "image/gif", "image/webp", "image/avif",
    }
)  # fmt: skip
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@router.get("/media/{id:path}", include_in_schema=False, name="media")
def media(request: Request, id: str) -> Response:
    with request.app.state.lakes.lent() as lake:
        asked = Asked(lake, request.state.visitor, dict(request.query_params), {})
        found: ObjectBytes = asked.of_any_customer(lambda customer: lake.open_object(id, customer=customer))
        headers = {
            "Accept-Ranges": "bytes",
            "Cache-Control": "private, max-age=3600",
            "ETag": f'"{found.checksum}"',
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        played = found.content_type in PLAYED and "download" not in request.query_params
        kind = found.content_type if played else "application/octet-stream"
        if not played:
            name = found.id.rpartition("/")[2]
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}"
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        start, end = stretch(request.headers.get("range"), found.size)
        if start is None:
            return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{found.size}"})
        status = 200
        if end is not None:
            status, headers["Content-Range"] = 206, f"bytes {start}-{end - 1}/{found.size}"
        size = (found.size if end is None else end) - start
        headers["Content-Length"] = str(size)
        # The first piece before the first header: bytes that are gone are told as an error, and not as a broken file.
        pieces = found.read(start, size) if size else iter(())
        first = next(pieces, b"")
        if size and not first:
            raise NotFound(f"The bytes of {found.id} are gone from the raw store.")
    # Stores are read by many threads at once: the lake is not kept for as long as somebody listens.
    return StreamingResponse(chain((first,), pieces), status, headers, kind)


@router.get("/preview/{id:path}", include_in_schema=False, name="preview")
def preview(
    request: Request,
    id: str,
    page: Annotated[int | None, Query(ge=1)] = None,
    frame_ms: Annotated[int | None, Query(ge=0)] = None,
    width: Annotated[int, Query(ge=16, le=3_000)] = 1_200,
) -> Response:
    """A JPEG of a page, a frame, or of a picture that browsers do not show."""
    with request.app.state.lakes.lent() as lake:
        asked = Asked(lake, request.state.visitor, dict(request.query_params), {})
        how: dict[str, Any] = {"page": page, "frame_ms": frame_ms, "width": width}
        drawn: bytes = asked.of_any_customer(lambda customer: lake.preview(id, customer=customer, **how))
    headers = {"Cache-Control": "private, max-age=3600", "Content-Security-Policy": "default-src 'none'; sandbox"}
    return Response(drawn, headers=headers, media_type="image/jpeg")


def stretch(asked: str | None, size: int) -> tuple[int | None, int | None]:
    """From where to where: (0, None) is the whole, (None, None) what there is not. Of several stretches, and of what
    nobody understands, the whole, as HTTP has it."""
    known = _RANGE.fullmatch((asked or "").strip())
    if known is None:
        return 0, None
    first, last = known.groups()
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
    elif last:
        start, end = max(0, size - int(last)), size
    else:
        return 0, None
    return (start, end) if start < end else (None, None)
