"""What only reads. Each endpoint calls one method of the lake and answers with its JSON; none starts a JVM."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Body, Header, Query
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from headwater.errors import HeadwaterError
from headwater.storage.query.plain_rows import to_json_rows
from headwater.web.api.asking import Ask
from headwater.web.asked import LIMIT_MAX
from headwater.web.finding import find_hits, find_objects

if TYPE_CHECKING:
    import pyarrow as pa

router = APIRouter()
ARROW: Final = "application/vnd.apache.arrow.stream"
_QUERY_LETTERS: Final = 100_000


@router.get("/search")
def search(
    asked: Ask,
    q: Annotated[str, Query(max_length=2_000)],
    modality: str | None = None,
    speaker: str | None = None,
    since: str | None = None,
    until: str | None = None,
    thread: str | None = None,
    where: Annotated[list[str] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 10,
) -> dict[str, Any]:
    """Hits, best first, each with its score, why it was found, its source and its place there."""
    only: dict[str, Any] = {"modality": modality, "speaker": speaker, "since": since, "until": until}
    return find_hits(asked, q, limit=limit, thread=thread, where=tuple(where or ()) or None, **only)


@router.get("/objects")
def objects(
    asked: Ask,
    modality: str | None = None,
    since: str | None = None,
    until: str | None = None,
    thread: str | None = None,
    where: Annotated[list[str] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
    before: Annotated[int | None, Query(ge=0)] = None,
) -> dict[str, Any]:
    """The last that came first; `next` is the `before` of the page that follows."""
    only: dict[str, Any] = {"modality": modality, "since": since, "until": until, "thread": thread}
    return find_objects(asked, limit=limit, before=before, where=tuple(where or ()) or None, **only)


@router.get("/objects/{id:path}")
def one_object(asked: Ask, id: str, as_of: str | None = None) -> dict[str, Any]:
    """An object: its event, what every model made of it, its vectors, what was refused, what it cost."""
    found: dict[str, Any] = asked.of_any_customer(lambda customer: asked.lake.view(id, customer=customer, as_of=as_of))
    return found


@router.get("/trace/{id:path}")
def trace(asked: Ask, id: str, as_of: str | None = None) -> dict[str, Any]:
    """From any id to its source, and to everything made of it."""
    found: dict[str, Any] = asked.of_any_customer(lambda customer: asked.lake.trace(id, customer=customer, as_of=as_of))
    return found


@router.get("/threads/{id:path}")
def thread(asked: Ask, id: str) -> dict[str, Any]:
    """A conversation, in the order in which it happened."""
    found: dict[str, Any] = asked.of_any_customer(lambda customer: asked.lake.thread(id, customer=customer))
    return found


@router.get("/customers")
def customers(asked: Ask) -> dict[str, Any]:
    """Whose things there are, within what the token sees."""
    return {"customers": asked.seen_customers()}


@router.get("/tables")
def tables(asked: Ask) -> dict[str, Any]:
    """Each table's rows, files and snapshots."""
    asked.require_whole_lake()
    return {"tables": asked.lake.status()["tables"]}


@router.get("/tables/{name}")
def rows(
    asked: Ask,
    name: str,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    before: Annotated[int | None, Query(ge=0)] = None,
    as_of: str | None = None,
    vectors: bool = False,
    accept: Annotated[str, Header()] = "",
) -> Response:
    """A page of a table's rows, the newest first, as JSON, or with its own types as Arrow by `Accept:
    application/vnd.apache.arrow.stream`. `next`, of Arrow the header `Headwater-Next`, is the `before` of the page that
    follows; rows that arrive meanwhile move no page."""
    asked.require_whole_lake()
    reader = asked.lake.table(name, as_of=as_of)
    page = reader.page(limit=limit, before=before, vectors=vectors)
    following = page["seq"][-1].as_py() if len(page) == limit else None
    if ARROW in accept:
        headers = {} if following is None else {"Headwater-Next": str(following)}
        return Response(_stream(page), media_type=ARROW, headers=headers)
    told = {"table": reader.table.name, "columns": page.column_names, "rows": to_json_rows(page), "next": following}
    return JSONResponse(told)


def _stream(page: "pa.Table") -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, page.schema) as writer:
        writer.write_table(page)
    return bytes(sink.getvalue())


@router.post("/sql")
def sql(
    asked: Ask,
    query: Annotated[str, Body(embed=True, max_length=_QUERY_LETTERS)],
    timeout_seconds: Annotated[float, Body(embed=True, gt=0, le=60)] = 10.0,
    limit: Annotated[int, Body(embed=True, ge=1, le=100_000)] = 10_000,
    as_of: Annotated[str | None, Body(embed=True)] = None,
) -> Response:
    """One statement that only reads, within limits on time, memory and rows: `more` says that there are more than
    `limit`. Not for tokens of some customers only."""
    asked.require_whole_lake()
    found = asked.sql(query, timeout_seconds=timeout_seconds, limit=limit, as_of=as_of)
    return Response(json.dumps(found, default=str), media_type="application/json")


@router.get("/status")
def status(asked: Ask) -> dict[str, Any]:
    """Tables, log, index and quarantine in numbers."""
    asked.require_whole_lake()
    return asked.lake.status()


@router.get("/flow")
def flow(asked: Ask) -> dict[str, Any]:
    """The map: each stage, what it reads and writes, and how much waits before it."""
    asked.require_whole_lake()
    return {"stages": asked.lake.flow()}


@router.get("/models")
def models(asked: Ask) -> dict[str, Any]:
    """Every model that the lake knows, with what it has made."""
    asked.require_whole_lake()
    return {"models": asked.lake.models.list()}


@router.get("/quarantine")
def quarantine(asked: Ask, reason: str | None = None) -> dict[str, Any]:
    """What could not be processed, by reason."""
    asked.require_whole_lake()
    return asked.lake.quarantine(reason)


@router.get("/runs")
def runs(asked: Ask, limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50) -> dict[str, Any]:
    """The journal, the latest first."""
    asked.require_whole_lake()
    return {"runs": asked.lake.journal(limit=limit)}


@router.get("/health")
def health(asked: Ask) -> Response:
    """Whether every part answers: 200, or 503 with what is down."""
    try:
        asked.lake.status()
    except HeadwaterError as error:
        return JSONResponse({"status": "down", "message": str(error)}, 503)
    return JSONResponse({"status": "ok"})


@router.get("/metrics")
def metrics(asked: Ask) -> Response:
    """The lake's numbers as OpenMetrics text."""
    asked.require_whole_lake()
    return PlainTextResponse(asked.lake.upkeep.metrics(), media_type="application/openmetrics-text; version=1.0.0")
