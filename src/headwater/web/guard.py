"""Guard: before any page or endpoint is asked: is the host ours, who comes, may they, and not too often.

A token comes as `Authorization: Bearer …`, or in a cookie that the link of `headwater serve` sets. Who comes by cookie
may change something only from a page of ours: browsers say where a request began. Every answer says what a page may
load: files of ours, no script in a page, no frame around it.
"""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.domain.access import WRITER, Visitor
from headwater.errors import HeadwaterError, Unavailable
from headwater.web.lakes import Lakes

COOKIE: Final = "headwater_token"
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
OPEN_PATHS: Final = frozenset({"/healthz", "/login", "/llms.txt"})
READING_PATHS: Final = frozenset({"/mcp"})  # asked by POST, and never changing anything
OPEN_PREFIX: Final = "/static/"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
UPLOADS: Final = "/api/v1/objects"
_TOKEN_LETTERS: Final = 200
# At once, and as many come back a minute, from one address: files of ours, calls without a token, wrong tokens.
_OPEN: Final = 3_000
_STRANGE: Final = 300
_WRONG: Final = 60
_CLIENTS: Final = 10_000
_BODY: Final = 1 << 20
_DOOR_SECONDS: Final = 8.0
_STALLED_SECONDS: Final = 60.0
_PRIVATE: Final = re.compile(r"(token=)[^&]+")
_SECRET: Final = re.compile(r"(hw_[0-9a-f]+_)[\w-]+")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one call may bring, and how often one token may call."""

    upload_bytes: int = 4_096 << 20
    calls_per_minute: int = 6_000


_NO_TOKEN: Final = "Open the link that headwater serve printed, or send a token."
_WRONG_TOKEN: Final = "That token is wrong, has expired or was revoked."


class Guard:
    """Stands around everything, so that also the answer to a fault of ours has its headers.

    `hosts` are the names by which the server may be asked for; None is any, behind a proxy that looks. `answer` makes
    what is told of an error. Tokens are looked up through a door of their own: who asks much keeps nobody out.
    """

    def __init__(
        self,
        app: ASGIApp,
        lakes: Lakes,
        hosts: frozenset[str] | None,
        limits: Limits,
        answer: Callable[[Request, Exception], Response],
    ) -> None:
        self._app = app
        self._door = lakes.apart(1)
        self._limiter = CapacityLimiter(4)
        self._hosts = hosts
        self._limits = limits
        self._answer = answer
        self._calls = _Bucket(limits.calls_per_minute)
        self._open = _Bucket(_OPEN)
        self._strange = _Bucket(_STRANGE)
        self._wrong = _Bucket(_WRONG)
        self._arriving = 0  # bytes of all bodies that are being sent now: they lie on disk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                self._door.close()
            return
        if scope["type"] != "http":  # nothing here speaks by WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        scope["state"] = {**scope.get("state", {}), "visitor": None}
        request = Request(scope, receive)
        client = scope["client"][0] if scope.get("client") else "unknown"
        try:
            refusal, visitor = await self._judged(request, client)
        except HeadwaterError as error:
            refusal, visitor = self._answer(request, error), None
        scope["state"]["visitor"] = visitor
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [
                    (name.lower().encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.lower().encode() not in given
                ]
            await send(message)

        body = _Body(self, receive, self._most(request, visitor))
        try:
            await (refusal or self._app)(scope, body.receive, noting)
        finally:
            self._arriving -= body.arrived
            if _worth_a_line(request, status, scope["state"]):
                with suppress(Unavailable):
                    await self._apart(self._note, visitor, client, request, status)

    async def _judged(self, request: Request, client: str) -> tuple[Response | None, Visitor | None]:
        if not self._is_our_host(request.headers.get("host", "")):
            wrong = _refusal(request, 403, "WrongHost", "Ask by the name that headwater serve printed.")
            return (wrong if self._strange.take(client) else _too_many(request)), None
        path = request.url.path
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return (None if self._open.take(client) else _too_many(request)), None
        if path == "/" and "token" in request.query_params:
            return await self._let_in(request, client)
        text, by_cookie = _token_of(request)
        visitor = await self._apart(self._visitor, text) if text else None
        if visitor is None:
            bucket = self._wrong if text else self._strange
            none = _refusal(request, 401, "NoToken", _WRONG_TOKEN if text else _NO_TOKEN)
            return (none if bucket.take(client) else _too_many(request)), None
        if not self._calls.take(visitor.token):
            return _too_many(request), visitor
        if by_cookie and request.method not in SAFE_METHODS and not _from_our_page(request):
            return _refusal(
                request, 403, "CrossSite", "That came from another site. Do it from a page of ours."
            ), visitor
        most = self._most(request, visitor)
        if (declared := request.headers.get("content-length", "")).isdigit() and int(declared[:18]) > most:
            return self._answer(request, too_large(most)), visitor
        return None, visitor

    async def _let_in(self, request: Request, client: str) -> tuple[Response, Visitor | None]:
        """The link: its token becomes a cookie, and is no longer in the address."""
        text = request.query_params["token"]
        visitor = await self._apart(self._visitor, text)
        if visitor is None:
            wrong = _refusal(request, 401, "NoToken", _WRONG_TOKEN)
            return (wrong if self._wrong.take(client) else _too_many(request)), None
        response = RedirectResponse("/", status_code=303)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, text, httponly=True, samesite="strict", secure=secure, max_age=30 * 86_400)
        return response, visitor

    def _most(self, request: Request, visitor: Visitor | None) -> int:
        """How many bytes may be sent: files by who may put some, of anything else little."""
        uploads = request.method == "POST" and request.url.path == UPLOADS
        return self._limits.upload_bytes + _BODY if uploads and visitor and visitor.may(WRITER) else _BODY

    def take_room(self, size: int) -> None:
        """Of what is sent to us at this moment, all together; Unavailable where the disk could not hold it."""
        self._arriving += size
        if self._arriving > 2 * (self._limits.upload_bytes + _BODY):
            raise Unavailable("Too much is being sent at once. Send it again in a moment.", 5.0)

    async def _apart(self, call: Callable[..., T], *given: Any) -> T:
        """In a thread of the guard's own, so that no crowd before the lake makes the door wait."""
        looking = to_thread.run_sync(call, *given, limiter=self._limiter, abandon_on_cancel=True)
        try:
            return await asyncio.wait_for(looking, _DOOR_SECONDS)
        except TimeoutError:
            # A ledger waits for its server for longer than a person does; that thread ends by itself.
            raise Unavailable("The lake's ledger does not answer. See: headwater doctor", 5.0) from None

    def _visitor(self, text: str) -> Visitor | None:
        if len(text) > _TOKEN_LETTERS:
            return None
        with self._door.lent() as lake:
            return lake.access.visitor(text)

    def _is_our_host(self, given: str) -> bool:
        try:
            return self._hosts is None or (urlsplit(f"//{given}").hostname or "") in self._hosts
        except ValueError:
            return False

    def _note(self, visitor: Visitor | None, client: str, request: Request, status: int) -> None:
        query = f"?{request.url.query}" if request.url.query else ""
        action = f"{request.method} {without_tokens(request.url.path)[:500]}"
        try:
            with self._door.lent() as lake:
                lake.access.note(visitor, client, action, status, without_tokens(query)[:500])
        except HeadwaterError:
            pass  # the call was answered; a ledger that is down must not take that back


