"""A lake that a `headwater serve` elsewhere holds, by the lake's own method names: the same shapes, the same errors.

lake = headwater.connect("https://lake.example.com", token)
for hit in lake.search("refund"):
    print(hit.snippet)
"""

import glob
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.clock import Moment, to_moment, to_text
from headwater.domain.ref import AsOf, to_ref
from headwater.domain.shown import ShownObject
from headwater.errors import InvalidRequest, Unavailable
from headwater.remote_http import TIMEOUT_SECONDS, Connection, Form, facts, made, path_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from headwater.flow.answer import SearchAnswer
    from headwater.flow.landed import Landed

ARROW: Final = "application/vnd.apache.arrow.stream"
_ROWS_AT_ONCE: Final = 5_000
_SQL_ROWS_MAX: Final = 100_000
_LOOK_SECONDS: Final = 0.5


def connect(url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> "RemoteLake":
    """A lake that `headwater serve` holds at this address: search, trace, put, run and more, by the same names. What
    can be tried again is tried again; each answer may take `timeout_seconds`."""
    return RemoteLake(Connection(url, token, timeout_seconds=timeout_seconds))


class RemoteLake:
    """What its token may see and do. Nothing is held open, so there is nothing to close; threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"headwater.connect({self._connection.url!r}, …)"

    def search(
        self,
        query: str,
        *,
        customer: str | None = None,
        modality: str | None = None,
        speaker: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        where: Mapping[str, Any] | Sequence[str] | None = None,
        thread: str | None = None,
        limit: int = 10,
    ) -> "SearchAnswer":
        """Hits, best first: `for hit in lake.search("refund")`."""
        from headwater.flow.answer import from_dict

        asked = {"q": query, "speaker": speaker, **_chosen(customer, modality, since, until, thread, where, limit)}
        return from_dict(self._connection.get(path_of("search"), asked))

    def ls(
        self,
        *,
        customer: str | None = None,
        modality: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        thread: str | None = None,
        where: Mapping[str, Any] | Sequence[str] | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> dict[str, Any]:
        """The objects, the last that came first: `{"objects": [{…}], "next"}`; `next` is the next page's `before`."""
        asked = _chosen(customer, modality, since, until, thread, where, limit)
        return self._get("objects", before=before, **asked)

    def trace(self, id: str, *, customer: str | None = None, as_of: AsOf | None = None) -> dict[str, Any]:
        """From any id to its source, and to everything made of it."""
        return ShownObject(self._get("trace", id, customer=customer, as_of=_ref(as_of)))

    def view(self, id: str, *, customer: str | None = None, as_of: AsOf | None = None) -> dict[str, Any]:
        """As `trace`, with what every model said of the object, side by side, and what that took."""
        return ShownObject(self._get("objects", id, customer=customer, as_of=_ref(as_of)))

    def thread(self, id: str, *, customer: str | None = None) -> dict[str, Any]:
        """A conversation: its objects in the order in which they happened, with what each says."""
        return self._get("threads", id, customer=customer)

    def get(self, id: str, *, customer: str | None = None) -> Iterator[bytes]:
        """The raw bytes behind an id or a path, in pieces."""
        from urllib.parse import quote

        return self._connection.stream(f"/media/{quote(id)}", {"customer": customer, "download": 1})

    def customers(self) -> list[dict[str, Any]]:
        """Whose objects there are: how many, how large, from when to when."""
        return list(self._get("customers")["customers"])

    def status(self) -> dict[str, Any]:
        """Tables, log, index and quarantine in numbers."""
        return self._get("status")

    def flow(self) -> list[dict[str, Any]]:
        """The map: each stage, what it reads and writes, and how much waits before it."""
        return list(self._get("flow")["stages"])

    def journal(self, *, limit: int = 50) -> list[dict[str, Any]]:
        """What was run, the latest first."""
        return list(self._get("runs", limit=limit)["runs"])

    def quarantine(self, reason: str | None = None) -> dict[str, Any]:
        """What could not be processed, by reason, with the way out of each."""
        return self._get("quarantine", reason=reason)

    def table(self, name: str, *, as_of: AsOf | None = None) -> "RemoteTable":
        """One table: `lake.table("transcripts").to_pandas()`."""
        return RemoteTable(self._connection, name, _ref(as_of))

    def show(self, name: str, *, limit: int = 10, as_of: AsOf | None = None) -> dict[str, Any]:
        """The newest rows of a table, vectors left out: `{"table", "columns", "rows"}`."""
        found = self._get("tables", name, limit=limit, as_of=_ref(as_of))
        return {part: found[part] for part in ("table", "columns", "rows")}

    def sql(
        self,
        query: str,
        *,
        timeout_seconds: float | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """One statement that only reads: `{"columns", "rows"}`, and with a `limit` whether there are `more`."""
        body = {"query": query, "limit": limit or _SQL_ROWS_MAX, "as_of": _ref(as_of)}
        if timeout_seconds is not None:
            body["timeout_seconds"] = timeout_seconds
        found: dict[str, Any] = self._connection.post(path_of("sql"), body)
        if limit is None and found.pop("more"):
            raise InvalidRequest(
                f"The answer has more than {_SQL_ROWS_MAX:,} rows. Name a limit, or read lake.table(…).to_arrow()."
            )
        return found

    def put(
        self,
        *patterns: str | Path,
        customer: str,
        id: str | None = None,
        thread: str | None = None,
        collect: bool = False,
    ) -> "list[Landed]":
        """Send files, directories or globs; one result for each file. When all are sent, the first that failed is
        raised; with `collect`, failures are results too. The same file again changes nothing."""
        from headwater.flow.landed import require_landed

        about = {"customer": customer, "id": id, "thread": thread}
        landed = [self._sent(Form(about, file), str(file)) for file in _files(patterns)]
        return landed if collect else require_landed(landed)

    def put_text(self, text: str, *, customer: str, id: str | None = None, thread: str | None = None) -> "Landed":
        """A chat line. Conflict where the customer's id is known to be another text's."""
        from headwater.flow.landed import require_landed

        about = {"customer": customer, "id": id or str(uuid.uuid4()), "thread": thread, "text": text}
        return require_landed([self._sent(Form(about), "text")])[0]

    def label(
        self,
        id: str,
        labels: Mapping[str, str] | None = None,
        *,
        remove: Sequence[str] = (),
        customer: str | None = None,
    ) -> dict[str, Any]:
        """Say more of an object: `lake.label(id, {"mood": "angry"})`; `remove` takes labels back."""
        body = {"labels": dict(labels or {}), "remove": list(remove)}
        found: dict[str, Any] = self._connection.post(path_of("labels", id), body, {"customer": customer})
        return found

    def run(self) -> "RemoteJob":
        """Bring what waits through the stages, once; `lake.run().wait()` answers with what was done."""
        return self._job(path_of("runs"), {})

    def plan(self, kind: str, **options: str) -> "RemoteJob":
        """What a task would do, changing nothing: `lake.plan("replay", step="embed", model="lexical").wait()`."""
        return self._job(path_of("plans"), {"kind": kind, "options": options})

    def apply(self, kind: str, **options: str) -> "RemoteJob":
        """Do it, or go on with one that was cut short."""
        return self._job(path_of("plans", kind, "apply"), {"options": options})

    def _get(self, *parts: str, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._connection.get(path_of(*parts), query)
        return found

    def _job(self, path: str, body: Mapping[str, Any]) -> "RemoteJob":
        return RemoteJob(self._connection, self._connection.post(path, body, key=True)["id"])

    def _sent(self, form: Form, source: str) -> "Landed":
        import json

        from headwater.domain.event import Event
        from headwater.flow.landed import Landed

        (told,) = json.loads(self._connection.read("POST", path_of("objects"), None, form))["results"]
        event, error = told["event"], told["error"]
        return Landed(
            source,
            told["status"].replace("_", " "),
            Event.from_dict(event) if event else None,
            made(error["kind"], error["message"]) if error else None,
            told["reason"],
        )


class RemoteTable:
    """One table of a remote lake, in the form that its reader works with."""

    def __init__(self, connection: Connection, name: str, as_of: str | None) -> None:
        self._connection = connection
        self._name = name
        self._as_of = as_of

    def page(self, *, limit: int = 100, before: int | None = None, vectors: bool = False) -> "pa.Table":
        """The newest rows, the newest first; those of a `seq` below `before` follow on."""
        return self._page(limit, before, vectors)[0]

    def to_arrow(self) -> "pa.Table":
        """All of it, page by page, in the order of `seq`."""
        import pyarrow as pa

        pages, before, more = list[Any](), None, True
        while more:
            page, before = self._page(_ROWS_AT_ONCE, before, True)
            pages.append(page)
            more = before is not None
        return pa.concat_tables(pages).sort_by("seq")

    def to_pandas(self) -> "pd.DataFrame":
        return self.to_arrow().to_pandas()

    def _page(self, limit: int, before: int | None, vectors: bool) -> "tuple[pa.Table, int | None]":
        import pyarrow as pa

        asked = {"limit": limit, "before": before, "as_of": self._as_of, "vectors": str(vectors).lower()}
        body, headers = self._connection.read_with_headers(
            "GET", path_of("tables", self._name), asked, None, {"Accept": ARROW}
        )
        following = headers.get("Headwater-Next")
        return pa.ipc.open_stream(body).read_all(), int(following) if following else None


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A command that the server runs. It goes on whether somebody waits or not."""

    _connection: Connection
    id: int

    def state(self) -> dict[str, Any]:
        """`{"id", "command", "by", "begun_at", "ended_at", "exit_code", "said", "result", "error"}`."""
        found: dict[str, Any] = self._connection.get(path_of("jobs", str(self.id)))
        return found

    def wait(self, *, timeout_seconds: float | None = None, report: Callable[[str], None] | None = None) -> Any:
        """Its result, or its error; `report` hears each line that it says. Unavailable where time is up first."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        said = ""
        while (state := self.state())["exit_code"] is None:
            if report and state["said"] != said:
                report(said := state["said"])
            if deadline is not None and time.monotonic() >= deadline:
                raise Unavailable(f"Job {self.id} is still at work: {state['said']}. Wait for it again.")
            time.sleep(_LOOK_SECONDS)
        if state["error"]:
            raise made(state["error"]["kind"], state["error"]["message"])
        return state["result"]

    def stop(self) -> dict[str, Any]:
        """As Ctrl-C: it ends after what it has in hand."""
        found: dict[str, Any] = self._connection.delete(path_of("jobs", str(self.id)))
        return found


def _chosen(
    customer: str | None,
    modality: str | None,
    since: Moment | None,
    until: Moment | None,
    thread: str | None,
    where: Mapping[str, Any] | Sequence[str] | None,
    limit: int,
) -> dict[str, Any]:
    moments = {"since": to_moment(since), "until": to_moment(until)}
    times = {name: to_text(at) if at else None for name, at in moments.items()}
    only = {"customer": customer, "modality": modality, "thread": thread, "where": facts(where)}
    return {**only, **times, "limit": limit}


def _ref(as_of: AsOf | None) -> str | None:
    ref = to_ref(as_of)
    return str(ref) if ref else None


def _files(patterns: Sequence[str | Path]) -> Iterator[Path]:
    for pattern in patterns:
        path = Path(pattern)
        if path.is_file():
            yield path
        elif path.is_dir():
            yield from sorted(each for each in path.rglob("*") if each.is_file() and not each.is_symlink())
        elif found := sorted(glob.glob(str(pattern), recursive=True)):
            yield from (Path(each) for each in found if Path(each).is_file())
        else:
            raise InvalidRequest(f"There is no file {pattern}. Name a file, a directory or a glob.")
