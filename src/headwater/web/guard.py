"""Guard: before any page or endpoint is asked: is the host ours, who comes, may they, and not too often.

A token comes as `Authorization: Bearer …`, or in a cookie that the link of `headwater serve` sets. Who comes by cookie
may change something only from a page of ours: browsers say where a request began. Every answer says what a page may
load: files of ours, no script in a page, no frame around it.
"""

import re
import time
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.domain.access import Visitor
from headwater.errors import HeadwaterError
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
_TOKEN_LETTERS: Final = 200
# At once, and as many come back a minute: calls by one token, calls without one and wrong tokens from one address.
_CALLS: Final = 6_000
_STRANGE: Final = 300
_WRONG: Final = 20
_CLIENTS: Final = 10_000
_PRIVATE: Final = re.compile(r"(token=)[^&]+")


class Guard:
    """`hosts` are the names by which the server may be asked for; None is any, behind a proxy that looks."""

    def __init__(self, app: ASGIApp, lakes: Lakes, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._lakes = lakes
        self._hosts = hosts
        self._calls = _Bucket(_CALLS)
        self._strange = _Bucket(_STRANGE)
        self._wrong = _Bucket(_WRONG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        client = scope["client"][0] if scope.get("client") else "unknown"
        refusal, visitor = await self._judged(request, client)
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

        scope["state"] = {**scope.get("state", {}), "visitor": visitor}
        try:
            await (refusal or self._app)(scope, receive, noting)
        finally:
            if _worth_a_line(request, status):
                await run_in_threadpool(self._note, visitor, client, request, status)

    async def _judged(self, request: Request, client: str) -> tuple[Response | None, Visitor | None]:
        if not self._is_our_host(request.headers.get("host", "")):
            return _refusal(request, 403, "WrongHost", "Ask by the name that headwater serve printed."), None
        path = request.url.path
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return (None if self._strange.take(client) else _too_many(request)), None
        if path == "/" and "token" in request.query_params:
            return await self._let_in(request, client)
        text, by_cookie = _token_of(request)
        visitor = await run_in_threadpool(self._visitor, text, client) if text else None
        if not (self._strange.take(client) if visitor is None else self._calls.take(visitor.token)):
            return _too_many(request), visitor
        if visitor is None:
            return _refusal(
                request, 401, "NoToken", "Open the link that headwater serve printed, or send a token."
            ), None
        if by_cookie and request.method not in SAFE_METHODS and not _from_our_page(request):
            return _refusal(
                request, 403, "CrossSite", "That came from another site. Do it from a page of ours."
            ), visitor
        return None, visitor

    async def _let_in(self, request: Request, client: str) -> tuple[Response, Visitor | None]:
        """The link: its token becomes a cookie, and is no longer in the address."""
        text = request.query_params["token"]
        visitor = await run_in_threadpool(self._visitor, text, client)
        if visitor is None:
            return _refusal(request, 401, "NoToken", "That token is wrong, has expired or was revoked."), None
        response = RedirectResponse("/", status_code=303)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, text, httponly=True, samesite="strict", secure=secure, max_age=30 * 86_400)
        return response, visitor

    def _visitor(self, text: str, client: str) -> Visitor | None:
        if len(text) > _TOKEN_LETTERS or not self._wrong.has(client):
            return None
        with self._lakes.lent() as lake:
            visitor = lake.access.visitor(text)
        if visitor is None:
            self._wrong.take(client)
        return visitor

    def _is_our_host(self, given: str) -> bool:
        try:
            return self._hosts is None or (urlsplit(f"//{given}").hostname or "") in self._hosts
        except ValueError:
            return False

    def _note(self, visitor: Visitor | None, client: str, request: Request, status: int) -> None:
        query = "?" + _PRIVATE.sub(r"\1…", request.url.query) if request.url.query else ""
        try:
            with self._lakes.lent() as lake:
                lake.access.note(visitor, client, f"{request.method} {request.url.path[:500]}", status, query[:500])
        except HeadwaterError:
            pass  # the call was answered; a ledger that is down must not take that back


def _worth_a_line(request: Request, status: int) -> bool:
    """Refused, or changing something. What nobody has is asked for by accident: of it only what others have counts."""
    if request.method not in SAFE_METHODS and (status >= 400 or request.url.path not in READING_PATHS):
        return True
    return status in {401, 403} or (status == 404 and request.state._state.get("hidden", False))


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
        and not request.url.path.startswith(("/api/", "/media/"))
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
