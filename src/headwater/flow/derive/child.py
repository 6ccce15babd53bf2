"""The child: fetches, decodes and calls models in a process that may be lost without losing anything else.

It reads jobs from its input and answers on its output, until its input ends or its parent dies. Its memory is bounded
by the kernel; its time by the parent.
"""

import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

from headwater.domain.modality import Modality
from headwater.errors import AccessRefused, DataFault, HeadwaterError, InvalidRequest, Unavailable
from headwater.flow.derive.fetch import Fetched, fetcher, is_remote
from headwater.flow.derive.frames import packed, read_message
from headwater.flow.derive.source import Limits, Source
from headwater.flow.models.loaded import Models
from headwater.flow.models.registry import find_place
from headwater.settings import SETTINGS

PR_SET_PDEATHSIG: Final = 1
# A fault of this step tells about the whole object; its later steps would only repeat it.
WHOLE_OBJECT: Final = "probe"
DETAIL_MAX: Final = 500

Run = Callable[[Source, Models], dict[str, Any] | None]


class Replies:
    """Answers, written before the next step begins: the parent must know which step it is that hangs or crashes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._held: list[bytes] = []
        self._lock = threading.Lock()
        self.eager = False  # with several jobs under way nobody else flushes in time

    def say(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            self._held.append(packed(message))
        if self.eager:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            self._stream.write(b"".join(self._held))
            self._stream.flush()
            self._held.clear()

    def tell(self, message: Mapping[str, Any]) -> None:
        self.say(message)
        self.flush()


class Worker:
    def __init__(self, config: Mapping[str, Any], replies: Replies) -> None:
        values = {setting.name: setting.default for setting in SETTINGS} | dict(config.get("settings", {}))
        self.limits = Limits.from_settings(values)
        self._models = Models(values, config.get("models", {}), self._loading)
        self._fetch = fetcher(config, self.limits)
        self.remote = is_remote(config)
        self._own_steps: dict[str, str] = config.get("steps", {})
        self._runs: dict[tuple[str, str], Run] = {}
        self._replies = replies

    def ready(self) -> None:
        self._loading(False)

    def work_all(self, jobs: Sequence[Mapping[str, Any]], threads: int) -> None:
        """Several at once where their models wait for somebody else's machine most of the time."""
        self._replies.eager = threads > 1
        if threads <= 1:
            for number, job in enumerate(jobs):
                _Attempt(self, number, job).work()
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda pair: _Attempt(self, *pair).work(), enumerate(jobs)))
        self._replies.flush()

    def _loading(self, begun: bool) -> None:
        self._replies.tell({"loading": begun})

    def run_of(self, step: str, modality: str) -> Run:
        key = (modality, step)
        if key not in self._runs:
            place = self._own_steps.get(f"{modality}.{step}") or self._own_steps.get(step)
            self._runs[key] = find_place(place) if place else _registered(modality, step)
        return self._runs[key]


class _Attempt:
    """One job. Every message names it, because several may be under way."""

    def __init__(self, worker: Worker, number: int, job: Mapping[str, Any]) -> None:
        self._worker = worker
        self._number = number
        self._job = job

    def work(self) -> None:
        self._tell(begun=True)
        job, worker = self._job, self._worker
        first = job["steps"][0]["tag"]
        try:
            if worker.remote:
                self._tell(fetching=True)
            with worker._fetch(job["pointer"], job["text"]) as fetched:
                if worker.remote:
                    self._tell(fetching=False)
                source = self._source(fetched)
                for step in job["steps"]:
                    if not self._attempt(step, source) and step["step"] == WHOLE_OBJECT:
                        break
        except DataFault as fault:
            self._fault(first, fault.reason, fault.detail)
        except AccessRefused as error:
            self._say(unavailable=str(error))
        except InvalidRequest as error:  # the store refuses the path: an event from elsewhere made it
            self._fault(first, "BAD_EVENT", str(error))
        except HeadwaterError as error:  # the store's trouble, not the object's
            self._say(unavailable=str(error))
        self._say(done=True)

    def _source(self, fetched: Fetched) -> Source:
        kind = self._job["pointer"].get("content_type") or ""
        return Source(fetched, kind, self._worker.limits, self._job["text"], lambda seconds: self._tell(allow=seconds))

    def _attempt(self, step: Mapping[str, Any], source: Source) -> bool:
        self._worker._replies.flush()
        tag, name = step["tag"], step["step"]
        models = self._worker._models
        if step["setting"]:
            models = models.chosen(step["setting"], step["model"])
        try:
            self._say(tag=tag, ok=self._worker.run_of(name, self._job["modality"])(source, models))
            return True
        except DataFault as fault:
            return self._fault(tag, fault.reason, fault.detail)
        except Unavailable as error:
            return self._fault(tag, "MODEL_DOWN", str(error))
        except InvalidRequest as error:  # a model that cannot be found here is no object's fault
            raise Unavailable(f"{name} has no model to work with. {error}") from error
        except MemoryError:
            limit = f"It needs more memory than limits.child_mb, {self._worker.limits.child_mb} MB."
            self._fault(tag, "TOO_LARGE", limit)
            # What failed to allocate may have left half-built things behind in foreign code: start afresh.
            self._tell(done=True)
            os._exit(0)
        except Exception as error:  # a decoder's or model's own exception is the row's fault, not the batch's
            return self._fault(tag, "CRASHED", f"{type(error).__name__}: {error}")

    def _fault(self, tag: str, reason: str, detail: str) -> bool:
        self._say(tag=tag, fault=[reason, detail[:DETAIL_MAX]])
        return False

    def _say(self, **message: Any) -> None:
        self._worker._replies.say({"job": self._number, **message})

    def _tell(self, **message: Any) -> None:
        self._worker._replies.tell({"job": self._number, **message})


def _registered(modality: str, step: str) -> Run:
    from headwater.flow.derive.registry import STEPS

    return next(known.run for known in STEPS[Modality(modality)] if known.name == step)


def bound_memory(megabytes: int) -> None:
    """Private memory may grow by so much from now; address space that is only mapped does not count."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    used = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    bound = used + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # it died before we asked


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Whatever a library prints must not reach the pipe that carries answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    jobs = sys.stdin.buffer
    config = read_message(jobs)
    replies = Replies(answers)
    worker = Worker(config, replies)
    bound_memory(worker.limits.child_mb)
    worker.ready()
    while (batch := read_message(jobs)) is not None:
        worker.work_all(batch["jobs"], batch["threads"])


if __name__ == "__main__":
    main()
