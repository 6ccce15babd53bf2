"""Query processes: a stranger's query runs in a child, so its limits hold whatever it asks for.

Time that is up, memory that is up or a crash of the engine costs that child and one sentence; the next query gets a
fresh one. A child that has answered is kept for the next query.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from headwater import errors
from headwater.domain.ref import Ref
from headwater.errors import HeadwaterError, InvalidRequest, Unavailable
from headwater.settings import SETTINGS, Settings
from headwater.storage.query.child import LENGTH, frame

if TYPE_CHECKING:
    import pyarrow as pa

START_SECONDS: Final = 120.0  # a cold machine may take long to load the engine; a query's own time begins after that
READ_BYTES: Final = 1 << 20


class QueryProcesses:
    """Several queries at once have a child each; may be asked by several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: list[_Child] = []

    def run(
        self,
        query: str,
        hidden: Collection[str],
        others: "Mapping[str, pa.Table]",
        *,
        timeout_seconds: float | None = None,
        as_of: Ref | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """`{"columns": […], "rows": [{…}]}`, as `run_sql`; the settings' own limit of time unless another is given.

        With a `limit` of rows also `more`: whether there are others.
        """
        seconds = self._settings.number("sql.timeout_seconds") if timeout_seconds is None else timeout_seconds
        memory_mb = self._settings.whole("sql.memory_mb")
        request = {"query": query, "hidden": sorted(hidden), "others": list(others), "memory_mb": memory_mb}
        request |= {"as_of": str(as_of) if as_of else None, "limit": limit}
        frames = b"".join(map(frame, [json.dumps(request).encode(), *map(_stream, others.values())]))
        child = self._take()
        try:
            answer: dict[str, Any] = json.loads(child.ask(frames, seconds, memory_mb))
        except BaseException:
            child.end()
            raise
        if answer.get("worn"):
            child.end()
        else:
            self._idle.append(child)
        if "error" in answer:
            raise _error(answer)
        return answer

    def start(self) -> None:
        """Have a child load what it needs while the caller still gets ready."""
        if not self._idle:
            self._idle.append(_Child(self._settings))

    def close(self) -> None:
        """Twice is once."""
        while child := self._spare():
            child.end()

    def _take(self) -> "_Child":
        while child := self._spare():
            if child.process.poll() is None or not child.ready:  # one that did not start tells why when it is asked
                return child
            child.end()
        return _Child(self._settings)

    def _spare(self) -> "_Child | None":
        try:
            return self._idle.pop()
        except IndexError:
            return None


class _Child:
    """One that is forgotten with its lake ends too: `subprocess` would keep it for as long as it runs."""

    def __init__(self, settings: Settings) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater.storage.query.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # A terminal's Ctrl-C is for the parent, who ends the child.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        self._end = weakref.finalize(self, _end, self.process, self._selector, self._errors)
        self._end.atexit = False
        self.ready = False
        values = {setting.name: settings.chosen[setting.name].value for setting in SETTINGS}
        self._send(frame(json.dumps({"lake": str(settings.lake), "settings": values}).encode()))

    def ask(self, frames: bytes, seconds: float, memory_mb: int) -> bytes:
        if not self.ready:
            self.ready = self._receive(time.monotonic() + START_SECONDS) is not None
            if not self.ready:
                raise Unavailable(f"The query process does not start: {self._last_words()}. Check the installation.")
        self._send(frames)
        deadline = time.monotonic() + seconds
        if (answer := self._receive(deadline)) is not None:
            return answer
        raise _too_slow(seconds) if time.monotonic() >= deadline else self._died(memory_mb)

    def end(self) -> None:
        self._end()

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it has died: reading will tell
            self.process.stdin.write(data)  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def _receive(self, deadline: float) -> bytes | None:
        """One frame; None where time is up or the child has died."""
        data = bytearray()
        while len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                return None
            if not (piece := os.read(self.process.stdout.fileno(), READ_BYTES)):  # type: ignore[union-attr]
                return None
            data += piece
        return bytes(memoryview(data)[LENGTH.size :])

    def _died(self, memory_mb: int) -> HeadwaterError:
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return InvalidRequest(
            f"The query ended the process that ran it ({how}), most likely for want of memory: sql.memory_mb is "
            f"{memory_mb:,}. Ask for fewer rows or columns, or allow more: --set sql.memory_mb={2 * memory_mb}"
        )

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _end(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, errors: IO[bytes]) -> None:
    process.kill()
    process.wait()
    selector.close()
    for pipe in (process.stdin, process.stdout, errors):
        with suppress(OSError):
            pipe.close()  # type: ignore[union-attr]


def _too_slow(seconds: float) -> InvalidRequest:
    return InvalidRequest(
        f"The query took longer than {seconds:g} s and was stopped. Ask for less, or allow more: "
        f"headwater sql --timeout {2 * seconds:g}, or the setting sql.timeout_seconds."
    )


def _stream(rows: "pa.Table") -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _error(answer: Mapping[str, Any]) -> HeadwaterError:
    kind: type[HeadwaterError] = getattr(errors, answer["error"])
    return InvalidRequest(answer["text"]) if kind is errors.DataFault else kind(answer["text"])
