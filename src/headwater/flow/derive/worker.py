"""What a Spark worker does with a batch of pointers: ask the memo, else the sandbox; remember; answer with rows.

One sandbox a Python worker, kept from batch to batch, so that a model is loaded once.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from headwater import faults
from headwater.domain.modality import Modality
from headwater.domain.quarantine import UNFETCHED
from headwater.domain.tables import EMBEDDINGS, METADATA, QUARANTINE
from headwater.errors import DataFault
from headwater.flow.derive.chat import message_result
from headwater.flow.derive.outcome import SCHEMA
from headwater.flow.derive.sandbox import Answer, Sandbox, StepJob, job, sandbox_config
from headwater.settings import Settings
from headwater.storage.memo import Memo, open_memo

Row = Mapping[str, Any]
Content = tuple[str, ...]

# Cheap objects go to the sandbox many at a time, dear ones singly: what is in hand at a kill is at most this much work.
_PACE_SECONDS: Final = 0.2
_PACE_OBJECTS: Final = 64


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step with a model that does it; several may do the same step, each into rows of its own.

    `position` names how far into bronze.events the two have come. Reading a header costs less than looking in the memo.
    """

    name: str
    table: str
    model_name: str
    label: str
    fingerprint: str
    position: str
    setting: str | None
    memoised: bool
    paid: bool
    concurrency: int

    @property
    def tag(self) -> str:
        return f"{self.name}/{self.fingerprint}"

    def to_job(self) -> StepJob:
        return StepJob(self.tag, self.name, self.setting, self.model_name if self.setting else None)