class _Body:
    """What a caller sends, counted as it arrives."""

    def __init__(self, guard: Guard, receive: Receive, most: int) -> None:
        self._guard = guard
        self._receive = receive
        self._most = most
        self._more = True
        self.arrived = 0

    async def receive(self) -> Message:
        if not self._more:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), _STALLED_SECONDS)
        except TimeoutError:
            raise HTTPException(408, f"Nothing came for {_STALLED_SECONDS:.0f} s") from None
        if message["type"] == "http.request":
            self._more = message.get("more_body", False)
            size = len(message.get("body", b""))
            self.arrived += size
            try:
                self._guard.take_room(size)
            except Unavailable as error:
                raise HTTPException(error.http_status, str(error).rstrip(".")) from error
            if self.arrived > self._most:
                raise too_large(self._most)
        return message


def too_large(most: int) -> HTTPException:
    return HTTPException(
        413, f"At most {most >> 20:,} MB are taken in one call. Whoever runs the lake can raise serve.upload_mb"
    )


def without_tokens(text: str) -> str:
    """As it may be kept: however a token was written into an address, its secret is not in the audit."""
    plain = unquote(text)
    return _SECRET.sub(r"\1…", _PRIVATE.sub(r"\1…", plain if plain != text else text))


def _worth_a_line(request: Request, status: int, state: dict[str, Any]) -> bool:
    """Refused, or changing something. Of what is not found, what was asked for by a name: others may have it."""
    if request.method not in SAFE_METHODS and (status >= 400 or request.url.path not in READING_PATHS):
        return status != 429
    return status in {401, 403} or (status == 404 and state.get("hidden", False))


def _token_of(request: Request) -> tuple[str | None, bool]:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text:
        return text.strip(), False
    try:
        morsel = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None, True
    return (morsel.value if morsel else None), True


def _from_our_page(request: Request) -> bool:
    """Where a browser says it began, that must be here; one that says nothing of it is not believed."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site not in {None, "same-origin"}:
        return False
    if origin is None:
        return site == "same-origin"
    return urlsplit(origin).netloc == request.headers.get("host") and origin != "null"


def _refusal(request: Request, status: int, kind: str, message: str) -> Response:
    if status == 401 and wants_page(request):
        return RedirectResponse("/login", status_code=303)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "5"} if status == 429 else None
    told = {"kind": kind, "message": message, "retryable": status == 429}
    return JSONResponse({"error": told}, status, headers)


def _too_many(request: Request) -> Response:
    return _refusal(request, 429, "TooMany", "You ask too often. Wait some seconds.")


def wants_page(request: Request) -> bool:
    """A browser that walks about, not a program."""
    return (
        request.method == "GET"
        and "text/html" in request.headers.get("accept", "")
        and not request.url.path.startswith(("/api/", "/media/", "/preview/"))
    )


class _Bucket:
    """So many a client at once, and as many a minute."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> bool:
        left = self._now(client)
        self._left[client] = (max(0.0, left - 1.0), time.monotonic())
        return left >= 1.0

    def has(self, client: str) -> bool:
        return self._now(client) >= 1.0

    def _now(self, client: str) -> float:
        if client not in self._left and len(self._left) >= _CLIENTS:
            self._left.pop(next(iter(self._left)))
        left, at = self._left.get(client, (float(self._size), time.monotonic()))
        return min(float(self._size), left + (time.monotonic() - at) * self._size / 60)
