"""Wall, CPU seconds and peak memory of a process and everything below it, while it lives."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(slots=True)
class Measured:
    """Memory is proportional set size: a page that two processes share counts once."""

    wall: float = 0.0
    cpu: float = 0.0
    peak_mb: float = 0.0


class Meter:
    """Samples the tree below a process. CPU of a process that ends between two samples is lost, so sample often."""

    def __init__(self, pid: int, seconds: float = 0.25) -> None:
        self._root = psutil.Process(pid)
        self._seconds = seconds
        self._cpu: dict[tuple[int, float], float] = {}
        self._peak = 0.0
        self._done = threading.Event()
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    @property
    def cpu(self) -> float:
        self._sample(memory=False)
        return sum(self._cpu.values())

    def read(self) -> Measured:
        """As of the last sample."""
        return Measured(time.monotonic() - self._start, sum([*self._cpu.values()]), self._peak)

    def stop(self) -> Measured:
        self._done.set()
        self._thread.join()
        return self.read()

    def _loop(self) -> None:
        turn = 0
        while not self._done.wait(self._seconds):
            self._sample(memory=turn % 4 == 0)
            turn += 1

    def _processes(self) -> list[psutil.Process]:
        return [self._root, *self._root.children(recursive=True)]

    def _sample(self, *, memory: bool) -> None:
        total = 0.0
        try:
            tree = self._processes()
        except psutil.NoSuchProcess:
            return
        for process in tree:
            try:
                spent = process.cpu_times()
                self._cpu[(process.pid, process.create_time())] = spent.user + spent.system
                total += _pss_mb(process.pid) if memory else 0.0
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        self._peak = max(self._peak, total)


def _pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
