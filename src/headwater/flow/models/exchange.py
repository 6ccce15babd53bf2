"""One exchange with an HTTP server: a request, an answer, and one deadline for all of it.

Connecting, sending, the headers and each byte of the answer count against the same clock, whoever is slow and wherever;
a client's own timeouts start anew with every byte. An answer is unpacked as it comes, never beyond what was asked for.

Requests run on one thread of the process, which waits for all of them; whoever asks waits for its own. A process that
was forked has a thread of its own.
"""

import asyncio
import os
import threading
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.flow.models.extras import not_installed

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS: Final = 10.0  # a machine that is there says so at once
GZIP, ZLIB, RAW = 31, 15, -15  # what zlib calls them
ENCODINGS: Final = {"gzip": GZIP, "x-gzip": GZIP, "deflate": ZLIB}


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    content: bytes


class NoReply(Exception):
    """The other side could not be reached, broke off, or was too slow; another try may do better."""


class Unusable(Exception):
    """It answered with more than was asked for, or packed in a way that nobody asked for."""


class Exchange:
    """Sends requests to one server over connections that are kept. Threads may share it."""

    def __init__(self, headers: Mapping[str, str], connections: int) -> None:
        try:
            import httpx
        except ImportError as error:
            raise not_installed("endpoint", error) from error

        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        # Named here, because the client would offer whatever it can unpack, without a bound.
        self._client = httpx.AsyncClient(headers={**headers, "Accept-Encoding": "gzip"}, limits=limits)

    def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], seconds: float, most: int) -> Reply:
        """`body` as httpx takes it; `most` bytes of answer. Raises NoReply or Unusable."""
        waiting = asyncio.run_coroutine_threadsafe(self._post(url, body, headers, seconds, most), _loop())
        return _result(waiting)

    async def _post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], seconds: float, most: int
    ) -> Reply:
        import httpx

        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream("POST", url, headers=dict(headers), timeout=timeout, **body) as response,
            ):
                content = await _read(response, most)
        except TimeoutError as error:
            raise NoReply(f"no whole answer within {seconds:.3g} s") from error
        except httpx.TimeoutException as error:
            raise NoReply(f"{type(error).__name__} at {seconds:.3g} s") from error
        except httpx.TransportError as error:
            raise NoReply(f"{type(error).__name__}: {_cause(error)}") from error
        return Reply(response.status_code, response.headers, content)


def _cause(error: BaseException) -> str:
    """What the system said, where it said something: the client's own words are "all connection attempts failed"."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno:
            return f"[Errno {found.errno}] {os.strerror(found.errno)}"
        first = found.exceptions[0] if isinstance(found, BaseExceptionGroup) else None
        found = first or found.__cause__ or found.__context__
    return str(error)


async def _read(response: "httpx.Response", most: int) -> bytes:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity", *ENCODINGS}:
        raise Unusable("an answer packed as nobody asked for")
    content, unpacker = bytearray(), _Unpacker(ENCODINGS[encoding]) if encoding in ENCODINGS else None
    async for block in response.aiter_raw():
        content += unpacker.feed(block, most + 1 - len(content)) if unpacker else block
        if len(content) > most:
            raise Unusable(f"more than {max(1, most >> 20)} MB")
    if unpacker and not unpacker.is_complete:
        raise NoReply("the answer was cut short")
    return bytes(content)


class _Unpacker:
    """Unpacks as much as is wanted and no more: a few hundred bytes may stand for gigabytes."""

    def __init__(self, form: int) -> None:
        self._form = form
        self._unpack = zlib.decompressobj(form)
        self._begun = False

    @property
    def is_complete(self) -> bool:
        return self._unpack.eof or not self._begun

    def feed(self, block: bytes, most: int) -> bytes:
        out = b""
        while block and len(out) < most:
            if self._unpack.eof:  # one packed file after another is one answer
                self._unpack = zlib.decompressobj(self._form)
            out += self._unpacked(block, most - len(out))
            self._begun = True
            block = self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail
        return out

    def _unpacked(self, block: bytes, most: int) -> bytes:
        try:
            return self._unpack.decompress(block, most)
        except zlib.error as error:
            if self._form == ZLIB and not self._begun:  # many servers mean the bare form by «deflate»
                self._form, self._unpack = RAW, zlib.decompressobj(RAW)
                return self._unpacked(block, most)
            raise Unusable("an answer with a broken encoding") from error


def _result(waiting: "Future[Reply]") -> Reply:
    try:
        return waiting.result()
    except BaseException:
        waiting.cancel()  # who asked was interrupted: nobody waits for the answer any more
        raise


_started: tuple[int, asyncio.AbstractEventLoop] | None = None
_starting = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    global _started
    with _starting:
        if _started is None or _started[0] != os.getpid():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="http", daemon=True).start()
            _started = (os.getpid(), loop)
        return _started[1]
