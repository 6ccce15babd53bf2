"""Task: the one way to tend data. A task is planned as a value, explained, applied step by step, journalled, resumed.

Reads   whatever the task's plan reads
Writes  what its steps say, and nothing else; the ledger's plans and journal
Invariant: what is explained is what is applied. A plan is a frozen value; `--dry-run` prints it and `apply` carries out
that very value, under the leases of its kind, a note before and after each step. Before a step, what it is about is
compared with what it was planned for. Killed anywhere, the same command goes on with the steps that are left, in any
process: a step that was begun and not ended is done again, so every step must bear being done twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from headwater import faults
from headwater.errors import Conflict, HeadwaterError
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.plans import (
    StoredPlan,
    begin_step,
    end_step,
    finish_plan,
    start_plan,
    unfinished_plans,
)
from headwater.upkeep import work
from headwater.upkeep.journal import DONE, FAILED
from headwater.upkeep.parts import Parts

MOVED: Final = "moved"
_ATTEMPTS: Final = 3  # of planning for a lake that moves on meanwhile
Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change. `about` names what it changes, `expects` the state of that when it was planned (empty: any state),
    `cost` what it will take, each with its unit in its name."""

    action: ClassVar[str]
    about: str
    expects: str = ""
    cost: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"action": self.action, **asdict(self)}


class Plan(Protocol):
    """A frozen value that knows its steps; `to_dict` is what `--dry-run --json` prints, and has them as `steps`."""

    @property
    def steps(self) -> tuple[Step, ...]: ...
    def to_dict(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=Plan)


class Task(ABC, Generic[P]):
    """One kind of work on one lake. Whoever has read one has read them all."""

    kind: ClassVar[str]
    """By which its leases are found (`exclusion.LEASES`), and its lines in the journal."""
    step_types: ClassVar[Sequence[type[Step]]]
    any_format: ClassVar[bool] = False
    """The lake may be of another format, or not yet one."""
    refuses_when_moved: ClassVar[bool] = False
    """Where the lake is not the one that was planned for nothing is planned anew: a person has to look again."""
    ends_with_resume: ClassVar[bool] = False
    """Where a plan that was cut short is finished now there is no more to do: it was for one thing, done once."""
    keeps_journal: ClassVar[bool] = True
    """False for who replaces the journal itself, and adds its own line at the end."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What a second call of the same command would say too: by this a plan that was cut short is known again."""
        return {}

    @abstractmethod
    def plan(self) -> P:
        """Pure: reads, and writes nothing."""

    def stands(self, step: Step) -> bool:
        """Whether what an ended step did still holds; asked when a plan that was cut short is gone on with."""
        return True

    def state(self, step: Step) -> str:
        """What a step is about, as it is now, in the words of `expects`. Asked only of steps that expect something."""
        return step.expects

    @abstractmethod
    def do(self, step: Step, held: Held) -> Result:
        """Carry one step out; what is returned is kept in the journal. Twice is once."""


@dataclass(frozen=True, slots=True)
class Applied(Generic[P]):
    """A plan and what came of its steps; `resumed` are those that an earlier plan, cut short, had left. No plan where
    they were all that there was to do."""

    plan: P | None
    resumed: tuple[tuple[Step, Result], ...] = ()
    results: tuple[tuple[Step, Result], ...] = ()


class Moved(Conflict):
    """What a step is about is not as it was planned for."""


def apply(
    task: Task[P],
    parts: Parts,
    plan: P | None = None,
    *,
    report: Callable[[str], None] | None = None,
    stepped: Callable[[Step, Result], None] | None = None,
) -> Applied[P]:
    """Finish what was cut short, then carry out `plan`, or what is to be done now.

    Conflict where somebody is at work that must not be beside it, or the lake moves on faster than it is planned for.
    `stepped` is called after each step.
    """
    with work.alone(parts, task.kind, any_format=task.any_format) as held:
        applying = _Applying(task, parts, held, report or _silent, stepped or _silent)
        left = applying.find_left()
        if left is None:
            plan = task.plan() if plan is None else plan
            if not plan.steps:
                return Applied(plan)
        with _journalled(parts, task) as counts:
            over = left is not None and applying.resume(left) and task.ends_with_resume
            resumed = tuple(applying.results)
            if left is not None:
                plan = None if over else task.plan()
            plan = applying.carry_out_anew(plan) if plan is not None else None
            counts.update(applying.counts())
    return Applied(plan, resumed, tuple(applying.results[len(resumed) :]))


