"""The sandbox: a long-lived child process in which a crash or a hang of a decoder costs one row.

A hang is ended at its deadline (TIMEOUT). A crash is tried once more in a fresh child, then believed (CRASHED). Steps
that had already answered keep their answers.
"""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from headwater.domain.modality import Modality
from headwater.errors import Unavailable
from headwater.flow.derive.child import WHOLE_OBJECT
from headwater.flow.derive.frames import Unpacker, packed
from headwater.flow.derive.source import Limits
from headwater.settings import SETTINGS, Settings

ATTEMPTS: Final = 2
FETCH_SECONDS: Final = 600.0  # a store may take this long to bring an object; one that says nothing gives up before
LOAD_SECONDS: Final = 60.0  # a cold machine may take this long to start a child or to load a model, on top of its step
READ_BYTES: Final = 1 << 20
THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

Answer = dict[str, Any]  # {"ok": result} or {"fault": (reason, detail)}
Result = dict[str, Answer]  # by the step's tag
Answered = Callable[[int, str, Answer], None]  # told of each answer as it comes: which job, which tag, what


@dataclass(frozen=True, slots=True)
class StepJob:
    """A step to do. `tag` is what the answer is known by; `model` is the one to use in place of the setting's."""

    tag: str
    step: str
    setting: str | None = None
    model: str | None = None


def sandbox_config(settings: Settings, **extra: Any) -> dict[str, Any]:
    """What a child must know of a lake, as plain values that travel to the workers."""
    values = {setting.name: settings.chosen[setting.name].value for setting in SETTINGS}
    return {"lake": str(settings.lake), "settings": values, "models": dict(settings.models), **extra}


def job(
    steps: Sequence[str | StepJob], modality: str, pointer: Mapping[str, Any], text: str | None = None
) -> dict[str, Any]:
    """A bare name is a step with the setting's own model."""
    return {
        "steps": [asdict(step if isinstance(step, StepJob) else StepJob(step, step)) for step in steps],
        "modality": str(modality),
        "pointer": dict(pointer),
        "text": text if modality == Modality.CHAT else None,
    }


class Sandbox:
    """`config`: `lake`, `settings` by name (what is missing takes its default), and for tests and benchmarks `fetch`
    (`module:function` from pointer to bytes or path) and `steps` (name or `modality.name` to `module:function`).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._limits = Limits.from_settings(self._config.get("settings", {}))
        self._child: _Child | None = None

    def derive(
        self, steps: Sequence[str], modality: str, pointer: Mapping[str, Any], text: str | None = None
    ) -> Result:
        """One object. A step that is missing from the answer was spoken for by an earlier fault."""
        return self.derive_many([job(steps, modality, pointer, text)])[0]

    def derive_many(
        self, jobs: Sequence[Mapping[str, Any]], threads: int = 1, answered: Answered | None = None
    ) -> list[Result]:
        """Several objects, made by `job`, at once: less talk for each. Answers come in the same order.

        Raises Unavailable where the raw store does not answer: that is no object's fault.
        """
        told = answered or (lambda number, tag, answer: None)
        results: dict[int, Result] = {}
        while left := [number for number in range(len(jobs)) if number not in results]:
            run = self._run([jobs[number] for number in left], threads, _renumbered(told, left))
            results |= {left[number]: result for number, result in run.finished.items()}
            if run.trouble is None:
                continue
            self.close()
            waiting = [number for number in range(len(left)) if number not in run.finished]
            suspects = [number for number in waiting if number in run.begun] or waiting[:1]
            # Of several under way nobody knows whose fault it was: each is tried alone, and none is blamed yet.
            blamed = run.trouble if len(suspects) == 1 else None
            for number in suspects:
                known = run.partial.get(number, {})
                results[left[number]] = again = self._again(jobs[left[number]], known, blamed)
                for tag in again.keys() - known.keys():
                    told(left[number], tag, again[tag])
        return [results[number] for number in range(len(jobs))]

    def start(self) -> None:
        """Start the child and go on; it is ready when it answers."""
        self._started()

    def close(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    @property
    def pid(self) -> int | None:
        """The child's, while there is one."""
        return self._child.process.pid if self._child else None

    def _again(self, lost: Mapping[str, Any], partial: Result, trouble: tuple[str, str] | None) -> Result:
        """An object that was in hand when the child was lost. A crash gets a second chance, a hang does not."""
        result, crashes = dict(partial), 0
        while left := [step for step in lost["steps"] if step["tag"] not in result]:
            if trouble:
                crashes += 1
                if trouble[0] == "TIMEOUT" or crashes >= ATTEMPTS:
                    result[left[0]["tag"]] = {"fault": trouble}
                    crashes = 0
                    if left.pop(0)["step"] == WHOLE_OBJECT or not left:
                        break
            run = self._run([{**lost, "steps": left}], 1, lambda *_: None)
            fresh = run.finished.get(0) or run.partial.get(0, {})
            crashes = 0 if fresh else crashes
            result |= fresh
            trouble = run.trouble
            if trouble is None:
                break
            self.close()
        return result

    def _run(self, jobs: Sequence[Mapping[str, Any]], threads: int, answered: Answered) -> "_Run":
        try:
            return self._started().run(jobs, threads, answered)
        except Unavailable:
            self.close()  # answers to the rest of the batch are still on their way
            raise

    def _started(self) -> "_Child":
        if self._child is None or self._child.process.poll() is not None:
            self.close()
            self._child = _Child(self._config, self._limits)
        return self._child


