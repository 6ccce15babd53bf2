"""Remote HTTP: calls to a `headwater serve` elsewhere, with its token, tried again where that can help.

By the standard library alone. A failure is one of our own errors, as the lake itself would raise it.
"""

import http.client
import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.message import Message
from pathlib import Path
from typing import IO, Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from headwater import errors
from headwater.errors import AccessRefused, DataFault, HeadwaterError, InternalError, InvalidRequest, Unavailable

TIMEOUT_SECONDS: Final = 60.0
_TRIES: Final = 5
_FIRST_WAIT_SECONDS: Final = 0.2  # doubled each time: in all some three seconds, which a restart takes
_PIECE_BYTES: Final = 1 << 20
_REFUSED: Final = frozenset({401, 403})
_BUSY: Final = frozenset({429, 502, 503, 504})  # 502 and 504 are a proxy's, whose server is away for a moment

Query = Mapping[str, Any]
Sleep = Callable[[float], None]
T = TypeVar("T")


class Connection:
    """Every call here may be sent twice: what changes something has a key, or is the same done twice."""

    def __init__(
        self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS, sleep: Sleep = time.sleep
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidRequest(f"{url} is no address. Write it as https://lake.example.com")
        self.url = url.rstrip("/")
        self._parts = parts
        self._token = token
        self._timeout_seconds = timeout_seconds
        self._sleep = sleep

    def get(self, path: str, query: Query | None = None) -> Any:
        return json.loads(self.read("GET", path, query))

    def post(self, path: str, body: Mapping[str, Any], query: Query | None = None, *, key: bool = False) -> Any:
        """With a `key` of its own the call is one call, however often it has to be sent."""
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": uuid.uuid4().hex} if key else {})}
        return json.loads(self.read("POST", path, query, json.dumps(body).encode(), headers))

    def delete(self, path: str) -> Any:
        return json.loads(self.read("DELETE", path))

    def read(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: "bytes | Form | None" = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        return self.read_with_headers(method, path, query, body, headers)[0]

    def read_with_headers(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: "bytes | Form | None" = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[bytes, Message]:
        def ask() -> tuple[bytes, Message]:
            with self._answer(method, path, query, body, headers) as answer:
                return answer.read(), answer.headers

        return self._tried(ask)

    def stream(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Tried again until it begins; what breaks off later is Unavailable."""
        opened = self._tried(lambda: self._open("GET", path, query, None, None))
        try:
            with _translated(self.url):
                while piece := opened.read(_PIECE_BYTES):
                    yield piece
                if opened.length:
                    raise Unavailable("The answer broke off. Ask again.")
        finally:
            opened.close()

    def _tried(self, ask: Callable[[], T]) -> T:
        for number in range(_TRIES):
            try:
                return ask()
            except Unavailable as error:
                if number == _TRIES - 1:
                    raise
                wait = max(_FIRST_WAIT_SECONDS * 2**number, min(error.after_seconds, 5.0))
                self._sleep(wait * random.uniform(0.75, 1.25))
        raise AssertionError("not reached")

    @contextmanager
    def _answer(self, *call: Any) -> Iterator[http.client.HTTPResponse]:
        answer = self._open(*call)
        try:
            with _translated(self.url):
                yield answer
        finally:
            answer.close()

    def _open(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: "bytes | Form | None",
        headers: Mapping[str, str] | None,
    ) -> http.client.HTTPResponse:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_seconds)
        sent = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **(headers or {})}
        if isinstance(body, Form):
            sent |= body.headers
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{self._parts.path.rstrip('/')}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        with _translated(self.url):
            # Each call has a connection of its own, which goes with its answer.
            pieces = iter(body) if isinstance(body, Form) else body
            with suppress(BrokenPipeError, ConnectionResetError):  # who refuses a body need not have read it
                connection.request(method, target, pieces, {**sent, "Connection": "close"})
            answer = connection.getresponse()
            if answer.status >= 300:
                with answer:
                    raise error_of(answer.status, answer.headers, answer.read(_PIECE_BYTES), self.url)
            return answer


class Form:
    """Fields and a file, as a browser sends them; the file is read as it goes out."""

    def __init__(self, fields: Mapping[str, str | None], file: Path | None = None) -> None:
        self._mark = uuid.uuid4().hex
        self._file = file
        head = "".join(self._part(name, value) for name, value in fields.items() if value is not None)
        if file is not None:
            shown = file.name.replace("\\", "\\\\").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
            head += f'--{self._mark}\r\nContent-Disposition: form-data; name="files"; filename="{shown}"\r\n'
            head += "Content-Type: application/octet-stream\r\n\r\n"
        self._head = head.encode()
        self._tail = (("\r\n" if file else "") + f"--{self._mark}--\r\n").encode()
        self._size = file.stat().st_size if file else 0

    @property
    def headers(self) -> dict[str, str]:
        size = len(self._head) + self._size + len(self._tail)
        return {"Content-Type": f"multipart/form-data; boundary={self._mark}", "Content-Length": str(size)}

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        if self._file is not None:
            with self._file.open("rb") as stream:
                yield from _pieces(stream, self._size)
        yield self._tail

    def _part(self, name: str, value: str) -> str:
        return f'--{self._mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


def _pieces(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """As many bytes as were announced, though the file may have grown since."""
    while size and (piece := stream.read(min(_PIECE_BYTES, size))):
        size -= len(piece)
        yield piece
    if size:
        raise InvalidRequest("The file became shorter while it was sent. Put it once it is whole.")


def error_of(status: int, headers: Message, body: bytes, url: str) -> HeadwaterError:
    """What the server said, as the error that the lake itself raises."""
    try:
        told = json.loads(body)["error"]
        kind, message = str(told["kind"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        kind, message = "", f"{url} answered {status}, and not as headwater serve does. Is that its address?"
    return made(kind, message, status, _seconds(headers.get("Retry-After")))


def made(kind: str, message: str, status: int = 500, after_seconds: float = 0.0) -> HeadwaterError:
    if kind == DataFault.__name__:
        reason, _, detail = message.partition(": ")
        return DataFault(reason, detail)
    if status in _BUSY:
        return Unavailable(message, after_seconds)
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, HeadwaterError):
        return known(message)
    if status in _REFUSED:
        return AccessRefused(message)
    return InvalidRequest(message) if status < 500 else InternalError(message)


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdigit() else 0.0


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """The one place where a broken line becomes one of our errors."""
    try:
        yield
    except HeadwaterError:
        raise
    except (OSError, http.client.HTTPException) as error:
        told = errors.describe(error)
        raise Unavailable(f"{url} did not answer: {told}. Is headwater serve running there?") from error


def path_of(*parts: str) -> str:
    """An id may have slashes, which stay."""
    return "/api/v1/" + "/".join(quote(part) for part in parts)


def facts(where: Mapping[str, Any] | Sequence[str] | str | None) -> list[str] | None:
    """As the address has them: `key=value`."""
    if not where:
        return None
    if isinstance(where, Mapping):
        return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in where.items()]
    return [where] if isinstance(where, str) else list(where)
