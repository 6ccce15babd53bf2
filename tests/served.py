"""A lake's web face in this process, for tests that ask it by HTTP; and a real server, for those that need a socket."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.testclient import TestClient
from waiting import wait_until

import headwater
from headwater.domain.access import ADMIN
from headwater.web.app import build_app
from headwater.web.jobs import Jobs
from headwater.web.lakes import Lakes
from headwater.web.server import LOOPBACK


def token_of(directory: Path, role: str = ADMIN, *customers: str) -> str:
    with headwater.open(directory) as lake:
        return str(lake.access.make(role, customers=customers)["token"])


@contextmanager
def client_of(directory: Path, role: str = ADMIN, *customers: str) -> Iterator[TestClient]:
    """One who comes with a token of its own; the app lives as long as the client."""
    app = build_app(Lakes(lambda: headwater.open(directory), 4), Jobs(directory), LOOPBACK)
    headers = {"Authorization": f"Bearer {token_of(directory, role, *customers)}"}
    with TestClient(app, base_url="http://localhost", headers=headers, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def address_of(directory: Path) -> Iterator[str]:
    """Of a server of its own, in a thread of this process."""
    app = build_app(Lakes(lambda: headwater.open(directory), 4), Jobs(directory), LOOPBACK)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        (bound, *_) = server.servers[0].sockets
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def error_of(answer: Any) -> tuple[int, str]:
    """Its status and its kind; every error has this one shape."""
    told = answer.json()["error"]
    assert set(told) == {"kind", "message", "retryable"}
    assert told["message"] and isinstance(told["retryable"], bool)
    return answer.status_code, told["kind"]