@contextmanager
def _journalled(parts: Parts, task: Task[P]) -> Iterator[dict[str, int]]:
    if not task.keeps_journal:
        yield {}
        return
    with work.recorded(parts, task.kind) as entry:
        yield entry.done


class _Applying(Generic[P]):
    def __init__(
        self,
        task: Task[P],
        parts: Parts,
        held: Held,
        report: Callable[[str], None],
        stepped: Callable[[Step, Result], None],
    ) -> None:
        self._task = task
        self._clock = parts.clock
        self._held = held
        self._report = report
        self._stepped = stepped
        self.results: list[tuple[Step, Result]] = []

    def find_left(self) -> StoredPlan | None:
        """We have the lease, so whoever began it is dead or was replaced."""
        about = dict(self._task.about)
        found = (plan for plan in unfinished_plans(self._held.ledger, self._task.kind) if plan.about == about)
        return next(found, None)

    def resume(self, left: StoredPlan) -> bool:
        """Whether it could be finished as it was planned."""
        steps = load_steps(self._task.step_types, left.steps)
        self._report(f"Going on where it was stopped: {len(left.ended)} of {len(steps)} steps are done.")
        try:
            self._carry_out(left.id, steps, left.begun, left.ended)
        except Moved as moved:
            self._report(f"{moved} Planned anew.")
            return False
        return True

    def carry_out_anew(self, plan: P) -> P:
        """As planned; where the lake has moved on since, as planned for what it is now."""
        for attempt in range(_ATTEMPTS):
            if not plan.steps:
                break
            steps = [step.to_dict() for step in plan.steps]
            number = start_plan(self._held.ledger, self._task.kind, self._task.about, steps, self._clock())
            try:
                self._carry_out(number, plan.steps, frozenset(), {})
                break
            except Moved as moved:
                if self._task.refuses_when_moved or attempt == _ATTEMPTS - 1:
                    raise
                self._report(f"{moved} Planned anew.")
                plan = self._task.plan()
        return plan

    def _carry_out(
        self, plan_id: int, steps: Sequence[Step], begun: frozenset[int], ended: Mapping[int, Result]
    ) -> None:
        done = len(self.results)
        try:
            for number, step in enumerate(steps):
                if number in ended and self._task.stands(step):
                    self.results.append((step, ended[number]))
                else:
                    self._do(plan_id, number, step, begun=number in begun)
        except BaseException as error:
            # Without an outcome the plan is found, and gone on with. One that was refused before it did a thing is not.
            outcome = MOVED if isinstance(error, Moved) else FAILED
            if outcome == MOVED or (_is_refusal(error) and len(self.results) == done):
                with suppress(HeadwaterError):  # the ledger may be what failed
                    finish_plan(self._held.ledger, plan_id, outcome, self._clock())
            raise
        finish_plan(self._held.ledger, plan_id, DONE, self._clock())

    def _do(self, plan_id: int, number: int, step: Step, *, begun: bool) -> None:
        if not begun and step.expects and (found := self._task.state(step)) != step.expects:
            raise Moved(f"{step.about} moved: expected {step.expects}, found {found}.")
        ledger = self._held.ledger
        begin_step(ledger, plan_id, number, self._clock())
        faults.point("task.begun")
        result = self._task.do(step, self._held)
        faults.point("task.done")
        end_step(ledger, plan_id, number, self._clock(), result)
        self.results.append((step, result))
        self._stepped(step, result)
        faults.point("task.ended")

    def counts(self) -> dict[str, int]:
        """By action, for the journal."""
        found: dict[str, int] = {}
        for step, _ in self.results:
            found[step.action] = found.get(step.action, 0) + 1
        return found


def load_steps(types: Sequence[type[Step]], stored: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """The very values that were written down; Conflict where a newer Headwater wrote them."""
    known = {each.action: each for each in types}
    steps = []
    for row in stored:
        fields = {name: _frozen(value) for name, value in row.items() if name != "action"}
        try:
            steps.append(known[row["action"]](**fields))
        except (KeyError, TypeError) as error:
            raise Conflict(
                f"A plan that was cut short has a step that this Headwater does not know: {row.get('action')}. "
                "Finish it with the Headwater that began it."
            ) from error
    return tuple(steps)


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, HeadwaterError) and not error.retryable


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def _silent(*_: object) -> None:
    pass
