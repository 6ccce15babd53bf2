"""A lease: one holder at a time, and a number that grows with each so that the one before can be told off."""

import os
import socket
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Process:
    """`place` is a machine and its space of process ids: only there can a pid be looked up."""

    pid: int
    started: str
    host: str
    place: str

    @classmethod
    def this(cls) -> Self:
        return cls(os.getpid(), _started(os.getpid()) or "", socket.gethostname(), _place())

    def surely_dead(self) -> bool:
        """A pid that was given to another process since has another start time."""
        return self.place == _place() and _started(self.pid) != self.started


@dataclass(frozen=True, slots=True)
class Lease:
    """`epoch` fences: whoever holds a smaller one than the ledger's has lost the lease, whatever it believes."""

    name: str
    epoch: int
    owner: str
    process: Process
    since: datetime
    renewed_at: datetime
    ttl_seconds: float
    # From a holder that never gave it back: it may only be asleep.
    takeover: bool = field(default=False, compare=False)

    def is_live(self, now: datetime) -> bool:
        """A holder that lives renews it by the clock as it is now, so a time far ahead is that of one who died before
        the clock was set back; waiting until then would keep everybody out."""
        fresh = abs(now - self.renewed_at) < timedelta(seconds=self.ttl_seconds)
        return fresh and not self.process.surely_dead()


def _started(pid: int) -> str | None:
    """Clock ticks from boot to the process's start, or None where no such process lives."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self").exists() else _answers(pid)
    # The command's name stands in brackets and may hold blanks and brackets itself.
    state, *fields = status.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]


def _answers(pid: int) -> str | None:
    """Without /proc: alive, as far as can be told."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown"


@cache
def _place() -> str:
    """Containers share a kernel but count their processes apart."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
