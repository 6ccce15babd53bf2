"""The child: fetches, decodes and calls models in a process that may be lost without losing anything else.

It reads jobs from its input and answers on its output, until its input ends or its parent dies. Its memory is bounded
by the kernel; its time by the parent.
"""

import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, BinaryIO, Final

from headwater.domain.modality import Modality, content_type_of
from headwater.domain.quarantine import SLOW, known_fault
from headwater.domain.steps import PROBE, STEPS
from headwater.errors import (
    DataFault,
    HeadwaterError,
    InvalidRequest,
    ModelNotLoaded,
    Unavailable,
    describe,
    sound_text,
)
from headwater.flow.child.bounds import bound_memory, open_pipes
from headwater.flow.child.frames import MESSAGE_BYTES_MAX, packed, read_message
from headwater.flow.derive.batch_budget import amount
from headwater.flow.derive.call_times import CallTimes
from headwater.flow.derive.fetch import Fetched, Fetcher
from headwater.flow.derive.keeper import Keeper
from headwater.flow.derive.source import Limits, Source
from headwater.flow.models.loaded import Models
from headwater.flow.models.registry import find_place
from headwater.flow.models.spending import Purse, billed
from headwater.flow.models.waiting import notify_waiting
from headwater.settings import SETTINGS

# A fault of this step tells about the whole object; its later steps would only repeat it.
WHOLE_OBJECT: Final = PROBE.name
# No step of a modality: its answer says that the object's bytes are there and are the ones that its event names.
VERIFY: Final = "verify"
DETAIL_MAX: Final = 500
TRACEBACK_LETTERS: Final = 20_000

Run = Callable[[Source, Models], dict[str, Any] | None]


class Replies:
    """Answers, written before the next step begins: the parent must know which step it is that hangs or crashes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._held: list[bytes] = []
        self._lock = threading.Lock()
        self.eager = False  # with several jobs under way nobody else flushes in time

    def queue(self, message: Mapping[str, Any]) -> None:
        """Raises DataFault where an answer is no JSON, or too much of it."""
        framed = _framed(message)
        with self._lock:
            self._held.append(framed)
        if self.eager:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            self._stream.write(b"".join(self._held))
            self._stream.flush()
            self._held.clear()

    def send(self, message: Mapping[str, Any]) -> None:
        self.queue(message)
        self.flush()


class Worker:
    def __init__(self, config: Mapping[str, Any], replies: Replies) -> None:
        values = {setting.name: setting.default for setting in SETTINGS} | dict(config.get("settings", {}))
        self.limits = Limits.from_settings(values)
        self._models = Models(values, config.get("models", {}), self._loading)
        self.fetcher = Fetcher(config, self.limits)
        self._own_steps: dict[str, str] = config.get("steps", {})
        self._runs: dict[tuple[str, str], Run] = {}
        self._replies = replies
        self.purse: Purse | None = None
        self.call_times = CallTimes()
        self.unloadable: dict[str, str] = {}  # models that nobody sees and that do not load, by tag

    def ready(self) -> None:
        self._loading(False)

    def work_all(self, jobs: Sequence[Mapping[str, Any]], threads: int) -> None:
        """Several at once where their models wait for somebody else's machine most of the time."""
        self._replies.eager = threads > 1
        mates = [job["pointer"]["path"] for job in jobs]
        if threads <= 1:
            for number, job in enumerate(jobs):
                _Attempt(self, number, job, mates).work()
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda pair: _Attempt(self, pair[0], pair[1], mates).work(), enumerate(jobs)))
        self._replies.flush()

    def _loading(self, begun: bool) -> None:
        self._replies.send({"loading": begun})

    def run_of(self, step: str, modality: str) -> Run:
        key = (modality, step)
        if key not in self._runs:
            place = self._own_steps.get(f"{modality}.{step}") or self._own_steps.get(step)
            self._runs[key] = find_place(place) if place else _registered(modality, step)
        return self._runs[key]


