"""The child: fetches, decodes and calls models in a process that may be lost without losing anything else.

It reads jobs from its input and answers on its output, until its input ends or its parent dies. Its memory is bounded
by the kernel; its time by the parent.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from headwater.domain.modality import Modality
from headwater.errors import DataFault, HeadwaterError, InvalidRequest, Unavailable
from headwater.flow.derive.fetch import Fetched, fetcher
from headwater.flow.derive.frames import packed, read_message
from headwater.flow.derive.source import Limits, Source
from headwater.flow.derive.step import Models
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

    def say(self, message: Mapping[str, Any]) -> None:
        self._held.append(packed(message))

    def flush(self) -> None:
        self._stream.write(b"".join(self._held))
        self._stream.flush()
        self._held.clear()


class Worker:
    def __init__(self, config: Mapping[str, Any], replies: Replies) -> None:
        values = {setting.name: setting.default for setting in SETTINGS} | dict(config.get("settings", {}))
        self.limits = Limits.from_settings(values)
        self._models = Models(values, self._loading)
        self._fetch = fetcher(config, self.limits)
        self._own_steps: dict[str, str] = config.get("steps", {})
        self._runs: dict[tuple[str, str], Run] = {}
        self._replies = replies

    def ready(self) -> None:
        self._loading(False)

    def work(self, job: Mapping[str, Any]) -> None:
        self._replies.flush()
        try:
            with self._fetch(job["pointer"], job["text"]) as fetched:
                source = self._source(job, fetched)
                for step in job["steps"]:
                    if not self._attempt(step, job["modality"], source) and step == WHOLE_OBJECT:
                        break
        except DataFault as fault:
            self._fault(job["steps"][0], fault.reason, fault.detail)
        except InvalidRequest as error:  # the store refuses the path: an event from elsewhere made it
            self._fault(job["steps"][0], "BAD_EVENT", str(error))
        except HeadwaterError as error:  # the store's trouble, not the object's
            self._replies.say({"unavailable": str(error)})
        self._replies.say({"done": True})

    def _loading(self, begun: bool) -> None:
        self._replies.say({"loading": begun})
        self._replies.flush()

    def _source(self, job: Mapping[str, Any], fetched: Fetched) -> Source:
        def allow(seconds: float) -> None:
            self._replies.say({"allow": seconds})
            self._replies.flush()

        return Source(fetched, job["pointer"].get("content_type") or "", self.limits, job["text"], allow)

    def _attempt(self, step: str, modality: str, source: Source) -> bool:
        self._replies.flush()
        try:
            self._replies.say({"step": step, "ok": self._run_of(step, modality)(source, self._models)})
            return True
        except DataFault as fault:
            return self._fault(step, fault.reason, fault.detail)
        except Unavailable as error:
            return self._fault(step, "MODEL_DOWN", str(error))
        except InvalidRequest as error:  # a model that cannot be found here is no object's fault
            raise Unavailable(f"{step} has no model to work with. {error}") from error
        except MemoryError:
            limit = f"It needs more memory than limits.child_mb, {self.limits.child_mb} MB."
            self._fault(step, "TOO_LARGE", limit)
            # What failed to allocate may have left half-built things behind in foreign code: start afresh.
            self._replies.say({"done": True})
            self._replies.flush()
            os._exit(0)
        except Exception as error:  # a decoder's or model's own exception is the row's fault, not the batch's
            return self._fault(step, "CRASHED", f"{type(error).__name__}: {error}")

    def _fault(self, step: str, reason: str, detail: str) -> bool:
        self._replies.say({"step": step, "fault": [reason, detail[:DETAIL_MAX]]})
        return False

    def _run_of(self, step: str, modality: str) -> Run:
        key = (modality, step)
        if key not in self._runs:
            place = self._own_steps.get(f"{modality}.{step}") or self._own_steps.get(step)
            self._runs[key] = find_place(place) if place else _registered(modality, step)
        return self._runs[key]


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
        for job in batch:
            worker.work(job)
        replies.flush()


if __name__ == "__main__":
    main()
