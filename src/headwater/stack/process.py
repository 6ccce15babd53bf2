"""A server process that outlives whoever started it, and is known again by more than its number.

Numbers are used again: a process is ours only if it also started when ours did. A zombie counts as gone, because in a
container nobody may ever reap it.
"""

import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headwater.errors import Unavailable

KILL_SECONDS: Final = 10
ROLL_BYTES: Final = 16 << 20
_POLL_SECONDS: Final = 0.05
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Command:
    """`user` is who runs it, where that is not the caller."""

    arguments: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """`started` tells this process from a later one with the same number."""

    pid: int
    started: str


def start(command: Command, directory: Path, log: Path) -> Process:
    """Run it detached, in `directory`, its output at the end of `log`; what it writes is for its user only."""
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        child = subprocess.Popen(
            command.arguments,
            cwd=directory,
            env={**os.environ, **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
            user=command.user,
            group=primary_group(command.user),
            extra_groups=[] if command.user else None,
        )
    child.returncode = 0  # it is meant to outlive us: Popen need not warn that it does
    found = _look_up(child.pid)
    return Process(child.pid, found.started if found else "gone")


def roll(log: Path) -> None:
    """Before a start: what is long enough is set aside, and what was set aside before is gone."""
    if log.exists() and log.stat().st_size > ROLL_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def primary_group(user: str | None) -> int | None:
    return pwd.getpwnam(user).pw_gid if user else None


def is_running(process: Process) -> bool:
    found = _look_up(process.pid)
    if found is None or found.started != process.started:
        return False
    if found.zombie:
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    return not found.zombie


def stop(process: Process, number: signal.Signals, seconds: float) -> None:
    """Ask it to end with `number`; insist with SIGKILL after `seconds`. Twice is once."""
    if not _send(process, number, seconds) and not _send(process, signal.SIGKILL, KILL_SECONDS):
        raise Unavailable(f"Process {process.pid} does not end, not even by SIGKILL; its disk may hang.")


def kill(process: Process) -> None:
    stop(process, signal.SIGKILL, KILL_SECONDS)


def tail(log: Path, start: int = 0, lines: int = 12) -> str:
    """The log's last lines from `start` on, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


def _send(process: Process, number: signal.Signals, seconds: float) -> bool:
    """Whether it is gone within `seconds`."""
    if is_running(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
    deadline = time.monotonic() + seconds
    while is_running(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


@dataclass(frozen=True, slots=True)
class _Found:
    started: str
    zombie: bool


def _look_up(pid: int) -> _Found | None:
    """Whoever has that number now. When it started is told so that no other process ever says the same."""
    if not _BOOT.exists():
        return _ask_ps(pid)
    try:
        # The second field is the program's name in brackets, which may itself hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return _Found(f"{_BOOT.read_text().strip()}/{fields[19]}", fields[0] in {"Z", "X"})


def _ask_ps(pid: int) -> _Found | None:
    line = ["ps", "-p", str(pid), "-o", "stat=,lstart="]
    found = re.match(r"\s*(\S+)\s+(.+)", subprocess.run(line, check=False, capture_output=True, text=True).stdout)
    return _Found(found[2].strip(), found[1].startswith("Z")) if found else None
