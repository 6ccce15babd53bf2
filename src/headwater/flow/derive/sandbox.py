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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from headwater.domain.modality import Modality
from headwater.errors import Unavailable
from headwater.flow.derive.child import WHOLE_OBJECT
from headwater.flow.derive.frames import Unpacker, packed
from headwater.flow.derive.source import Limits
from headwater.settings import SETTINGS, Settings

ATTEMPTS: Final = 2
LOAD_SECONDS: Final = 60.0  # a cold machine may take this long to start a child or to load a model, on top of its step
READ_BYTES: Final = 1 << 20
THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

Result = dict[str, dict[str, Any]]  # by step: {"ok": result} or {"fault": (reason, detail)}


def sandbox_config(settings: Settings, **extra: Any) -> dict[str, Any]:
    """What a child must know of a lake, as plain values that travel to the workers."""
    values = {setting.name: settings.chosen[setting.name].value for setting in SETTINGS}
    return {"lake": str(settings.lake), "settings": values, **extra}


def job(steps: Sequence[str], modality: str, pointer: Mapping[str, Any], text: str | None = None) -> dict[str, Any]:
    return {
        "steps": list(steps),
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

    def derive_many(self, jobs: Sequence[Mapping[str, Any]]) -> list[Result]:
        """Several objects, made by `job`, at once: less talk for each. Answers come in the same order.

        Raises Unavailable where the raw store does not answer: that is no object's fault.
        """
        results: list[Result] = []
        while len(results) < len(jobs):
            run = self._run(jobs[len(results) :])
            results.extend(run.finished)
            if run.trouble is not None:
                self.close()
                results.append(self._again(jobs[len(results)], run))
        return results

    def close(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    @property
    def pid(self) -> int | None:
        """The child's, while there is one."""
        return self._child.process.pid if self._child else None

    def _again(self, lost: Mapping[str, Any], run: "_Run") -> Result:
        """The object that was in hand when the child was lost. A crash gets a second chance, a hang does not."""
        result, crashes = dict(run.partial), 0
        while run.trouble and (left := [step for step in lost["steps"] if step not in result]):
            crashes = crashes + 1 if not run.partial else 1
            if run.trouble[0] == "TIMEOUT" or crashes == ATTEMPTS:
                result[left[0]] = {"fault": run.trouble}
                crashes = 0
                if left.pop(0) == WHOLE_OBJECT or not left:
                    break
            run = self._run([{**lost, "steps": left}])
            result |= run.finished[0] if run.finished else run.partial
            if run.trouble:
                self.close()
        return result

    def _run(self, jobs: Sequence[Mapping[str, Any]]) -> "_Run":
        try:
            return self._started().run(jobs)
        except Unavailable:
            self.close()  # answers to the rest of the batch are still on their way
            raise

    def _started(self) -> "_Child":
        if self._child is None or self._child.process.poll() is not None:
            self.close()
            self._child = _Child(self._config, self._limits)
        return self._child


class _Run:
    """What came of a batch: whole answers, the answers of the object in hand, and why it stopped, if it did."""

    def __init__(self) -> None:
        self.finished: list[Result] = []
        self.partial: Result = {}
        self.allowed = 0.0
        self.trouble: tuple[str, str] | None = None


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

    def run(self, jobs: Sequence[Mapping[str, Any]]) -> _Run:
        run = _Run()
        self._send(packed(list(jobs)))
        while len(run.finished) < len(jobs):
            # The clock starts again with each answer; what an object was allowed on top holds for all its steps.
            seconds = self._limits.step_seconds + run.allowed + (LOAD_SECONDS if self._loading else 0)
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
        elif "unavailable" in message:
            raise Unavailable(message["unavailable"])
        elif "allow" in message:
            run.allowed = max(run.allowed, float(message["allow"]))
        elif "done" in message:
            run.finished.append(run.partial)
            run.partial, run.allowed = {}, 0.0
        elif "fault" in message:
            reason, detail = message["fault"]
            run.partial[message["step"]] = {"fault": (reason, detail)}
        else:
            run.partial[message["step"]] = {"ok": message["ok"]}

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
