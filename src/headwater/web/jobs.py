"""Jobs: commands that change the lake, each in a process of its own, so that a page never waits for Spark.

A job is the same command that a person would type: it holds the same leases, is journalled the same, and may be stopped
and repeated the same. What it said last is kept as long as the server lives; what it did is in the journal.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from headwater.clock import to_text, utc_now
from headwater.errors import Conflict, NotFound

_KEPT: Final = 50
_AT_ONCE: Final = 3
_TAIL_BYTES: Final = 20_000
_RESULT_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Job:
    id: int
    command: tuple[str, ...]
    by: str
    begun_at: str
    process: "subprocess.Popen[bytes]"
    output: IO[bytes]
    errors: IO[bytes]
    key: str | None
    ended_at: str | None = None

    def to_dict(self) -> dict[str, Any]:
        code = self.process.poll()
        if code is not None and self.ended_at is None:
            self.ended_at = to_text(utc_now())
        lines = _tail(self.errors).splitlines()
        told: dict[str, Any] = {"id": self.id, "command": " ".join(self.command), "by": self.by}
        told |= {"begun_at": self.begun_at, "ended_at": self.ended_at, "exit_code": code}
        result = self._result() if code is not None else None
        error = result.pop("error", None) if isinstance(result, dict) and code else None
        return {**told, "said": lines[-1][-300:] if lines else "", "result": result or None, "error": error}

    def _result(self) -> Any:
        """What the command answers with `--json`."""
        with suppress(ValueError):
            return json.loads(_tail(self.output, _RESULT_BYTES))
        return None


class Jobs:
    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._jobs: dict[int, _Job] = {}

    def start(self, command: Sequence[str], by: str, key: str | None = None) -> dict[str, Any]:
        """The same `key` of the same caller again is the same job. Conflict where that was another command, or
        where too many are at work."""
        with self._lock:
            for job in self._jobs.values():
                if key is not None and (job.key, job.by) == (key, by):
                    if job.command != tuple(command):
                        raise Conflict(f"That Idempotency-Key was given to {' '.join(job.command)}. Take another one.")
                    return job.to_dict()
            if sum(job.process.poll() is None for job in self._jobs.values()) >= _AT_ONCE:
                raise Conflict("Several jobs are at work. Wait until one has ended.")
            number = next(self._numbers)
            output, errors = _file(), _file()
            process = subprocess.Popen(
                [sys.executable, "-m", "headwater", "--lake", str(self._lake), "--json", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            self._jobs[number] = _Job(number, tuple(command), by, to_text(utc_now()), process, output, errors, key)
            self._forget_old()
            return self._jobs[number].to_dict()

    def list(self) -> "list[dict[str, Any]]":
        """The latest first."""
        with self._lock:
            return [job.to_dict() for job in reversed(self._jobs.values())]

    def find(self, number: int) -> dict[str, Any]:
        with self._lock:
            if number not in self._jobs:
                raise NotFound(f"There is no job {number}. What was done is in the journal: /runs")
            return self._jobs[number].to_dict()

    def stop(self, number: int) -> dict[str, Any]:
        """As Ctrl-C: it ends after what it has in hand."""
        self.find(number)
        with self._lock, suppress(ProcessLookupError):
            self._jobs[number].process.send_signal(signal.SIGINT)
        return self.find(number)

    def close(self) -> None:
        """Whoever is at work is told to stop, and waited for a moment; the next run goes on."""
        with self._lock:
            at_work = [job.process for job in self._jobs.values() if job.process.poll() is None]
        for process in at_work:
            process.send_signal(signal.SIGTERM)
        for process in at_work:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)

    def _forget_old(self) -> None:
        ended = [number for number, job in self._jobs.items() if job.process.poll() is not None]
        for number in ended[: max(0, len(self._jobs) - _KEPT)]:
            job = self._jobs.pop(number)
            job.output.close()
            job.errors.close()


def _file() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _tail(file: IO[bytes], most: int = _TAIL_BYTES) -> str:
    """By position, so that the process that writes to the same file is not disturbed."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), most, max(0, size - most)).decode(errors="replace")
