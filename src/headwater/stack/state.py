"""What a stack remembers: its ports, its keys, its processes.

Writes  <stack>/stack.json, whole or not at all, readable by its owner only; <stack>/stack.lock
Invariant: ports and keys never change while the directory lives, so a lake that names them goes on working.
"""

import fcntl
import json
import os
import random
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from headwater.errors import Conflict, Unavailable
from headwater.stack.process import Process

STATE: Final = "stack.json"
LOCK: Final = "stack.lock"
LOOPBACK: Final = "127.0.0.1"
# Below what systems hand out to outgoing connections: a port stays free while its server is being restarted.
_PORTS: Final = range(20_000, 30_000)


@dataclass(slots=True)
class State:
    """`processes` has every part that was ever started; None is one that was stopped."""

    ports: dict[str, int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    processes: dict[str, Process | None] = field(default_factory=dict)

    def allot(self, ports: Iterable[str], keys: Iterable[str]) -> None:
        """Choose what is not chosen yet."""
        for name in ports:
            if name not in self.ports:
                self.ports[name] = _free_port(taken=set(self.ports.values()))
        for name in keys:
            self.keys.setdefault(name, secrets.token_hex(16))


def read_state(directory: Path) -> State:
    """What is remembered; an empty state where there is no stack."""
    try:
        document = json.loads((directory / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return State()
    except ValueError as error:
        raise Conflict(f"{directory / STATE} is not ours or is damaged ({error}); use another --dir.") from error
    processes = {name: known and Process(**known) for name, known in document["processes"].items()}
    return State(document["ports"], document["keys"], processes)


def write_state(directory: Path, state: State) -> None:
    write_private(directory / STATE, json.dumps(asdict(state), indent=2) + "\n")


def write_private(file: Path, text: str) -> None:
    """Whole or not at all; only the owner can read it."""
    scratch = file.with_name(f".{file.name}.new")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as output:
        output.write(text)
    scratch.replace(file)


def claim_directory(directory: Path) -> None:
    """Make it, or find it empty or ours: `down --purge` will delete it. Others are shut out of it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not (directory / STATE).is_file() and any(entry.name != LOCK for entry in directory.iterdir()):
        raise Conflict(f"{directory} holds other things than a stack. Name another place: headwater up --dir DIR")
    # For root the group is that of the database's user, once it was started, who must get through; see `postgres`.
    directory.chmod(0o710 if os.geteuid() == 0 and directory.stat().st_gid != 0 else 0o700)


def private_directory(directory: Path) -> None:
    """Made, or one that an earlier version made for all to read."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One at a time in a directory; the second waits, and then finds the work done."""
    with (directory / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _free_port(taken: set[int]) -> int:
    for port in random.sample(_PORTS, len(_PORTS)):
        if port not in taken and is_free(port):
            return port
    raise Unavailable(f"No port between {_PORTS.start} and {_PORTS.stop} is free on {LOOPBACK}.")