@dataclass(frozen=True, slots=True)
class Work:
    """All that travels to the workers. `now` stamps every row of the batch; `share` is how many workers there are.

    `afresh` names a wish to start anew: what a worker knows of endpoints that were down is then forgotten, once a name.
    """

    steps: Mapping[str, tuple[PlannedStep, ...]]  # by modality
    settings: Settings
    now: datetime
    share: int = 1
    afresh: str = ""

    def planned(self) -> dict[str, PlannedStep]:
        """By tag."""
        return {step.tag: step for steps in self.steps.values() for step in steps}

    def labels(self) -> dict[str, str]:
        """Of the models that can be chosen, by tag."""
        return {tag: step.label for tag, step in self.planned().items() if step.setting}

    def only(self, tags: Collection[str]) -> "Work":
        kept = {modality: tuple(s for s in steps if s.tag in tags) for modality, steps in self.steps.items()}
        return replace(self, steps=kept)

    @property
    def threads(self) -> int:
        """How many objects a worker may have under way at once."""
        most = max((step.concurrency for step in self.planned().values()), default=1)
        return max(1, -(-most // self.share))


def derive_batches(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        desk = _desk(work)
        desk.memo.refresh()
        for batch in batches:
            yield pa.RecordBatch.from_pylist(list(desk.outcomes(batch.to_pylist())), schema=SCHEMA)

    return run


def derive_soon(work: Work) -> Callable[[], None]:
    """What a worker can do before there is anything to do."""
    return lambda: _desk(work).open()


class _Desk:
    """A worker's place of work: its sandbox, its way to the memo, and how fast it goes."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._sandbox = Sandbox(sandbox_config(work.settings))
        self.memo: Memo = open_memo(work.settings)
        self._pace = 1

    def open(self) -> None:
        self._sandbox.start()

    def start_anew(self) -> None:
        self._sandbox.close()

    def outcomes(self, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        """For each object one row a step, or one quarantine row where the object as a whole is no good."""
        start, threads = 0, self.work.threads
        told: set[Content] = set()
        # With several under way at once there must be enough to choose from.
        least = 1 if threads == 1 else 4 * threads
        while start < len(rows):
            part = rows[start : start + max(least, self._pace)]
            start += len(part)
            begun = time.monotonic()
            results = self._results(part)
            self._pace = max(1, min(_PACE_OBJECTS, int(len(part) * _PACE_SECONDS / (time.monotonic() - begun + 1e-6))))
            for row, result in zip(part, results, strict=True):
                content = _content(row)
                yield from self._rows_of(row, result, again=content in told)
                if any("ok" in answer for answer in result.values()):
                    told.add(content)

    def _rows_of(self, row: Row, results: Mapping[str, Answer], *, again: bool) -> Iterator[dict[str, Any]]:
        """`again` where an equal object had its rows from the same answers: no model was called for this one."""
        for step in self._steps(row):
            answer = results.get(step.tag)
            if answer is None:
                continue  # an earlier fault spoke for the whole object
            if "fault" in answer:
                yield self._quarantined(row, step, *answer["fault"])
            elif answer["ok"] is not None:
                yield {**self._derived(row, step, answer["ok"]), "remembered": again or "remembered" in answer}

    def _steps(self, row: Row) -> list[PlannedStep]:
        return [step for step in self.work.steps[row["modality"]] if row["only"] in {None, step.name, step.tag}]

    def _results(self, rows: Sequence[Row]) -> list[dict[str, Answer]]:
        """From the memo, else from the sandbox; equal content in one part is asked for once, of a copy that is good."""
        copies: defaultdict[Content, dict[str, Row]] = defaultdict(dict)
        for row in rows:
            copies[_content(row)].setdefault(row["object_id"], row)
        answers = self._remembered({content: next(iter(found.values())) for content, found in copies.items()})
        own: dict[tuple[Content, str], dict[str, Answer]] = {}
        while copies:
            asked: list[tuple[Content, Row, list[PlannedStep]]] = []
            for content, found in copies.items():
                row = found.pop(next(iter(found)))
                missing = [step for step in self._steps(row) if step.tag not in answers[content]]
                if row["modality"] == Modality.CHAT:
                    answers[content] = _message(row, missing)
                elif missing:
                    asked.append((content, row, missing))
            unfetched: set[Content] = set()
            for (content, row, _), made in zip(asked, self._ask(asked), strict=True):
                if any(answer.get("fault", ("",))[0] in UNFETCHED for answer in made.values()):
                    own[content, row["object_id"]] = answers[content] | made
                    unfetched.add(content)
                else:
                    answers[content] |= made
            copies = defaultdict(dict, {content: copies[content] for content in unfetched if copies[content]})
        return [own.get((content := _content(row), row["object_id"]), answers[content]) for row in rows]

    def _remembered(self, distinct: "Mapping[Content, Row]") -> "dict[Content, dict[str, Answer]]":
        wanted: defaultdict[str, list[Content]] = defaultdict(list)
        for content, row in distinct.items():
            for step in self._steps(row):
                if step.memoised:
                    wanted[step.tag].append(content)
        answers: dict[Content, dict[str, Answer]] = {content: {} for content in distinct}
        for tag, contents in wanted.items():
            held = self.memo.shelf(*tag.split("/")).find({_checksum(distinct[content]) for content in contents})
            for content in contents:
                if (found := held.get(_checksum(distinct[content]))) is not None:
                    answers[content][tag] = {"ok": found["row"], "remembered": True}
        return answers

    def _ask(self, asked: "Sequence[tuple[Content, Row, list[PlannedStep]]]") -> list[dict[str, Answer]]:
        """What was paid for is remembered as it comes; what was free, a part at a time."""
        planned = self.work.planned()
        free: defaultdict[str, dict[str, Any]] = defaultdict(dict)

        def answered(number: int, tag: str, answer: Answer) -> None:
            step, checksum = planned[tag], _checksum(asked[number][1])
            if not step.memoised or "ok" not in answer:
                return
            if step.paid:
                faults.point("derive.called")
                self.memo.shelf(step.name, step.fingerprint).put({checksum: {"row": answer["ok"]}})
                faults.point("derive.memoised")
            else:
                free[tag][checksum] = {"row": answer["ok"]}

        jobs = [job([step.to_job() for step in missing], row["modality"], row["pointer"]) for _, row, missing in asked]
        made = self._sandbox.derive_many(jobs, self.work.threads, answered)
        if free:
            faults.point("derive.called")
            for tag, results in free.items():
                self.memo.shelf(*tag.split("/")).put(results)
            faults.point("derive.memoised")
        return made

    def _derived(self, row: Row, step: PlannedStep, result: Mapping[str, Any]) -> dict[str, Any]:
        pointer = row["pointer"]
        facts = {"size": pointer["size"], "checksum": pointer["checksum"], "content_type": pointer["content_type"]}
        return {
            **self._provenance(row, step),
            **(facts | {"tier": "standard"} if step.table == METADATA.name else {}),
            **(_as_chunk(row, step) if step.table == EMBEDDINGS.name else {}),
            **result,
            "table": step.table,
            "derived_at": self.work.now,
        }

    def _quarantined(self, row: Row, step: PlannedStep, reason: str, detail: str) -> dict[str, Any]:
        return {
            **self._provenance(row, step),
            "table": QUARANTINE.name,
            "reason": reason,
            "detail": detail,
            "attempts": row["attempts"] + 1,
            "quarantined_at": self.work.now,
        }

    def _provenance(self, row: Row, step: PlannedStep) -> dict[str, Any]:
        carried = ("event_id", "object_id", "customer", "modality", "occurred_at", "pointer")
        named = {"event_seq": row["seq"], "step": step.name, "model": step.label, "fingerprint": step.fingerprint}
        return {name: row[name] for name in carried} | named


def _as_chunk(row: Row, step: PlannedStep) -> dict[str, Any]:
    """A picture is a chunk without text, the only one of its object; its own model is its source."""
    name = "\0".join((row["object_id"], "raw", step.fingerprint))
    return {
        "chunk_id": hashlib.blake2b(name.encode(), digest_size=12).hexdigest(),
        "chunk": 0,
        "source_table": "raw",
        "source_fingerprint": step.fingerprint,
        "source_model": step.label,
        "text": "",
    }


def _content(row: Row) -> Content:
    """Rows alike in these have the same answers. Two messages are never one: their text is not told by a name."""
    return (
        row["modality"],
        row["pointer"]["checksum"],
        row["pointer"]["content_type"],
        row["only"] or "",
        row["text"] or "",
    )


def _checksum(row: Row) -> str:
    return str(row["pointer"]["checksum"])


def _message(row: Row, steps: Sequence[PlannedStep]) -> dict[str, Answer]:
    """Chat needs no sandbox: there is nothing to decode."""
    try:
        return {step.tag: {"ok": message_result(row["text"])} for step in steps}
    except DataFault as fault:
        return {steps[0].tag: {"fault": (fault.reason, fault.detail)}}


_open_desk: _Desk | None = None


def _desk(work: Work) -> _Desk:
    """Kept while the same sandbox is asked for: its child has the models loaded."""
    global _open_desk
    if _open_desk is None or _open_desk.work.settings != work.settings:
        _open_desk = _Desk(work)
    elif work.afresh not in {"", _open_desk.work.afresh}:
        _open_desk.start_anew()
    _open_desk.work = work
    return _open_desk
