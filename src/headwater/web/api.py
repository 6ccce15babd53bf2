"""API v1: the lake's own words over HTTP. Each endpoint calls one method of the lake and answers with its JSON.

What changes the lake by a command runs as a job: a plan is asked for first, then applied.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, File, Form, Header, Query, Request, UploadFile
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from headwater.domain.access import ADMIN, READER, WRITER
from headwater.errors import HeadwaterError, InvalidRequest, NotFound
from headwater.web.asked import LIMIT_MAX, Asked
from headwater.web.uploads import put_uploads

router = APIRouter(prefix="/api/v1")
# What may be planned and applied: the command with the flags that it is planned by.
PLANS: Final = {
    "maintain": ("maintain",),
    "rescan": ("rescan",),
    "upgrade": ("upgrade",),
}
_TEXT_LETTERS: Final = 100_000


def _asked(request: Request) -> Iterator[Asked]:
    with request.app.state.lakes.lent() as lake:
        yield Asked(lake, request.state.visitor, dict(request.query_params), dict(request.path_params))


def needs(role: str) -> Any:
    def check(request: Request) -> None:
        if not request.state.visitor.may(role):
            raise NotFound(
                f"This token may not do that: it is a {request.state.visitor.role}'s, and a {role}'s is needed."
            )

    return Depends(check)


Ask = Annotated[Asked, Depends(_asked)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]


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


def find_hits(asked: Asked, q: str, *, limit: int, **only: Any) -> dict[str, Any]:
    """Of several customers the best of each, best first."""
    answers = [asked.lake.search(q, customer=each, limit=limit, **only) for each in asked.customers]
    hits = sorted((hit for answer in answers for hit in answer), key=lambda hit: -hit.score)[:limit]
    stale = max((answer.stale_by for answer in answers), default=0)
    return {"hits": [hit.to_dict() for hit in hits], "stale_by": stale}


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


def find_objects(asked: Asked, *, limit: int, before: int | None = None, **only: Any) -> dict[str, Any]:
    pages = [asked.lake.ls(customer=each, limit=limit, before=before, **only) for each in asked.customers]
    found = sorted((row for page in pages for row in page["objects"]), key=lambda row: -row["seq"])
    more = len(found) > limit or any(page["next"] is not None for page in pages)
    return {"objects": found[:limit], "next": found[:limit][-1]["seq"] if more and found else None}


@router.get("/objects/{id:path}")
def one_object(asked: Ask, id: str) -> dict[str, Any]:
    """An object: its event, what every model made of it, its vectors, what was refused, what it cost."""
    found: dict[str, Any] = asked.of_any_customer(lambda customer: asked.lake.view(id, customer=customer))
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
    found = [row for row in asked.lake.customers() if asked.visitor.sees(row["customer"])]
    return {"customers": found}


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
    accept: Annotated[str, Header()] = "",
) -> Response:
    """A page of a table's rows, the newest first, as JSON, or as Arrow with `Accept:
    application/vnd.apache.arrow.stream`. `next` is the `before` of the page that follows; of Arrow it is the last `seq`."""
    asked.require_whole_lake()
    table = asked.lake.table(name).table.name
    older = f" WHERE seq < {before}" if before is not None else ""
    columns = "COLUMNS(lambda name: name <> 'vector')"
    found = asked.lake.sql(f"SELECT {columns} FROM {table}{older} ORDER BY seq DESC LIMIT {limit}", as_of=as_of)
    if "application/vnd.apache.arrow.stream" in accept:
        return Response(_arrow(found["rows"]), media_type="application/vnd.apache.arrow.stream")
    following = found["rows"][-1]["seq"] if len(found["rows"]) == limit else None
    return JSONResponse({"table": table, **found, "next": following})


def _arrow(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@router.post("/sql")
def sql(
    asked: Ask,
    query: Annotated[str, Body(embed=True, max_length=_TEXT_LETTERS)],
    timeout_seconds: Annotated[float, Body(embed=True, gt=0, le=60)] = 10.0,
) -> Response:
    """One statement that only reads, within limits on time and memory. Not for tokens of some customers only."""
    asked.require_whole_lake()
    found = asked.lake.sql(query, timeout_seconds=timeout_seconds)
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


@router.post("/models/{step}/active", dependencies=[needs(ADMIN)])
def activate(asked: Ask, step: str, model: Annotated[str, Body(embed=True)]) -> dict[str, Any]:
    """Let readers see this model's rows from now on; flipping back is the same call with the other."""
    return asked.lake.models.activate(step, model)


@router.get("/quarantine")
def quarantine(asked: Ask, reason: str | None = None) -> dict[str, Any]:
    """What could not be processed, by reason."""
    asked.require_whole_lake()
    return asked.lake.quarantine(reason)


@router.post("/quarantine/dismissals", dependencies=[needs(ADMIN)])
def dismiss(
    asked: Ask,
    ids: Annotated[list[str], Body(embed=True, max_length=1_000)],
    because: Annotated[str, Body(embed=True, max_length=1_000)],
    undo: Annotated[bool, Body(embed=True)] = False,
) -> dict[str, Any]:
    """Let go of rows that nobody is going to mend, or take that back."""
    if not ids:
        raise InvalidRequest("Dismiss what? Name ids.")
    by = f"token {asked.visitor.token}"
    done: Any = asked.lake.quarantine.dismiss(*ids, because=because, by=by, undo=undo)
    return {"dismissed": done if isinstance(done, int | dict) else done.to_dict()}


@router.post("/objects", dependencies=[needs(WRITER)], status_code=201)
def put(
    request: Request,
    asked: Ask,
    customer: Annotated[str, Form(max_length=200)],
    files: Annotated[list[UploadFile] | None, File()] = None,
    text: Annotated[str | None, Form(max_length=_TEXT_LETTERS)] = None,
    id: Annotated[str | None, Form(max_length=500)] = None,
    thread: Annotated[str | None, Form(max_length=500)] = None,
    key: Key = None,
) -> dict[str, Any]:
    """Files, or a chat line, of one customer. The same bytes under the same name again change nothing, and neither does
    the same `Idempotency-Key` with the same text."""
    if not asked.visitor.sees(customer):
        raise NotFound(f"There is no customer {customer} here.")
    landed = put_uploads(asked.lake, files or [], text, customer=customer, id=id or key, thread=thread)
    return {"results": landed}


@router.post("/labels/{id:path}", dependencies=[needs(WRITER)])
def label(
    asked: Ask,
    id: str,
    labels: Annotated[dict[str, str], Body(embed=True)],
    remove: Annotated[list[str] | None, Body(embed=True)] = None,
) -> dict[str, Any]:
    """Say more of an object, or take it back."""
    by = f"token {asked.visitor.token}"
    found: dict[str, Any] = asked.of_any_customer(
        lambda customer: asked.lake.label(id, labels, by=by, remove=remove or (), customer=customer)
    )
    return found


@router.get("/runs")
def runs(asked: Ask, limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50) -> dict[str, Any]:
    """The journal, the latest first."""
    asked.require_whole_lake()
    return {"runs": asked.lake.journal(limit=limit)}


@router.post("/runs", dependencies=[needs(WRITER)], status_code=202)
def run(request: Request, asked: Ask, key: Key = None) -> dict[str, Any]:
    """Bring what waits through the stages, once, as a job."""
    started: dict[str, Any] = request.app.state.jobs.start(("run", "--once"), f"token {asked.visitor.token}", key)
    return started


@router.post("/plans", dependencies=[needs(ADMIN)], status_code=202)
def plan(request: Request, asked: Ask, kind: Annotated[str, Body(embed=True)], key: Key = None) -> dict[str, Any]:
    """What a task of upkeep would do, as a job whose result is the plan: it changes nothing."""
    return _job(request, asked, (*_command(kind), "--dry-run"), key)


@router.post("/plans/{kind}/apply", dependencies=[needs(ADMIN)], status_code=202)
def apply(request: Request, asked: Ask, kind: str, key: Key = None) -> dict[str, Any]:
    """Do it. One that was cut short goes on: the same call resumes it."""
    return _job(request, asked, _command(kind), key)


def _command(kind: str) -> tuple[str, ...]:
    if kind not in PLANS:
        raise InvalidRequest(f"{kind} is not planned here. These are: {', '.join(PLANS)}.")
    return PLANS[kind]


def _job(request: Request, asked: Asked, command: tuple[str, ...], key: str | None) -> dict[str, Any]:
    started: dict[str, Any] = request.app.state.jobs.start(command, f"token {asked.visitor.token}", key)
    return started


@router.get("/jobs", dependencies=[needs(WRITER)])
def jobs(request: Request, asked: Ask) -> dict[str, Any]:
    """What was started here and what became of it, the latest first."""
    asked.require_whole_lake()
    return {"jobs": request.app.state.jobs.list()}


@router.get("/jobs/{number}", dependencies=[needs(WRITER)])
def job(request: Request, asked: Ask, number: int) -> dict[str, Any]:
    """One of them."""
    asked.require_whole_lake()
    found: dict[str, Any] = request.app.state.jobs.find(number)
    return found


@router.delete("/jobs/{number}", dependencies=[needs(ADMIN)])
def stop_job(request: Request, asked: Ask, number: int) -> dict[str, Any]:
    """As Ctrl-C: it ends after what it has in hand; the same call again goes on with what is left."""
    stopped: dict[str, Any] = request.app.state.jobs.stop(number)
    return stopped


@router.get("/tokens", dependencies=[needs(ADMIN)])
def tokens(asked: Ask) -> dict[str, Any]:
    """Who may look in, without what would let anybody in."""
    return {"tokens": asked.lake.access.list()}


@router.post("/tokens", dependencies=[needs(ADMIN)], status_code=201)
def make_token(
    asked: Ask,
    role: Annotated[str, Body(embed=True)] = READER,
    name: Annotated[str, Body(embed=True, max_length=100)] = "",
    customers: Annotated[list[str] | None, Body(embed=True)] = None,
    days: Annotated[float | None, Body(embed=True, gt=0, le=3_650)] = None,
) -> dict[str, Any]:
    """A token, told this once."""
    return asked.lake.access.make(role, name=name, customers=customers or (), days=days)


@router.delete("/tokens/{id}", dependencies=[needs(ADMIN)])
def revoke_token(asked: Ask, id: str) -> dict[str, Any]:
    """From the next call on it lets nobody in."""
    return asked.lake.access.revoke(id)


@router.get("/audit", dependencies=[needs(ADMIN)])
def audit(asked: Ask, limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 100) -> dict[str, Any]:
    """Calls that were refused or changed something, the latest first."""
    return {"audit": asked.lake.access.audit(limit=limit)}


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
