"""The sandbox: a long-lived child process in which a crash or a hang of a decoder costs one row.

A hang is ended at its deadline (TIMEOUT). A crash is tried once more in a fresh child, then believed (CRASHED). Who is
slower than the batch has patience for is set aside (SLOW). Steps that had already answered keep their answers, and of a
step that had read a part, that part is the answer.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headwater.domain.modality import INLINE
from headwater.errors import Unavailable
from headwater.flow.child.environment import child_settings, needed_variables
from headwater.flow.derive.batch_budget import BatchBudget
from headwater.flow.derive.child import VERIFY, WHOLE_OBJECT
from headwater.flow.derive.job_clock import Trouble
from headwater.flow.derive.sandbox_process import Answer, Answered, Child, ChildRun, Result
from headwater.flow.derive.source import Limits
from headwater.settings import Settings

__all__ = ["Answer", "Answered", "BatchBudget", "Result", "Sandbox", "StepJob", "job", "sandbox_config"]

ATTEMPTS: Final = 2
_LATE: Final = frozenset({"SLOW", "TIMEOUT"})


@dataclass(frozen=True, slots=True)
class StepJob:
    """A step to do. `tag` is what the answer is known by; `model` is the one to use in place of the setting's, and
    `standby` says that nobody sees its rows: where it cannot be loaded, the others go on."""

    tag: str
    step: str
    setting: str | None = None
    model: str | None = None
    standby: bool = False


def sandbox_config(settings: Settings, **extra: Any) -> dict[str, Any]:
    """What a child must know of a lake, as plain values that travel to the workers."""
    return {"lake": str(settings.lake), "settings": child_settings(settings), "models": dict(settings.models), **extra}


def job(
    steps: Sequence[str | StepJob], modality: str, pointer: Mapping[str, Any], text: str | None = None
) -> dict[str, Any]:
    """A bare name is a step with the setting's own model."""
    return {
        "steps": [asdict(step if isinstance(step, StepJob) else StepJob(step, step)) for step in steps],
        "modality": str(modality),
        "pointer": dict(pointer),
        "text": text if modality in INLINE else None,
    }


@dataclass(frozen=True, slots=True)
class _Lost:
    """An object that was in hand when its child was: what it has so far, whose fault it was, and since when."""

    result: Result
    kept: tuple[str, Any] | None
    trouble: Trouble | None
    since: float
    billed: float


