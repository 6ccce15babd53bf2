"""What a Spark worker does with a batch of pointers: ask the memo, else the sandbox; remember; answer with rows.

Invariant: an answer is given only to an object whose own bytes were read and found to be the ones that its event names,
whoever else has the same and whatever the memo knows of them: a checksum is a claim, and anybody may make it.
One sandbox a Python worker, kept from batch to batch, so that a model is loaded once.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headwater import faults
from headwater.domain.groups import grouped
from headwater.domain.modality import INLINE
from headwater.errors import DataFault
from headwater.flow.derive.batch_budget import amount
from headwater.flow.derive.chat import message_result
from headwater.flow.derive.child import VERIFY
from headwater.flow.derive.outcome import SCHEMA, Row, checked_result, derived_row, quarantined_row
from headwater.flow.derive.sandbox import Answer, BatchBudget, Sandbox, StepJob, job, sandbox_config
from headwater.flow.derive.speakers import with_names
from headwater.flow.derive.work import PlannedStep, Work
from headwater.flow.spent import purse_of_attempt
from headwater.storage.memo.memo import Memo, open_memo
from headwater.storage.raw.store import is_remote

Content = tuple[str, ...]
Answers = dict[str, Answer]  # by tag
Answered = tuple[Content, str, bool]  # with the step's tag, and whether it was good

# Cheap objects go to the sandbox many at a time, dear ones singly: what is in hand at a kill is at most this much work.
_PACE_SECONDS: Final = 0.2
_PACE_OBJECTS: Final = 64
_READERS: Final = 8  # objects on another machine that are verified at once: most of it is waiting
_BATCH_LETTERS: Final = 64 << 20  # texts are in one piece of memory, which must not outgrow 2 GB
_VERIFY: Final = StepJob(VERIFY, VERIFY)


def derive_batches(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = _worker_for(work)
        worker.memo.refresh()
        for batch in batches:
            outcomes = worker.outcomes(batch.to_pylist())
            for rows in grouped(outcomes, _letters, most_bytes=_BATCH_LETTERS, most_items=len(SCHEMA) * batch.num_rows):
                yield pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)

    return run


def sandbox_start(work: Work) -> Callable[[], None]:
    """What a worker can do before there is anything to do."""
    return lambda: _worker_for(work).open()


@dataclass(slots=True)
class _Object:
    """One object of a part, with all its rows: its bytes are fetched once. `fault` is why they could not be."""

    row: Row
    steps: list[PlannedStep] = field(default_factory=list)
    verified: bool = False
    fault: tuple[str, str] | None = None

    @property
    def content(self) -> Content:
        """Objects alike in these have the same answers."""
        pointer = self.row["pointer"]
        return self.row["modality"], pointer["checksum"], pointer["content_type"] or ""

    @property
    def is_tried(self) -> bool:
        return self.verified or self.fault is not None


class _PartitionWorker:
    """A worker's place of work: its sandbox, its way to the memo, and how fast it goes."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._sandbox = Sandbox(sandbox_config(work.settings))
        self.memo: Memo = open_memo(work.settings)
        self.budget = BatchBudget()
        self._pace = 1
        self._readers = _READERS if is_remote(work.settings.text("raw.uri")) else 1

    def open(self) -> None:
        self._sandbox.start()

    def start_anew(self) -> None:
        self._sandbox.close()

    def outcomes(self, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        """For each object one row a step, or one quarantine row where the object as a whole is no good."""
        start, threads = 0, self.work.threads
        answered: set[Answered] = set()
        # With several under way at once there must be enough to choose from.
        least = 1 if threads == 1 else 4 * threads
        while start < len(rows):
            part = rows[start : start + max(least, self._pace)]
            start += len(part)
            begun = time.monotonic()
            results = self._results(part)
            self._pace = max(1, min(_PACE_OBJECTS, int(len(part) * _PACE_SECONDS / (time.monotonic() - begun + 1e-6))))
            for row, result in zip(part, results, strict=True):
                yield from self._rows_of(row, result, answered)

    def _rows_of(self, row: Row, results: Answers, answered: set[Answered]) -> Iterator[dict[str, Any]]:
        """`answered` are the answers that equal objects had: no model was called, and none was paid, a second time."""
        now, content = self.work.now, _Object(row).content
        names = self.work.settings.text("speech.channel_names")
        for step in self._steps(row):
            answer = results.get(step.tag)
            if answer is None:
                continue  # an earlier fault spoke for the whole object
            again = (key := (content, step.tag, "ok" in answer)) in answered and row["modality"] not in INLINE
            answered.add(key)
            if "fault" in answer:
                reason, detail = answer["fault"]
                cost = 0.0 if again else answer.get("cost", 0.0)
                yield {**quarantined_row(row, step, reason, detail, now), "cost": cost}
            elif answer["ok"] is not None:
                named = with_names(answer["ok"], names)
                yield derived_row(row, step, named, now, remembered=again or "remembered" in answer)
                if "note" in answer:
                    reason, detail = answer["note"]
                    yield quarantined_row(row, step, reason, detail, now)

    def _steps(self, row: Row) -> list[PlannedStep]:
        return [step for step in self.work.steps[row["modality"]] if row["only"] in {None, step.name, step.tag}]

    def _results(self, rows: Sequence[Row]) -> list[Answers]:
        """From the memo, else from the sandbox; equal content is asked for once, of an object that is good."""
        objects: dict[tuple[Any, ...], _Object] = {}
        named = [_name(row) for row in rows]
        for row, name in zip(rows, named, strict=True):
            known = objects.setdefault(name, _Object(row))
            known.steps += [step for step in self._steps(row) if step not in known.steps]
        media = [known for known in objects.values() if known.row["modality"] not in INLINE]
        answers = self._remembered(media)
        self._ask_all(media, answers)
        self._verify([known for known in media if not known.is_tried])
        return [self._answers_to(row, objects[name], answers) for row, name in zip(rows, named, strict=True)]

    def _answers_to(self, row: Row, known: _Object, answers: Mapping[Content, Answers]) -> Answers:
        steps = self._steps(row)
        if row["modality"] in INLINE:
            return _message(row, steps)
        if known.verified:
            found = answers[known.content]
            return {step.tag: found[step.tag] for step in steps if step.tag in found}
        return {steps[0].tag: {"fault": known.fault}} if steps else {}

    def _remembered(self, objects: Sequence[_Object]) -> dict[Content, Answers]:
        """What the memo has and is good; what is not is asked for anew."""
        answers: dict[Content, Answers] = {known.content: {} for known in objects}
        wanted: defaultdict[PlannedStep, dict[Content, str]] = defaultdict(dict)
        for known in objects:
            for step in known.steps:
                if step.memoised:
                    wanted[step][known.content] = _checksum(known.row)
        for step, contents in wanted.items():
            held = self.memo.shelf(step.name, step.fingerprint).find(set(contents.values()))
            for content, checksum in contents.items():
                if checksum in held and "ok" in (answer := _judged(_kept(held[checksum]), step)):
                    answers[content][step.tag] = {**answer, "remembered": True}
        return answers

    def _ask_all(self, objects: Sequence[_Object], answers: dict[Content, Answers]) -> None:
        """Of each content one object is asked for what is missing; another one where its bytes are not to be had."""
        while True:
            asked: dict[Content, tuple[_Object, list[PlannedStep]]] = {}
            for known in objects:
                missing = [step for step in known.steps if step.tag not in answers[known.content]]
                if missing and not known.is_tried and known.content not in asked:
                    asked[known.content] = known, missing
            if not asked:
                return
            for (content, (known, _)), made in zip(asked.items(), self._ask(list(asked.values())), strict=True):
                _settle(known, made)
                if known.verified:
                    # What a fault of the whole object left out is left out of its copies as well.
                    left_out: Answers = {step.tag: {"ok": None} for step in known.steps}
                    answers[content] = left_out | answers[content] | made

    def _ask(self, asked: Sequence[tuple[_Object, list[PlannedStep]]]) -> list[Answers]:
        """What was paid for is remembered as it comes; what was free, a part at a time."""
        planned = self.work.planned()
        free: defaultdict[str, dict[str, Any]] = defaultdict(dict)

        def answered(number: int, tag: str, answer: Answer) -> None:
            if (step := planned.get(tag)) is None or not step.memoised or "note" in answer:
                return
            if "ok" not in (judged := _judged(answer, step)):
                return
            checksum = _checksum(asked[number][0].row)
            if step.paid:
                faults.point("derive.called")
                self.memo.shelf(step.name, step.fingerprint).put({checksum: {"row": judged["ok"]}}, paid=True)
                faults.point("derive.memoised")
            else:
                free[tag][checksum] = {"row": judged["ok"]}

        jobs = [_job(known.row, [_VERIFY, *(step.to_job() for step in steps)]) for known, steps in asked]
        made = self._sandbox.derive_many(jobs, self.work.threads, answered, self.budget)
        if free:
            faults.point("derive.called")
            for tag, results in free.items():
                self.memo.shelf(*tag.split("/")).put(results, paid=False)
            faults.point("derive.memoised")
        return [{tag: _judged(answer, planned.get(tag)) for tag, answer in answers.items()} for answers in made]

    def _verify(self, objects: Sequence[_Object]) -> None:
        """Objects whose answers are known: that they are theirs is told by their own bytes alone."""
        jobs = [_job(known.row, [_VERIFY]) for known in objects]
        for known, made in zip(objects, self._sandbox.derive_many(jobs, self._readers), strict=True):
            _settle(known, made)


def _job(row: Row, steps: Sequence[StepJob]) -> dict[str, Any]:
    return job(steps, row["modality"], row["pointer"])


def _settle(known: _Object, made: Answers) -> None:
    """Whether the bytes were the ones, as the child says; it says nothing else of them."""
    verdict = made.pop(VERIFY, {"fault": ("CRASHED", "Nobody said that its bytes are the ones.")})
    known.verified, known.fault = "ok" in verdict, verdict.get("fault")


def _kept(held: Any) -> Answer:
    """What the memo holds as an answer; where it is no such thing, one that no table takes."""
    return {"ok": held["row"]} if isinstance(held, dict) and "row" in held else {"ok": ()}


def _judged(answer: Answer, step: PlannedStep | None) -> Answer:
    if step is None or "fault" in answer:
        return answer
    try:
        return {**answer, "ok": checked_result(answer["ok"], step)}
    except DataFault as fault:
        paid = answer["ok"].get("cost") if isinstance(answer["ok"], dict) else 0.0
        return {"fault": (fault.reason, fault.detail), "cost": amount(paid)}


def _letters(row: Row) -> int:
    return len(row.get("text") or "")


def _name(row: Row) -> tuple[Any, ...]:
    """Rows of one object, as one event names it. Two messages are never one: their text is not told by a name."""
    return row["modality"], *row["pointer"].values(), row["text"]


def _checksum(row: Row) -> str:
    return str(row["pointer"]["checksum"])


def _message(row: Row, steps: Sequence[PlannedStep]) -> Answers:
    """Chat needs no sandbox: there is nothing to decode."""
    if not steps:
        return {}
    try:
        return {step.tag: {"ok": message_result(row["text"])} for step in steps}
    except DataFault as fault:
        return {steps[0].tag: {"fault": (fault.reason, fault.detail)}}


_kept_worker: _PartitionWorker | None = None


def _worker_for(work: Work) -> _PartitionWorker:
    """Kept while the same sandbox is asked for: its child has the models loaded."""
    global _kept_worker
    if _kept_worker is None or _kept_worker.work.settings != work.settings:
        _kept_worker = _PartitionWorker(work)
    elif work.reload not in {"", _kept_worker.work.reload}:
        _kept_worker.start_anew()
    _kept_worker.work, _kept_worker.budget = work, BatchBudget(work.patience, purse_of_attempt(work.purse))
    return _kept_worker
