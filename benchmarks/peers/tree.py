"""Wall, CPU seconds and peak memory of a command and everything it starts, daemons included.

This process adopts orphans (Linux's child subreaper), so that a database or a JVM that outlives its parent stays below
it. CPU is then what the kernel charged to all children that ended, however short they lived; memory is sampled.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from measure import Meter

PR_SET_CHILD_SUBREAPER: Final = 36
END_SECONDS: Final = 10.0


@dataclass(slots=True)
class Cell:
    """`stages`: wall and CPU seconds until each stage reported, for an arm that tells its stages."""

    wall: float = 0.0
    cpu: float = 0.0
    peak_mb: float = 0.0
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)


class Tree(Meter):
    """Everything below this process, but not it."""

    def _processes(self) -> list[psutil.Process]:
        return list(self._root.children(recursive=True))

    def _loop(self) -> None:
        """Often at first, so that a short command is seen as large as it gets."""
        while not self._done.wait(min(self._seconds, 0.05 + (time.monotonic() - self._start) / 20)):
            self._sample(memory=True)


def adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def measure(command: list[str], environment: dict[str, str], directory: Path, log: Path, seconds: float) -> Cell:
    """Run it in a directory of its own; raises RuntimeError with the end of its log where it fails."""
    before, start, cell = _children_cpu(), time.monotonic(), Cell()
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        meter = Tree(os.getpid(), seconds=0.5)
        timer = signal.signal(signal.SIGALRM, lambda *_: process.kill())
        signal.alarm(int(seconds))
        try:
            _listen(process, meter, cell, start)
            code = process.wait()
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, timer)
    cell.wall = time.monotonic() - start
    end_orphans()
    sampled = meter.stop()
    cell.cpu, cell.peak_mb = max(_children_cpu() - before, sampled.cpu), sampled.peak_mb
    if code != 0:
        raise RuntimeError(f"exit {code}: {_last_line(log)}")
    return cell


def _listen(process: "subprocess.Popen[str]", meter: Tree, cell: Cell, start: float) -> None:
    """A line `{"stage": …}` ends a stage; a line `{"told": {…}}` is a figure that only the arm can know."""
    assert process.stdout is not None
    wall, cpu = start, 0.0
    for line in process.stdout:
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        cell.told |= said.get("told", {})
        if stage := said.get("stage"):
            now, spent = time.monotonic(), meter.cpu
            walls, cpus = cell.stages.get(stage, (0.0, 0.0))
            cell.stages[stage] = (walls + now - wall, cpus + spent - cpu)
            wall, cpu = now, spent


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def end_orphans() -> None:
    """What the command left running is asked to end, then told; each is waited for, so that its CPU counts."""
    for end in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        left = psutil.Process().children()
        for orphan in left:
            _signal(orphan, end)
        psutil.wait_procs(left, timeout=END_SECONDS)


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
