"""API v1: every endpoint once right and once wrong, pages that lose no row, keys that make twice once, jobs, plans."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest
from lakes import CALL, CALL_BYTES, CALL_CHUNK, SCREEN, parts_of, small_lake
from sample_rows import append, rows
from served import address_of, client_of, error_of, token_of
from starlette.testclient import TestClient
from waiting import wait_until

import headwater
from headwater.domain.access import READER, WRITER
from headwater.domain.tables import EVENTS, TABLES
from headwater.web.api.reading import ARROW
from headwater.web.jobs import Jobs
from headwater.web.plans import command_of

V1 = "/api/v1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("small") / "lake")


@pytest.fixture(scope="module")
def admin(made: Path) -> Iterator[TestClient]:
    with client_of(made) as client:
        yield client


@pytest.fixture(scope="module")
def acme(made: Path) -> Iterator[TestClient]:
    with client_of(made, WRITER, "acme") as client:
        yield client


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    """A lake of this test alone, to be changed."""
    return small_lake(tmp_path / "lake")


READS = {
    "/search?q=refund": "hits",
    "/objects": "objects",
    f"/objects/{CALL}": "texts",
    f"/trace/{CALL_CHUNK}": "event",
    "/customers": "customers",
    "/tables": "tables",
    "/tables/events": "rows",
    "/status": "tables",
    "/flow": "stages",
    "/models": "models",
    "/quarantine": "reasons",
    "/runs": "runs",
    "/health": "status",
    "/jobs": "jobs",
    "/tokens": "tokens",
    "/audit": "audit",
}
WRONG = {
    "/search": (400, "InvalidRequest"),
    "/search?q=refund&limit=0": (400, "InvalidRequest"),
    "/search?q=refund&since=yesterday": (400, "InvalidRequest"),
    "/search?q=refund&where=mood": (400, "InvalidRequest"),
    "/objects?limit=1000": (400, "InvalidRequest"),
    "/objects?before=-1": (400, "InvalidRequest"),
    "/objects/nobody": (404, "NotFound"),
    "/trace/nobody": (404, "NotFound"),
    "/threads/nobody": (404, "NotFound"),
    "/tables/nobody": (404, "NotFound"),
    "/tables/events?limit=1000000": (400, "InvalidRequest"),
    "/tables/events?as_of=nobody": (404, "NotFound"),
    "/quarantine?reason=NOBODY": (400, "InvalidRequest"),
    "/runs?limit=x": (400, "InvalidRequest"),
    "/jobs/99": (404, "NotFound"),
    "/jobs/first": (400, "InvalidRequest"),
    "/plans/99": (404, "NotFound"),
    "/nobody": (404, "NotFound"),
}
CHANGES: dict[str, tuple[str, Any]] = {
    "/sql": ("query", {"query": "select nothing from nowhere"}),
    "/labels/nobody": ("labels", {"labels": {"mood": "angry"}}),
    "/models/transcribe/active": ("model", {"model": "nobody"}),
    "/quarantine/dismissals": ("ids", {"ids": ["nobody"], "because": "old"}),
    "/plans": ("kind", {"kind": "nobody"}),
    "/plans/nobody/apply": ("kind", {}),
    "/tokens": ("role", {"role": "nobody"}),
}


@pytest.mark.parametrize(("path", "member"), READS.items())
def test_what_only_reads_answers_with_its_json(admin: TestClient, path: str, member: str) -> None:
    answer = admin.get(V1 + path)
    assert answer.status_code == 200, answer.text
    assert member in answer.json()


def test_metrics_are_text_that_says_what_it_is(admin: TestClient) -> None:
    answer = admin.get(f"{V1}/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize(("path", "expected"), WRONG.items())
def test_what_is_asked_wrongly_is_refused_in_one_shape(admin: TestClient, path: str, expected: tuple[int, str]) -> None:
    assert error_of(admin.get(V1 + path)) == expected


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_that_cannot_be_is_refused_in_one_shape(admin: TestClient, path: str) -> None:
    status, _ = error_of(admin.post(V1 + path, json=CHANGES[path][1]))
    assert status in {400, 404}
    assert error_of(admin.post(V1 + path, content=b"{", headers={"Content-Type": "application/json"}))[0] in {400, 404}
    assert error_of(admin.put(V1 + path, json={}))[0] == 405


def test_no_token_and_a_wrong_one_are_refused_in_the_same_shape(admin: TestClient) -> None:
    for token in ("", "Bearer hw_1_wrong", "Basic abc"):
        assert error_of(admin.get(f"{V1}/search?q=x", headers={"Authorization": token})) == (401, "NoToken")


def test_what_is_of_all_customers_is_not_there_for_who_sees_one(acme: TestClient, made: Path) -> None:
    whole = [*READS, "/sql", "/plans", "/metrics"]
    seen = {path for path in READS if acme.get(V1 + path).status_code == 200}
    assert seen == {"/search?q=refund", "/objects", f"/objects/{CALL}", f"/trace/{CALL_CHUNK}", "/customers", "/health"}
    assert {error_of(acme.get(V1 + path)) for path in whole if path not in seen} <= {
        (404, "NotFound"),
        (405, "MethodNotAllowed"),
    }
    for path in (f"/objects/{SCREEN}", f"/trace/{SCREEN}"):
        assert error_of(acme.get(V1 + path)) == (404, "NotFound")
    assert {hit["customer"] for hit in acme.get(f"{V1}/search?q=bad+gateway+refund").json()["hits"]} <= {"acme"}
    assert error_of(acme.post(f"{V1}/objects", data={"customer": "globex", "text": "hi"})) == (404, "NotFound")


def test_a_reader_changes_nothing(made: Path) -> None:
    with client_of(made, READER) as reader:
        for path in ("/runs", "/plans", "/objects", "/tokens", "/quarantine/dismissals"):
            sent = {"data": {"customer": "acme"}} if path == "/objects" else {"json": CHANGES.get(path, (0, {}))[1]}
            assert error_of(reader.post(V1 + path, **sent)) == (404, "NotFound"), path  # type: ignore[arg-type]


def pages(client: TestClient, path: str, rows: str) -> Iterator[list[dict[str, Any]]]:
    before: int | None = None
    while True:
        found = client.get(path, params={"limit": 3, **({} if before is None else {"before": before})}).json()
        yield found[rows]
        if (before := found["next"]) is None:
            return


@pytest.mark.parametrize("path", ["/tables/events", "/objects"])
def test_page_after_page_has_each_row_once_while_rows_arrive(directory: Path, path: str) -> None:
    def arrive(first: int) -> None:
        with headwater.open(directory) as lake:
            given = [
                {"event_id": f"n{number}", "object_id": f"chat/acme/n{number}"} for number in range(first, first + 2)
            ]
            append(parts_of(lake).catalog.load_table(EVENTS.name), rows(EVENTS, given, first), EVENTS.day)

    for first in range(3, 11, 2):
        arrive(first)
    seen = []
    with client_of(directory) as client:
        for number, page in enumerate(pages(client, V1 + path, path.rpartition("/")[2].replace("events", "rows"))):
            seen += [row["seq"] for row in page]
            arrive(20 + 2 * number)
    assert seen == list(range(10, -1, -1))


@pytest.mark.parametrize("table", [table.short_name for table in TABLES])
def test_a_page_of_arrow_has_the_tables_own_types(admin: TestClient, made: Path, table: str) -> None:
    answer = admin.get(f"{V1}/tables/{table}?vectors=true&limit=1", headers={"Accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    page = pa.ipc.open_stream(answer.content).read_all()
    with headwater.open(made) as lake:
        assert page.schema.equals(lake.table(table).table.schema)
        assert answer.headers.get("Headwater-Next") == (str(page["seq"][0]) if len(page) else None)
    assert "vector" not in admin.get(f"{V1}/tables/{table}").json()["columns"]


def test_a_page_of_nothing_is_one(admin: TestClient) -> None:
    answer = admin.get(f"{V1}/tables/events?before=0", headers={"Accept": ARROW})
    assert len(pa.ipc.open_stream(answer.content).read_all()) == 0
    assert "Headwater-Next" not in answer.headers
    assert admin.get(f"{V1}/tables/events?before=0").json()["rows"] == []


def test_sql_says_when_there_are_more_rows_than_were_asked_for(admin: TestClient) -> None:
    def ask(query: str, limit: int) -> Any:
        return admin.post(f"{V1}/sql", json={"query": query, "limit": limit}).json()

    found = ask("select * from range(100000) as numbers(n)", 5)
    assert (len(found["rows"]), found["more"]) == (5, True)
    found = ask("select * from range(25000) as numbers(n)", 25_000)
    assert (len(found["rows"]), found["more"]) == (25_000, False)
    assert ask("select * from range(25000) as numbers(n)", 10_000)["more"]


def test_a_query_that_never_ends_is_cut_off(admin: TestClient) -> None:
    slow = "select count(*) from range(10000000) a, range(10000000) b"
    answer = admin.post(f"{V1}/sql", json={"query": slow, "timeout_seconds": 1})
    assert error_of(answer) == (400, "InvalidRequest")
    assert "took longer than 1 s" in answer.json()["error"]["message"]


def put(client: TestClient, key: str, **sent: Any) -> Any:
    return client.post(f"{V1}/objects", headers={"Idempotency-Key": key}, **sent)


def log_count(directory: Path) -> int:
    with headwater.open(directory) as lake:
        return lake.pending().bronze


def test_the_same_key_twice_is_one_text_also_after_a_restart(directory: Path) -> None:
    hello = {"data": {"customer": "acme", "text": "hello again"}}
    ids = set()
    for _ in range(2):
        with client_of(directory) as client:
            for _ in range(2):
                answer = put(client, "k-1", **hello)
                assert answer.status_code == 201
                ids.add(answer.json()["results"][0]["id"])
            other = put(client, "k-1", data={"customer": "acme", "text": "something else"})
            assert error_of(other) == (409, "Conflict")
    assert ids == {"k-1"}
    with client_of(directory) as client:  # of another server, which knows of no call
        assert error_of(put(client, "k-1", data={"customer": "acme", "text": "a third"})) == (409, "Conflict")


def test_the_same_key_twice_is_one_file_and_another_file_under_it_is_refused(directory: Path) -> None:
    def file(content: bytes) -> dict[str, Any]:
        return {"data": {"customer": "acme"}, "files": {"files": ("new.wav", content)}}

    for expected in ("stored", "already_there"):
        with client_of(directory) as client:
            assert put(client, "k-2", **file(CALL_BYTES)).json()["results"][0]["status"] == expected
            assert put(client, "k-2", **file(CALL_BYTES)).json()["results"][0]["status"] == "already_there"
            assert error_of(put(client, "k-2", **file(b"RIFF of another"))) == (409, "Conflict")
            assert put(client, "k-3", **file(CALL_BYTES)).status_code == 201


def test_another_callers_key_is_another_key(directory: Path) -> None:
    for number in range(2):
        with client_of(directory) as client:
            assert put(client, "k", data={"customer": f"c{number}", "text": "hello"}).status_code == 201


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"data": {"customer": "acme"}}, "Put what?"),
        ({"data": {"text": "hello"}}, "customer"),
        ({"data": {"customer": "acme", "text": "x"}, "files": {"files": ("a.wav", b"RIFF")}}, "not both"),
        ({"data": {"customer": "acme"}, "files": {"files": ("..", b"RIFF")}}, "file's name"),
    ],
)
def test_what_cannot_be_put_is_refused(admin: TestClient, sent: dict[str, Any], says: str) -> None:
    answer = admin.post(f"{V1}/objects", **sent)
    assert error_of(answer)[0] == 400
    assert says in answer.json()["error"]["message"]


def test_of_several_files_each_has_its_result(directory: Path) -> None:
    with client_of(directory, WRITER, "acme") as client:
        files = [("files", ("a.wav", CALL_BYTES)), ("files", ("b.strange", b"what is it"))]
        found = client.post(f"{V1}/objects", data={"customer": "acme"}, files=files)
        assert [result["status"] for result in found.json()["results"]] == ["stored", "failed"]
        assert found.json()["results"][1]["error"]["kind"] == "InvalidRequest"


def test_labels_are_said_and_taken_back(directory: Path) -> None:
    with client_of(directory, WRITER, "acme") as client:
        said = client.post(f"{V1}/labels/{CALL}", json={"labels": {"mood": "angry"}})
        assert said.status_code == 200, said.text
        assert "angry" in client.get(f"{V1}/objects/{CALL}").text
        assert error_of(client.post(f"{V1}/labels/{SCREEN}", json={"labels": {"mood": "calm"}})) == (404, "NotFound")


def test_rows_are_dismissed_and_that_is_taken_back(directory: Path) -> None:
    with client_of(directory) as client:
        for undo in (False, True):
            answer = client.post(f"{V1}/quarantine/dismissals", json={"ids": ["e3"], "because": "a test", "undo": undo})
            assert answer.status_code == 200, answer.text
            assert len(client.get(f"{V1}/quarantine").json()["reasons"]) == int(undo)


def test_a_token_lets_in_until_it_is_revoked(directory: Path) -> None:
    with client_of(directory) as client:
        made = client.post(f"{V1}/tokens", json={"role": "reader", "customers": ["acme"], "days": 1}).json()
        with_it = {"Authorization": f"Bearer {made['token']}"}
        assert client.get(f"{V1}/customers", headers=with_it).json()["customers"][0]["customer"] == "acme"
        assert "token" not in client.get(f"{V1}/tokens").json()["tokens"][0]
        assert client.delete(f"{V1}/tokens/{made['id']}").status_code == 200
        assert error_of(client.get(f"{V1}/customers", headers=with_it)) == (401, "NoToken")


def ended(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    def look() -> Any:
        found = client.get(f"{V1}/jobs/{job['id']}").json()
        return found if found["exit_code"] is not None else None

    found: dict[str, Any] = wait_until(look)
    return found


def test_a_plan_is_a_job_whose_result_is_the_plan(directory: Path) -> None:
    plans = {
        "maintain": ({}, "tables"),
        "retry": ({"reason": "TRUNCATED"}, "reasons"),
        "replay": ({"step": "embed", "model": "lexical"}, "quote"),
    }
    with client_of(directory) as client:
        for kind, (options, member) in plans.items():
            begun = client.post(f"{V1}/plans", json={"kind": kind, "options": options})
            assert begun.status_code == 202, begun.text
            done = ended(client, begun.json())
            assert (done["exit_code"], done["error"]) == (0, None), done
            shown = client.get(f"{V1}/plans/{done['id']}").json()
            assert member in shown["result"], shown
        assert not client.get(f"{V1}/runs").json()["runs"]


def test_a_plan_that_cannot_be_tells_why_with_its_job(directory: Path) -> None:
    with client_of(directory) as client:
        options = {"step": "embed", "model": "nobody"}
        done = ended(client, client.post(f"{V1}/plans", json={"kind": "replay", "options": options}).json())
        assert done["result"] is None
        assert set(done["error"]) == {"kind", "message", "retryable"}


def test_no_value_of_a_plan_is_taken_for_an_option() -> None:
    planned = command_of("retire", {"step": "--yes", "model": "--lake=/"}, dry_run=True)
    assert planned == ("retire", "--dry-run", "--", "--yes", "--lake=/")
    assert command_of("retry", {"reason": "--all"}, dry_run=False) == ("retry", "--reason=--all")


def test_the_same_key_is_the_same_job_and_another_command_under_it_is_refused(directory: Path) -> None:
    with client_of(directory) as client:
        key = {"Idempotency-Key": "plan-1"}
        first = client.post(f"{V1}/plans", json={"kind": "maintain"}, headers=key).json()
        assert client.post(f"{V1}/plans", json={"kind": "maintain"}, headers=key).json()["id"] == first["id"]
        again = client.post(f"{V1}/plans", json={"kind": "rescan"}, headers=key)
        assert error_of(again) == (409, "Conflict")
        assert len(client.get(f"{V1}/jobs").json()["jobs"]) == 1
        ended(client, first)


def test_a_job_that_is_stopped_ends(directory: Path) -> None:
    with client_of(directory) as client:
        client.post(f"{V1}/objects", data={"customer": "acme", "text": "a line that waits"})
        begun = client.post(f"{V1}/runs").json()
        wait_until(lambda: "Spark" in client.get(f"{V1}/jobs/{begun['id']}").json()["said"])
        assert client.delete(f"{V1}/jobs/{begun['id']}").status_code == 200
        assert ended(client, begun)["exit_code"] in {0, 130}
        assert error_of(client.delete(f"{V1}/jobs/99")) == (404, "NotFound")


def test_a_server_that_ends_stops_its_job_and_the_next_run_goes_on(directory: Path) -> None:
    with client_of(directory) as client:
        for number in range(3):
            client.post(f"{V1}/objects", data={"customer": "acme", "text": f"line {number}"})
        begun, second = client.post(f"{V1}/runs").json(), client.post(f"{V1}/runs").json()
        told = wait_until(lambda: next((job for job in (ended(client, second),) if job), None))
        late = told if told["error"] else ended(client, begun)
        assert late["error"] is None or late["error"]["kind"] == "Conflict"
    jobs = Jobs(directory)
    try:
        number = jobs.start(("run", "--once"), "a test")["id"]
        wait_until(lambda: jobs.find(number)["said"] or jobs.find(number)["exit_code"] is not None)
    finally:
        jobs.close()
    assert jobs.find(number)["exit_code"] in {0, 130, -15}
    with client_of(directory) as client:
        assert ended(client, client.post(f"{V1}/runs").json())["exit_code"] == 0
        assert client.get(f"{V1}/search?q=line").json()["hits"]
        assert client.get(f"{V1}/flow").json()["stages"][1]["pending"] == 0


def test_a_server_that_is_told_to_end_takes_its_job_along(directory: Path) -> None:
    given = [sys.executable, "-m", "headwater", "--lake", str(directory), "--json", "serve", "--port", "0"]
    with headwater.open(directory) as lake:
        for number in range(3):
            lake.put_text(f"line {number}", customer="acme")
    with subprocess.Popen(given, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        job = headwater.connect(told["address"], told["token"]).run()
        wait_until(lambda: job.state()["said"])
        server.send_signal(signal.SIGTERM)
    wait_until(lambda: not runs_at_work(directory))
    with headwater.open(directory) as lake:
        assert lake.access.list()[-1]["revoked_at"]
        lake.run()
        assert lake.pending().bronze == 0
        assert len(lake.search("line", customer="acme").hits) >= 3


def runs_at_work(directory: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [line for line in found if "\0run\0" in line and str(directory) in line]


def test_many_who_ask_at_once_are_all_answered(made: Path) -> None:
    """More than the server has threads: none of those who wait keeps one from who has a lake."""
    headers = {"Authorization": f"Bearer {token_of(made, READER)}"}
    with address_of(made) as address, ThreadPoolExecutor(60) as clients:

        def ask(number: int) -> int:
            path = ("search?q=refund", "customers", "status", "objects")[number % 4]
            return httpx2.get(f"{address}{V1}/{path}", headers=headers, timeout=25).status_code

        assert set(clients.map(ask, range(180))) == {200}