def _renumbered(told: Answered, numbers: Sequence[int]) -> Answered:
    """For a child that was given only some of the jobs."""
    return lambda number, tag, answer: told(numbers[number], tag, answer)


class _Run:
    """What came of a batch: whole answers, the answers of objects in hand, and why it stopped, if it did."""

    def __init__(self, answered: Answered) -> None:
        self.answered = answered
        self.begun: set[int] = set()
        self.finished: dict[int, Result] = {}
        self.partial: dict[int, Result] = {}
        self.allowed: dict[int, float] = {}
        self.fetching: set[int] = set()
        self.trouble: tuple[str, str] | None = None

    def note(self, message: Mapping[str, Any]) -> None:
        number = message["job"]
        if "unavailable" in message:
            raise Unavailable(message["unavailable"])
        if "begun" in message:
            self.begun.add(number)
            self.partial[number] = {}
        elif "fetching" in message:
            (self.fetching.add if message["fetching"] else self.fetching.discard)(number)
        elif "allow" in message:
            self.allowed[number] = max(self.allowed.get(number, 0.0), float(message["allow"]))
        elif "done" in message:
            self.finished[number] = self.partial.pop(number)
            self.allowed.pop(number, None)
            self.fetching.discard(number)
        else:
            answer = {"fault": tuple(message["fault"])} if "fault" in message else {"ok": message["ok"]}
            self.partial[number][message["tag"]] = answer
            self.answered(number, message["tag"], answer)


class _Child:
    def __init__(self, config: Mapping[str, Any], limits: Limits) -> None:
        self._limits = limits
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater.flow.derive.child", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._unpacker = Unpacker()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        self._ready = False
        self._loading = True
        self._send(packed(config))

    def run(self, jobs: Sequence[Mapping[str, Any]], threads: int, answered: Answered) -> _Run:
        run = _Run(answered)
        self._send(packed({"jobs": list(jobs), "threads": threads}))
        while len(run.finished) < len(jobs):
            # The clock starts again with each answer; what an object was allowed on top holds for all its steps.
            allowed = max(run.allowed.values(), default=0.0)
            seconds = self._limits.step_seconds + allowed + (LOAD_SECONDS if self._loading else 0)
            seconds += FETCH_SECONDS if run.fetching else 0
            data = self._receive(time.monotonic() + seconds)
            if not data:
                run.trouble = self._trouble(hung=data is None)
                break
            for message in self._unpacker.feed(data):
                self._note(run, message)
        return run

    def end(self) -> None:
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self.process.kill()
        self.process.wait()
        self._errors.close()

    def _note(self, run: _Run, message: Mapping[str, Any]) -> None:
        if "loading" in message:
            self._ready, self._loading = True, message["loading"]
        else:
            run.note(message)

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it has died: reading will tell how
            self.process.stdin.write(data)  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def _receive(self, deadline: float) -> bytes | None:
        """What the child says; nothing where it has died; None where time is up."""
        if not self._selector.select(max(0.0, deadline - time.monotonic())):
            return None
        return os.read(self.process.stdout.fileno(), READ_BYTES)  # type: ignore[union-attr]

    def _trouble(self, *, hung: bool) -> tuple[str, str]:
        if hung:
            return (
                "TIMEOUT",
                f"No answer within limits.step_seconds, {self._limits.step_seconds:g} s, and its length's share.",
            )
        code = self.process.wait()
        if not self._ready:
            raise Unavailable(f"The decoding child does not start: {self._last_words()}. Check the installation.")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return "CRASHED", f"The decoder or model ended its process: {how}."

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
