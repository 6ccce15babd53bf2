"""Preview: a JPEG of a PDF's page, of a video's frame, or of a picture in a kind that browsers do not show."""

import base64
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer
from headwater.errors import DataFault, InvalidRequest
from headwater.flow.child.process import ChildProcess
from headwater.flow.preview.child import FRAME, PAGE, PICTURE
from headwater.settings import Settings
from headwater.storage.raw.store import RawStore

PDF: Final = "application/pdf"
WIDTH: Final = 1_200
WIDTH_MAX: Final = 3_000
_NUMBER_MAX: Final = 1 << 40
_REASON_LETTERS: Final = 300
_JPEG: Final = b"\xff\xd8\xff"


class Previews:
    """One child draws them, one after the other; it is started with the first. Close it."""

    def __init__(self, settings: Settings, raw_store: RawStore) -> None:
        self._settings = settings
        self._store = raw_store
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None

    def draw(
        self,
        modality: str,
        pointer: Pointer,
        *,
        page: int | None = None,
        frame_ms: int | None = None,
        width: int = WIDTH,
    ) -> bytes:
        """InvalidRequest where there is nothing to be seen of that kind; DataFault where the bytes are no good."""
        kind, number = _wanted(modality, pointer.content_type or "", page, frame_ms)
        if not 16 <= width <= WIDTH_MAX or not 0 <= number < _NUMBER_MAX:
            raise InvalidRequest(
                f"A preview is 16 to {WIDTH_MAX:,} points wide, of a page or moment that there may be."
            )
        with self._lock, self._opened(pointer) as file:
            job = {"file": f"/proc/{os.getpid()}/fd/{file.fileno()}", "kind": kind, "number": number, "width": width}
            return self._asked({**job, "pixels": self._settings.whole("limits.pixels")})

    def close(self) -> None:
        with self._lock:
            self._end()

    def _asked(self, job: dict[str, object]) -> bytes:
        if self._child is None or not self._child.is_alive:
            self._end()
            config = {"child_mb": self._settings.whole("limits.child_mb")}
            variables = self._settings.text("limits.child_variables")
            self._child = ChildProcess("headwater.flow.preview.child", config, variables)
        child = self._child
        child.send(job)
        seconds = self._settings.number("limits.step_seconds")
        deadline = time.monotonic() + seconds
        while True:
            data = child.receive(deadline)
            try:
                messages = child.unpack(data) if data else None
            except (ValueError, RecursionError):
                messages = None
            if messages is None:
                slow = f"It takes longer than limits.step_seconds, {seconds:g} s." if data is None else ""
                if not slow:
                    slow = f"Drawing it ended the process: {child.how_it_died()}."
                self._end()
                raise DataFault("UNREADABLE", slow)
            for told in messages:
                return _checked(told)

    @contextmanager
    def _opened(self, pointer: Pointer) -> Iterator[BinaryIO]:
        """As an open file, also of a store elsewhere, or where it is a stretch of a larger one."""
        local = self._store.open_local(pointer.path) if not pointer.offset else None
        if local is not None:
            with local:
                yield local
            return
        with tempfile.TemporaryFile(prefix="headwater-preview-") as kept:
            for chunk in self._store.chunks(pointer.path, pointer.offset, pointer.size):
                kept.write(chunk)
            kept.flush()
            yield kept

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


def _checked(told: Any) -> bytes:
    """The child has read a stranger's bytes: what it says is believed where it is a JPEG, or a reason."""
    if not isinstance(told, dict) or not isinstance(drawn := told.get("drawn"), str):
        reason = str(told.get("failed"))[:_REASON_LETTERS] if isinstance(told, dict) else "it said nothing of use"
        raise DataFault("UNREADABLE", f"No picture of it can be drawn: {reason}")
    try:
        picture = base64.b64decode(drawn, validate=True)
    except ValueError:
        picture = b""
    if not picture.startswith(_JPEG):
        raise DataFault("UNREADABLE", "What was drawn of it is no picture.")
    return picture


def _wanted(modality: str, content_type: str, page: int | None, frame_ms: int | None) -> tuple[str, int]:
    if content_type == PDF:
        return PAGE, 1 if page is None else page
    if modality == Modality.VIDEO:
        return FRAME, frame_ms or 0
    if modality == Modality.IMAGE:
        return PICTURE, 0
    raise InvalidRequest(f"There is no picture of {content_type or 'that'}: of pictures, videos and PDFs there is.")
