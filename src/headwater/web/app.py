"""App: the pages, the API, the media and the live progress of one lake, behind the guard."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from headwater.domain.access import Visitor
from headwater.errors import HeadwaterError, InternalError, NotFound, describe
from headwater.web import api, media
from headwater.web.agents import Agents
from headwater.web.asked import Asked
from headwater.web.frame import Frame
from headwater.web.guard import Guard, Limits, wants_page
from headwater.web.jobs import Jobs
from headwater.web.keys import Keys
from headwater.web.lakes import Lakes
from headwater.web.live import Live
from headwater.web.page import Page
from headwater.web.pages import PAGES

HERE: Final = Path(__file__).parent
_KINDS: Final = {404: "NotFound", 405: "MethodNotAllowed", 408: "TooSlow", 413: "TooLarge", 503: "Unavailable"}
LLMS: Final = """# Headwater

> Calls, screenshots, videos, documents and chat of customers, with what was heard and read in them, each threaded to
> its source. Ask the API with `Authorization: Bearer TOKEN`.

- [API](/docs): every endpoint, with its shapes
- [Search](/api/v1/search?q=refund): hits, best first, each with its source and place
- [Object](/api/v1/objects): what there is; `/api/v1/objects/ID` for one with all that was made of it
- [Tables](/api/v1/tables): rows by `POST /api/v1/sql`, read-only
- `/mcp`: the same for copilots, by the Model Context Protocol (Streamable HTTP): search, trace, object_text,
  list_objects, list_customers and, for tokens of all customers, query_tables
"""


class _Guarded(FastAPI):
    """With the guard outside of everything, also of what answers for a fault of ours."""

    guard: Callable[[ASGIApp], Guard]

    def build_middleware_stack(self) -> ASGIApp:
        return self.guard(super().build_middleware_stack())


def build_app(lakes: Lakes, jobs: Jobs, hosts: frozenset[str] | None, limits: Limits | None = None) -> FastAPI:
    live, agents = Live(lakes, jobs), Agents(lakes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with agents.running():
            yield
        live.close()
        jobs.close()
        lakes.close()

    app = _Guarded(title="Headwater", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.lakes, app.state.jobs, app.state.live, app.state.keys = lakes, jobs, live, Keys()
    frame = Frame(HERE / "templates", PAGES)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    app.include_router(api.router)
    app.include_router(media.router)
    app.router.routes.append(agents.route)
    app.add_api_route("/live", live.stream, include_in_schema=False)
    app.add_api_route("/healthz", _health, include_in_schema=False)
    app.add_api_route("/llms.txt", _llms, include_in_schema=False)
    app.add_api_route("/login", _drawn(frame, "login", "Who are you?"), include_in_schema=False)
    app.add_api_route("/docs", _docs(app, frame), include_in_schema=False)
    for page in PAGES:
        app.add_api_route(page.address, _shown(page, frame), include_in_schema=False)
    for kind in (HeadwaterError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _failed(frame))
    app.guard = lambda inner: Guard(inner, lakes, hosts, limits or Limits(), _failed(frame))
    return app


def _shown(page: Page, frame: Frame) -> Callable[[Request], Response]:
    def show(request: Request) -> Response:
        visitor = request.state.visitor
        if not page.is_for(visitor):
            raise NotFound("There is no such page here.")
        with request.app.state.lakes.lent() as lake:
            asked = Asked(lake, visitor, dict(request.query_params), dict(request.path_params))
            document = page.ask(asked)
        if request.query_params.get("format") == "json" or not wants_page(request):
            return JSONResponse(json.loads(json.dumps(document, default=str)))
        return HTMLResponse(frame.draw(page.name, page.title, visitor, request, document))

    return show


def _drawn(frame: Frame, name: str, title: str) -> Callable[[Request], Response]:
    def draw(request: Request) -> Response:
        return HTMLResponse(frame.draw(name, title, None, request, {}))

    return draw


def _docs(app: FastAPI, frame: Frame) -> Callable[[Request], Response]:
    """The API from its own description; the usual pages load their scripts from elsewhere."""

    def draw(request: Request) -> Response:
        paths = app.openapi()["paths"]
        calls = [
            {"method": method.upper(), "path": path, **about}
            for path, methods in paths.items()
            for method, about in methods.items()
        ]
        return HTMLResponse(frame.draw("docs", "API", request.state.visitor, request, {"calls": calls}))

    return draw


def _failed(frame: Frame) -> Callable[[Request, Exception], Response]:
    """One shape for every error: `{"error": {"kind", "message", "retryable"}}`, or a page that says the same."""

    def answer(request: Request, error: Exception) -> Response:
        visitor = getattr(request.state, "visitor", None)
        status, told = _told(error, visitor)
        request.state.hidden = isinstance(error, NotFound)
        if wants_page(request):
            page = frame.draw("error", told["kind"], visitor, request, {"status": status, "error": told})
            return HTMLResponse(page, status)
        return JSONResponse({"error": told}, status)

    return answer


def _told(error: Exception, visitor: Visitor | None) -> tuple[int, dict[str, Any]]:
    if isinstance(error, HeadwaterError):
        return error.http_status, {"kind": error.kind, "message": str(error), "retryable": error.retryable}
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return 400, {"kind": "InvalidRequest", "message": f"{place}: {first['msg']}.", "retryable": False}
    if isinstance(error, HTTPException):
        kind = _KINDS.get(error.status_code, "InvalidRequest")
        return error.status_code, {"kind": kind, "message": f"{error.detail}.", "retryable": error.status_code == 503}
    # What a library says may name files and servers, which are no business of who sees only some customers.
    words = describe(error) if visitor and visitor.sees_all else "That was our fault. Tell whoever runs the lake."
    return 500, {"kind": InternalError.__name__, "message": words, "retryable": False}


def _health() -> dict[str, str]:
    """That somebody is there; tells nothing of the lake."""
    return {"status": "ok"}


def _llms() -> Response:
    return Response(LLMS, media_type="text/plain; charset=utf-8")
