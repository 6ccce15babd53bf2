"""`headwater.connect`: what a lake answers far away is what it answers here: the same values, the same errors."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lakes import CALL, CALL_BYTES, CALL_CHUNK, SCREEN, small_lake
from served import address_of, token_of

import headwater
from headwater.domain.access import READER
from headwater.errors import AccessRefused, Conflict, HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.lake import Lake
from headwater.remote_http import Connection
from headwater.remote_lake import RemoteLake

SAME: dict[str, Callable[[Any], Any]] = {
    "search": lambda lake: lake.search("refund", customer="acme").to_dict(),
    "search by time": lambda lake: lake.search("refund", since="2026-01-01", until="2999-01-01").to_dict(),
    "search as a table": lambda lake: lake.search("refund").to_pandas().to_dict(),
    "trace": lambda lake: lake.trace(CALL_CHUNK),
    "view": lambda lake: lake.view(CALL, customer="acme"),
    "ls": lambda lake: lake.ls(customer="acme", limit=1),
    "ls, second page": lambda lake: lake.ls(limit=1, before=2),
    "customers": lambda lake: lake.customers(),
    "status": lambda lake: {**lake.status(), "tables": None},
    "flow": lambda lake: lake.flow(),
    "journal": lambda lake: lake.journal(),
    "quarantine": lambda lake: lake.quarantine(),
    "show": lambda lake: lake.show("events", limit=2),
    "sql": lambda lake: lake.sql("select customer, count(*) as n from events group by 1 order by 1"),
    "sql, limited": lambda lake: lake.sql("from range(10)", limit=3),
    "get": lambda lake: b"".join(lake.get(CALL)),
    "page": lambda lake: lake.table("events").page(limit=2),
    "embeddings": lambda lake: lake.table("embeddings").to_arrow().sort_by("seq"),
    "pandas": lambda lake: lake.table("events").to_pandas().sort_values("seq").to_dict("records"),
}
WRONG: dict[str, Callable[[Any], Any]] = {
    "trace": lambda lake: lake.trace("nobody"),
    "view": lambda lake: lake.view(SCREEN, customer="acme"),
    "thread": lambda lake: lake.thread("nobody"),
    "table": lambda lake: lake.table("nobody").to_arrow(),
    "past": lambda lake: lake.show("events", as_of="nobody"),
    "time": lambda lake: lake.search("refund", since="yesterday"),
    "sql": lambda lake: lake.sql("drop table events"),
    "slow": lambda lake: lake.sql("select count(*) from range(10000000) a, range(10000000) b", timeout_seconds=0.5),
    "quarantine": lambda lake: lake.quarantine("NOBODY"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("small") / "lake")


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    with address_of(directory) as address:
        yield address


@pytest.fixture(scope="module")
def remote(directory: Path, address: str) -> RemoteLake:
    return headwater.connect(address, token_of(directory))


@pytest.fixture(scope="module")
def here(directory: Path) -> Iterator[Lake]:
    with headwater.open(directory) as lake:
        yield lake


@pytest.mark.parametrize("name", SAME)
def test_it_answers_as_the_lake_itself_does(remote: RemoteLake, here: Lake, name: str) -> None:
    far, near = SAME[name](remote), SAME[name](here)
    assert far.equals(near) if hasattr(near, "equals") else plain(far) == plain(near)


def plain(value: Any) -> Any:
    """As JSON has it; bytes as they are."""
    return value if isinstance(value, bytes) else json.loads(json.dumps(value, default=str))


@pytest.mark.parametrize("name", WRONG)
def test_it_fails_as_the_lake_itself_does(remote: RemoteLake, here: Lake, name: str) -> None:
    with pytest.raises(HeadwaterError) as near:
        WRONG[name](here)
    with pytest.raises(HeadwaterError) as far:
        WRONG[name](remote)
    assert (type(far.value), str(far.value)) == (type(near.value), str(near.value))


def test_a_hit_knows_its_object_and_its_place(remote: RemoteLake) -> None:
    (hit, *_) = remote.search("refund", customer="acme")
    assert hit.entry.object_id == CALL
    assert hit.entry.locator == {"start_ms": 65_000, "end_ms": 71_500}
    assert "<table>" in remote.search("refund")._repr_html_()


def test_files_and_texts_are_put_and_twice_is_once(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a.wav", 'quote "ü".wav'):
        (folder / name).write_bytes(CALL_BYTES + name.encode())
    (folder / "b.strange").write_bytes(b"what is it")
    with address_of(small_lake(tmp_path / "lake")) as address:
        lake = headwater.connect(address, token_of(tmp_path / "lake"))
        for expected in ("stored", "already there"):
            landed = lake.put(folder, customer="acme", collect=True)
            assert [each.status for each in landed] == [expected, "failed", expected]
            assert isinstance(landed[1].error, InvalidRequest)
            assert b"".join(lake.get("e1")) == CALL_BYTES
        with pytest.raises(InvalidRequest):
            lake.put(str(folder / "*"), customer="acme")
        with pytest.raises(InvalidRequest, match="There is no file"):
            lake.put(tmp_path / "nobody", customer="acme")
        said = lake.put_text("hello there", customer="acme", id="r-1")
        assert said.event is not None and said.event.event_id == "r-1"
        with pytest.raises(Conflict):
            lake.put_text("something else", customer="acme", id="r-1")
        assert lake.label(CALL, {"mood": "angry"})
        done = lake.plan("maintain").wait(timeout_seconds=120)
        assert "tables" in done or "steps" in done
        with pytest.raises(HeadwaterError):
            lake.plan("replay", step="embed", model="nobody").wait(timeout_seconds=120)


def test_a_token_that_is_wrong_or_may_not_is_refused(directory: Path, address: str) -> None:
    with pytest.raises(AccessRefused, match="token"):
        headwater.connect(address, "hw_1_wrong").customers()
    reader = headwater.connect(address, token_of(directory, READER, "acme"))
    assert [row["customer"] for row in reader.customers()] == ["acme"]
    for ask in (reader.status, reader.run, lambda: reader.put_text("hi", customer="globex")):
        with pytest.raises(NotFound):
            ask()
    assert "hw_" not in repr(reader)


@pytest.mark.parametrize("url", ["lake.example.com", "file:///etc", "ftp://lake"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="is no address"):
        headwater.connect(url, "x")


def test_a_server_that_is_away_for_a_moment_is_asked_again() -> None:
    told = [b"HTTP/1.1 503 Busy\r\nRetry-After: 2\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"]
    waits: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in told:
                line, _ = server.accept()
                with line:
                    line.recv(65_536)
                    line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = Connection(f"http://127.0.0.1:{server.getsockname()[1]}", "x", sleep=waits.append)
        assert connection.get("/api/v1/anything") == []
        thread.join()
    assert len(waits) == 2
    assert 1.5 <= waits[0] <= 2.5


def test_a_server_that_stays_away_is_unavailable_in_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    waits: list[float] = []
    with pytest.raises(Unavailable, match="did not answer"):
        Connection(address, "x", sleep=waits.append).get("/api/v1/status")
    assert len(waits) == 4


def test_what_is_no_headwater_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.recv(65_536)
                line.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(InvalidRequest, match="not as headwater serve does"):
            headwater.connect(f"http://127.0.0.1:{server.getsockname()[1]}", "x").customers()
        thread.join()
