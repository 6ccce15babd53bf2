"""The sandbox's child as its parent sees it: a process, the messages between the two, and the time of each job in hand.

A job whose time is up ends the child, but not before the others in hand have had theirs: their calls may be paid for.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from headwater.errors import ModelNotLoaded, Unavailable
from headwater.flow.child.process import ChildProcess
from headwater.flow.derive.batch_budget import BatchBudget, amount
from headwater.flow.derive.job_clock import LOAD_SECONDS, JobClock, Trouble
from headwater.flow.derive.messages import checked_message
from headwater.flow.derive.source import Limits

# {"ok": result} or {"fault": (reason, detail), "cost": money}; with a `note` where a result is only a part
Answer = dict[str, Any]
Result = dict[str, Answer]  # by the step's tag
Answered = Callable[[int, str, Answer], None]  # told of each answer as it comes: which job, which tag, what


class ChildRun:
    """What came of a batch: whole answers, the answers of objects in hand, and why it stopped, if it did."""

    def __init__(self, limits: Limits, budget: BatchBudget, answered: Answered, since: float | None = None) -> None:
        """`since` is when the first job was begun, where it is tried again: its time goes on."""
        self.limits = limits
        self._budget = budget
        self._answered = answered
        self._since = since
        self._clocks: dict[int, JobClock] = {}
        self.finished: dict[int, Result] = {}
        self.partial: dict[int, Result] = {}
        self.kept: dict[int, tuple[str, Any]] = {}  # of a step that is not done: what it has so far
        self.overdue: dict[int, Trouble] = {}
        self.billed: dict[int, float] = {}  # what the step at hand has cost so far
        self.trouble: Trouble | None = None

    @property
    def in_hand(self) -> list[int]:
        return list(self._clocks)

    @property
    def begun(self) -> dict[int, float]:
        """Those in hand, and since when."""
        return {number: clock.begun for number, clock in self._clocks.items()}

    def note(self, message: Mapping[str, Any], now: float) -> None:
        number = message["job"]
        if "traceback" in message:
            print(message["traceback"], file=sys.stderr)  # a worker's goes to logs/spark.out
            if "unavailable" not in message:
                return  # of a standby, which is left out
            raise ModelNotLoaded(message["unavailable"])
        if "unavailable" in message:
            raise Unavailable(message["unavailable"])
        if "begun" in message:
            begun = now if self._since is None else self._since
            self._clocks[number] = JobClock(self.limits, self._budget.patience, begun, now)
            self.partial[number] = {}
        elif "done" in message:
            self.finished[number] = self.partial.pop(number, {})
            for held in (self._clocks, self.kept, self.overdue):
                held.pop(number, None)
        elif "kept" in message:
            self.kept[number] = (str(message.get("tag")), message["kept"])
        elif "billed" in message:
            self.billed[number] = self.billed.get(number, 0.0) + message["billed"]
            self._budget.spend(message["billed"])
        else:
            if number in self._clocks:
                self._clocks[number].note(message, now)
            if "tag" in message:
                self._answer(number, message)

    def _answer(self, number: int, message: Mapping[str, Any]) -> None:
        cost = self.billed.pop(number, 0.0)
        if "fault" in message:
            reason, detail = message["fault"]
            answer: Answer = {"fault": (reason, detail), "cost": cost}
            self._budget.note_fault(answer["fault"])
        else:
            answer = {"ok": self._priced(message.get("ok"), cost)}
        self.partial.setdefault(number, {})[message["tag"]] = answer
        self.kept.pop(number, None)
        self.overdue.pop(number, None)  # late, but here
        self._answered(number, message["tag"], answer)

    def _priced(self, result: Any, billed: float) -> Any:
        """What the calls were billed is the cost; a model that says nothing of its calls has told it in its answer."""
        if not isinstance(result, dict) or "cost" not in result:
            return result
        if billed:
            return {**result, "cost": billed}
        self._budget.spend(amount(result["cost"]))
        return result

    def skip(self, seconds: float) -> None:
        for clock in self._clocks.values():
            clock.skip(seconds)

    def deadline(self, now: float, grace: float) -> float | None:
        """When the next of those in hand is overdue; None where all of them are. Before the first, some time from now.

        Whoever is overdue by now is noted.
        """
        if not self._clocks:
            return now + self.limits.step_seconds + grace
        deadlines = {number: clock.deadline() + grace for number, clock in self._clocks.items()}
        late = [number for number, deadline in deadlines.items() if deadline <= now and number not in self.overdue]
        self.overdue |= {number: self._clocks[number].trouble() for number in late}
        return min((at for number, at in deadlines.items() if number not in self.overdue), default=None)


class Child:
    """A running process. `end` it; it ends by itself where this one dies."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        named = str(config.get("settings", {}).get("limits.child_variables", ""))
        self._child = ChildProcess("headwater.flow.derive.child", config, named)
        self._ready = False
        self._loading_since: float | None = time.monotonic()

    @property
    def pid(self) -> int:
        return self._child.process.pid

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive

    def run(self, batch: Mapping[str, Any], run: ChildRun) -> ChildRun:
        """`batch` is what the child is sent: `jobs`, `threads` and `variables`."""
        self._child.send(batch)
        while len(run.finished) < len(batch["jobs"]):
            # A model that is being loaded, and a child that starts, are given time on top.
            grace = LOAD_SECONDS if self._loading_since is not None else 0.0
            deadline = run.deadline(time.monotonic(), grace)
            if deadline is None:
                run.trouble = next(iter(run.overdue.values()))
                break
            data = self._child.receive(deadline)
            if data is None:
                if not run.in_hand:  # it did not begin
                    run.trouble = "TIMEOUT", f"The decoding child said nothing for {run.limits.step_seconds:g} s."
                    break
                continue
            if not data:
                run.trouble = self._how_it_died()
                break
            try:
                messages = [checked_message(message, len(batch["jobs"])) for message in self._child.unpack(data)]
            except (ValueError, RecursionError) as error:
                run.trouble = "CRASHED", f"The child said what nobody understands: {error}."
                break
            for message in messages:
                self._note(run, message)
        return run

    def end(self) -> None:
        self._child.end()

    def _note(self, run: ChildRun, message: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if "loading" not in message:
            run.note(message, now)
            return
        if self._loading_since is not None:
            run.skip(min(LOAD_SECONDS, now - self._loading_since))
        self._ready, self._loading_since = True, now if message["loading"] else None

    def _how_it_died(self) -> Trouble:
        how = self._child.how_it_died()
        if not self._ready:
            raise Unavailable(f"The decoding child does not start: {self._child.last_words()}. Check the installation.")
        if self._loading_since is not None:
            raise ModelNotLoaded(
                f"A model ended its process while it was loaded: {how}; {self._child.last_words()}. "
                "Mend it, or raise limits.child_mb, then try again."
            )
        return "CRASHED", f"The decoder or model ended its process: {how}."