class Sandbox:
    """`config`: `lake`, `settings` by name (what is missing takes its default), and for tests and benchmarks `fetch`
    (`module:function` from pointer to bytes or path) and `steps` (name or `modality.name` to `module:function`).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._limits = Limits.from_settings(self._config.get("settings", {}))
        self._child: Child | None = None

    def derive(
        self, steps: Sequence[str], modality: str, pointer: Mapping[str, Any], text: str | None = None
    ) -> Result:
        """One object. A step that is missing from the answer was spoken for by an earlier fault."""
        return self.derive_many([job(steps, modality, pointer, text)])[0]

    def derive_many(
        self,
        jobs: Sequence[Mapping[str, Any]],
        threads: int = 1,
        answered: Answered | None = None,
        budget: BatchBudget | None = None,
    ) -> list[Result]:
        """Several objects, made by `job`, at once: less talk for each. Answers come in the same order.

        Raises Unavailable where the raw store does not answer: that is no object's fault.
        """
        on_answer = answered or _nobody
        budget = budget or BatchBudget()
        results: dict[int, Result] = {}
        while left := [number for number in range(len(jobs)) if number not in results]:
            if (fault := budget.exhausted) is not None:
                results |= {number: {jobs[number]["steps"][0]["tag"]: {"fault": fault, "cost": 0.0}} for number in left}
                break
            run = self._run([jobs[number] for number in left], threads, budget, _renumbered(on_answer, left))
            results |= {left[number]: result for number, result in run.finished.items()}
            if run.trouble is None:
                continue
            self.close()
            for number, lost in _lost(run, len(left)).items():
                results[left[number]] = again = self._again(jobs[left[number]], lost, budget)
                for tag in again.keys() - lost.result.keys():
                    on_answer(left[number], tag, again[tag])
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
        return self._child.pid if self._child else None

    def _again(self, job: Mapping[str, Any], lost: _Lost, budget: BatchBudget) -> Result:
        """The rest of an object. A crash gets a second chance, a hang does not; who is slow is waited for elsewhere."""
        result, kept, trouble, crashes, billed = dict(lost.result), lost.kept, lost.trouble, 0, lost.billed
        while left := [step for step in job["steps"] if step["tag"] not in result]:
            if trouble and trouble[0] in _LATE:
                # A hang too: hundreds of them, each for as long as a step may take, are hours.
                budget.halve_patience()
            if trouble and trouble[0] == "SLOW":
                return result | _set_aside(left, trouble, billed)
            if trouble:
                crashes += 1
                if trouble[0] == "TIMEOUT" or crashes >= ATTEMPTS:
                    result[left[0]["tag"]] = _verdict(left[0]["tag"], kept, trouble, billed)
                    crashes, billed = 0, 0.0
                    if left.pop(0)["step"] in {WHOLE_OBJECT, VERIFY} or not left:
                        break
            run = self._run([{**job, "steps": left}], 1, budget, _nobody, since=lost.since)
            fresh = run.finished.get(0) or run.partial.get(0, {})
            crashes = 0 if fresh else crashes
            result |= fresh
            kept, trouble = run.kept.get(0), run.trouble
            if trouble is None:
                break
            billed = run.billed.get(0, 0.0) + (0.0 if fresh else billed)
            self.close()
        return result

    def _run(
        self,
        jobs: Sequence[Mapping[str, Any]],
        threads: int,
        budget: BatchBudget,
        answered: Answered,
        since: float | None = None,
    ) -> ChildRun:
        """`since` is when a single job was begun for the first time."""
        variables = needed_variables(self._config, jobs)
        hurried = [{**job, "patience": budget.patience} for job in jobs]
        batch = {"jobs": hurried, "threads": threads, "variables": variables, "money": budget.money}
        try:
            return self._started().run(batch, ChildRun(self._limits, budget, answered, since))
        except Unavailable:
            self.close()  # answers to the rest of the batch are still on their way
            raise

    def _started(self) -> Child:
        if self._child is None or not self._child.is_alive:
            self.close()
            self._child = Child(self._config)
        return self._child


def _lost(run: ChildRun, jobs: int) -> dict[int, _Lost]:
    """Of several under way nobody knows whose fault it was: each is tried alone, and none is blamed yet.

    Only who was too slow for the batch need not be tried: it is set aside whoever held it up.
    """
    suspects = run.in_hand or [next(number for number in range(jobs) if number not in run.finished)]
    blamed = run.trouble if len(suspects) == 1 else None
    late = {number: trouble for number, trouble in run.overdue.items() if trouble[0] == "SLOW"}
    return {
        number: _Lost(
            run.partial.get(number, {}),
            run.kept.get(number) if blamed else None,
            late.get(number, blamed),
            run.begun.get(number, time.monotonic()),
            run.billed.get(number, 0.0),
        )
        for number in suspects
    }


def _verdict(tag: str, kept: tuple[str, Any] | None, trouble: Trouble, billed: float) -> Answer:
    """What was read before the time ran out is an answer, with a note of why there is no more of it."""
    if kept is None or kept[0] != tag:
        return {"fault": trouble, "cost": billed}
    result = {**kept[1], "cost": billed} if billed else kept[1]
    return {"ok": result, "note": ("PARTIAL", f"{trouble[1]} What was read until then is kept.")}


def _set_aside(steps: Sequence[Mapping[str, Any]], trouble: Trouble, billed: float) -> Result:
    """Every step that is left; where one of them speaks for the whole object, that one for all."""
    chosen = [step for step in steps if step["step"] in {VERIFY, WHOLE_OBJECT}][:1] or steps
    return {step["tag"]: {"fault": trouble, "cost": billed if step is chosen[0] else 0.0} for step in chosen}


def _nobody(number: int, tag: str, answer: Answer) -> None:
    pass


def _renumbered(on_answer: Answered, numbers: Sequence[int]) -> Answered:
    """For a child that was given only some of the jobs."""
    return lambda number, tag, answer: on_answer(numbers[number], tag, answer)
