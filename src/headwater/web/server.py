"""Server: the web face of one lake on an address, until it is told to stop."""

import asyncio
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake import Lake
from headwater.web.app import build_app
from headwater.web.guard import Limits
from headwater.web.jobs import Jobs
from headwater.web.lakes import Lakes

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
PORT: Final = 8472
LAKES: Final = 4
# A connection that has no question at work is looked at so often, and closed after so many looks.
_LOOK_SECONDS: Final = 3.0
_QUIET_LOOKS: Final = 4


def serve(
    open_lake: Callable[[], Lake],
    directory: Path,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    names: tuple[str, ...] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """`names` are those by which a proxy asks; `ready` is told the address once it answers."""
    if not _is_loopback(host) and not names:
        raise InvalidRequest(
            f"On {host} others can come in. Say by which name they do: --name lake.example.com, and put TLS before it."
        )
    jobs = Jobs(directory)
    with _bound(host, port) as bound:
        lakes = Lakes(open_lake, LAKES)
        app = build_app(lakes, jobs, LOOPBACK | {host} | frozenset(names), _limits(lakes))
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{bound.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            log_level="warning",
            server_header=False,
            date_header=False,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=32 << 10,
            limit_concurrency=500,
        )
        server = _Server(config, lambda: ready(address) if ready else None)
        with _ending_in_order():
            server.run(sockets=[bound])


def _limits(lakes: Lakes) -> Limits:
    with lakes.lent() as lake:
        settings = lake.settings
        return Limits(settings.whole("serve.upload_mb") << 20, settings.whole("serve.calls_per_minute"))


class _Connection(H11Protocol):
    """One by which nothing is asked for some seconds is closed: who writes a letter a second keeps no place."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._quiet = 0
        self._look_again()

    def _look_again(self) -> None:
        if self.transport.is_closing():
            return
        at_work = self.cycle is not None and not self.cycle.response_complete
        self._quiet = 0 if at_work else self._quiet + 1
        if self._quiet > _QUIET_LOOKS:
            self.transport.close()
            return
        self.loop.call_later(_LOOK_SECONDS, self._look_again)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """uvicorn sends itself the SIGTERM that ended it once more: whoever called us has a token yet to revoke."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _bound(host: str, port: int) -> socket.socket:
    """Taken before anything is loaded, so that who cannot have it is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise Unavailable(f"{host}:{port} cannot be had: {error.strerror}. Choose another: --port 0") from error
    return taken


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
