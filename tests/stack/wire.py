"""A wire between a client and a server that loses, cuts, delays or repeats one answer, when it is told to."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

ACTIONS: Final = ("lose", "cut", "delay", "repeat", "swallow")
DELAY_SECONDS: Final = 1.5


class Wire:
    """`fault(n)` says what is to become of the n-th answer to a request that `watched` recognises; None is nothing.

    `lose` ends the connection in its place, `cut` after half of it, `delay` holds it back, `repeat` gives it twice, and
    `swallow` says nothing and stays connected: a client without a clock of its own would wait for ever.
    """

    def __init__(self, host: str, port: int, watched: Callable[[bytes], bool] = bool) -> None:
        self._target = (host, port)
        self.watched = watched
        self.fault: Callable[[int], str | None] = lambda _: None
        self.answers = 0
        self.bytes = 0  # that the server has sent
        self.done: list[str] = []
        self._lock = threading.Lock()
        self._gone = threading.Event()
        self._about_to_vanish = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def vanish(self, _: int) -> str:
        """A fault: this answer is lost, and from then on nobody is there, on no connection, until `come_back`."""
        self._gone.set()
        return "lose"

    def vanish_before_asked(self) -> None:
        """The next request that is watched does not arrive, nor anything after it, until `come_back`."""
        self._about_to_vanish = True

    def come_back(self) -> None:
        self.fault = lambda _: None
        self._about_to_vanish = False
        self._gone.clear()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._connect, args=(client,), name="wire", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._gone.is_set():
            client.close()
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        asked = threading.Event()
        threading.Thread(target=self._ask, args=(client, server, asked), name="wire", daemon=True).start()
        self._answer(server, client, asked)

    def _ask(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        with suppress(OSError):
            while (data := client.recv(1 << 16)) and not self._gone.is_set():
                if self.watched(data):
                    asked.set()
                    if self._about_to_vanish:
                        self._gone.set()
                        break
                server.sendall(data)
        _end(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if self._gone.is_set():
                    break
                with self._lock:
                    self.bytes += len(data)
                if not asked.is_set():
                    client.sendall(data)
                    continue
                asked.clear()
                if not self._pass_on(data, client):
                    break
        _end(client, server)

    def _pass_on(self, data: bytes, client: socket.socket) -> bool:
        with self._lock:
            self.answers += 1
            action = self.fault(self.answers)
            self.done += [action] if action else []
        match action:
            case "lose":
                return False
            case "cut":
                client.sendall(data[: len(data) // 2])
                return False
            case "repeat":
                client.sendall(data)
            case "delay":
                time.sleep(DELAY_SECONDS)
            case "swallow":
                return True
        client.sendall(data)
        return True


@contextmanager
def wire_to(host: str, port: int, watched: Callable[[bytes], bool] = bool) -> Iterator[Wire]:
    wire = Wire(host, port, watched)
    try:
        yield wire
    finally:
        wire.close()


def once(number: int, action: str) -> Callable[[int], str | None]:
    return lambda count: action if count == number else None


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