class _Attempt:
    """One job. Every message names it, because several may be under way."""

    def __init__(self, worker: Worker, number: int, job: Mapping[str, Any], mates: Sequence[str]) -> None:
        self._worker = worker
        self._number = number
        self._job = job
        self._mates = mates

    def work(self) -> None:
        self._send(begun=True)
        try:
            self._work()
        except DataFault as fault:
            self._fault(self._job["steps"][0]["tag"], fault.reason, fault.detail)
        except HeadwaterError as error:  # the store's trouble, not the object's
            self._queue(unavailable=str(error))
        except MemoryError:
            self._leave_for_memory(self._job["steps"][0]["tag"])
        except Exception as error:
            self._fault(self._job["steps"][0]["tag"], "CRASHED", describe(error))
        self._queue(done=True)

    def _work(self) -> None:
        steps = self._job["steps"]
        if [step["step"] for step in steps] == [VERIFY]:
            with self._fetching():
                self._worker.fetcher.verify(self._job["pointer"], self._mates)
            self._queue(tag=steps[0]["tag"], ok=None)
            return
        with ExitStack() as held:
            with self._fetching():
                source = self._source(held)
            held.enter_context(notify_waiting(self._send_calling))
            for step in steps:
                if step["step"] == VERIFY:
                    self._queue(tag=step["tag"], ok=None)
                elif not self._attempt(step, source) and step["step"] == WHOLE_OBJECT:
                    break

    @contextmanager
    def _fetching(self) -> Iterator[None]:
        """The parent is told, because another machine may keep one waiting."""
        if not self._worker.fetcher.is_remote:
            yield
            return
        self._send(fetching=True)
        yield
        self._send(fetching=False)

    def _source(self, held: ExitStack) -> Source:
        pointer, text = self._job["pointer"], self._job["text"]
        # Chat travels inline: there is no object to fetch.
        found: Fetched = b""
        if text is None:
            found = held.enter_context(self._worker.fetcher.fetched(pointer, self._mates))
        kind = pointer.get("content_type") or content_type_of(pointer["path"]) or ""
        return Source(
            found,
            kind,
            self._worker.limits,
            text,
            allow=lambda seconds: self._send(allow=seconds),
            patience=self._job.get("patience"),
            call_times=self._worker.call_times,
        )

    def _send_calling(self, begins: bool) -> None:
        self._send(calling=begins)

    def _attempt(self, step: Mapping[str, Any], source: Source) -> bool:
        self._worker._replies.flush()
        tag, name = step["tag"], step["step"]
        models = self._worker._models
        if step["setting"]:
            models = models.chosen(step["setting"], step["model"])
        if tag in self._worker.unloadable:
            return self._fault(tag, "MODEL_DOWN", self._worker.unloadable[tag])
        try:
            keeping = replace(source, keep=Keeper(lambda result: self._send(tag=tag, kept=result)))
            purse = self._worker.purse
            with billed(purse, lambda cost: self._send(billed=cost)) as bill:
                result = self._worker.run_of(name, self._job["modality"])(keeping, models)
            if purse is not None and not bill.calls and isinstance(result, dict):
                purse.spend(amount(result.get("cost")))
            self._queue(tag=tag, ok=result)
            return True
        except DataFault as fault:
            return self._fault(tag, fault.reason, fault.detail)
        except ModelNotLoaded as error:  # nor would it load for the next one
            found = sound_text(traceback.format_exc())[-TRACEBACK_LETTERS:]
            if step.get("standby"):
                self._worker.unloadable[tag] = str(error)
                self._send(traceback=found)
                return self._fault(tag, "MODEL_DOWN", str(error))
            self._send(unavailable=str(error), traceback=found)
            raise
        except Unavailable as error:
            return self._fault(tag, "MODEL_DOWN", str(error))
        except InvalidRequest as error:  # a model that cannot be found here is no object's fault
            raise Unavailable(f"{name} has no model to work with. {error}") from error
        except MemoryError:
            return self._leave_for_memory(tag)
        except Exception as error:  # a decoder's or model's own exception is the row's fault, not the batch's
            return self._fault(tag, "CRASHED", describe(error, DETAIL_MAX))

    def _leave_for_memory(self, tag: str) -> bool:
        """What failed to allocate may have left half-built things behind in foreign code: start anew."""
        self._fault(tag, "TOO_LARGE", f"It needs more memory than limits.child_mb, {self._worker.limits.child_mb} MB.")
        self._send(done=True)
        os._exit(0)

    def _fault(self, tag: str, reason: str, detail: str) -> bool:
        known, text = known_fault(reason, detail)
        if known == SLOW and self._job.get("patience") is None:
            # A model's own word: nobody waits for this object, and setting it aside again would never end.
            known, text = "CRASHED", f"{SLOW}: {text}"
        self._queue(tag=tag, fault=[known, sound_text(text)[:DETAIL_MAX]])
        return False

    def _queue(self, **message: Any) -> None:
        self._worker._replies.queue({"job": self._number, **message})

    def _send(self, **message: Any) -> None:
        self._worker._replies.send({"job": self._number, **message})


def _framed(message: Mapping[str, Any]) -> bytes:
    try:
        framed = packed(message)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataFault("BAD_OUTPUT", f"The step's answer cannot be told: {describe(error)}.") from error
    if len(framed) > MESSAGE_BYTES_MAX:
        raise DataFault("BAD_OUTPUT", f"The step answered with {len(framed) >> 20} MB.")
    return framed


def _registered(modality: str, step: str) -> Run:
    from headwater.flow.derive.registry import function_of

    return function_of(Modality(modality), STEPS[step])


def main() -> None:
    jobs, answers = open_pipes()
    config = read_message(jobs)
    worker = Worker(config, Replies(answers))
    bound_memory(worker.limits.child_mb)
    worker.ready()
    while (batch := read_message(jobs)) is not None:
        os.environ.update(batch.get("variables", {}))
        worker.purse = Purse(batch["money"]) if batch.get("money") is not None else None
        worker.work_all(batch["jobs"], batch["threads"])


if __name__ == "__main__":
    main()
