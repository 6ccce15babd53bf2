"""What a child does first, before it reads a byte of anybody's: it sees to it that it can be lost."""

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path
from typing import BinaryIO, Final

PR_SET_PDEATHSIG: Final = 1


def open_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Where messages come from and where answers go; it ends with its parent and leaves no core file behind."""
    _die_with_parent(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Whatever a library prints must not reach the pipe that carries answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return sys.stdin.buffer, answers


def bound_memory(megabytes: int) -> None:
    """Private memory may grow by so much from now; address space that is only mapped does not count."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    used = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    bound = used + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # it died before we asked
