"""What changes the lake: at once where it is small, else by a command that runs as a job: planned, then applied."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, File, Form, Request, UploadFile

from headwater.domain.access import ADMIN, WRITER
from headwater.errors import InvalidRequest, NotFound
from headwater.web.api.asking import Ask, Key, needs
from headwater.web.asked import Asked
from headwater.web.plans import command_of
from headwater.web.uploads import put_uploads

router = APIRouter()
Options = Annotated[dict[str, str] | None, Body(embed=True)]
_TEXT_LETTERS: Final = 100_000


@router.post("/models/{step}/active", dependencies=[needs(ADMIN)])
def activate(asked: Ask, step: str, model: Annotated[str, Body(embed=True)]) -> dict[str, Any]:
    """Let readers see this model's rows from now on; flipping back is the same call with the other."""
    return asked.lake.models.activate(step, model)


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
    """Files, or a chat line, of one customer. The same bytes under the same name again change nothing, and neither
    does the same call with the same `Idempotency-Key`; another call with it is a Conflict. A text without an id has its
    key as one."""
    if not asked.visitor.sees(customer):
        raise NotFound(f"There is no customer {customer} here.")

    def check(digest: str) -> None:
        if key is not None:
            request.app.state.keys.check(asked.visitor.token, key, digest)

    about: dict[str, Any] = {"customer": customer, "id": id or (key if text else None), "thread": thread}
    return {"results": put_uploads(asked.lake, files or [], text, **about, check=check)}


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


@router.post("/runs", dependencies=[needs(WRITER)], status_code=202)
def run(request: Request, asked: Ask, key: Key = None) -> dict[str, Any]:
    """Bring what waits through the stages, once, as a job."""
    started: dict[str, Any] = request.app.state.jobs.start(("run", "--once"), f"token {asked.visitor.token}", key)
    return started


@router.post("/plans", dependencies=[needs(ADMIN)], status_code=202)
def plan(
    request: Request, asked: Ask, kind: Annotated[str, Body(embed=True)], options: Options = None, key: Key = None
) -> dict[str, Any]:
    """What it would do, as a job whose result is the plan: maintain, rescan, upgrade, retry, retire, or the quote of a
    replay. It changes nothing."""
    return _job(request, asked, command_of(kind, options or {}, dry_run=True), key)


@router.get("/plans/{number}", dependencies=[needs(ADMIN)])
def show_plan(request: Request, asked: Ask, number: int) -> dict[str, Any]:
    """A plan that was made here, with its `result` once it is there."""
    found: dict[str, Any] = request.app.state.jobs.find(number)
    return found


@router.post("/plans/{kind}/apply", dependencies=[needs(ADMIN)], status_code=202)
def apply(request: Request, asked: Ask, kind: str, options: Options = None, key: Key = None) -> dict[str, Any]:
    """Do it. One that was cut short goes on: the same call resumes it. With its kind go the options of its plan."""
    return _job(request, asked, command_of(kind, options or {}, dry_run=False), key)


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
