"""What a Spark worker does with a batch of pointers: ask the memo, else the sandbox; remember; answer with rows.

One sandbox a Python worker, kept from batch to batch, so that a model is loaded once.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from headwater import faults
from headwater.domain.modality import Modality
from headwater.domain.tables import METADATA, QUARANTINE
from headwater.errors import DataFault
from headwater.flow.derive.chat import message_result
from headwater.flow.derive.outcome import SCHEMA
from headwater.flow.derive.sandbox import Sandbox, job, sandbox_config
from headwater.settings import Settings
from headwater.storage.memo import Memo, MemoKey, open_memo

Row = Mapping[str, Any]
Answer = Mapping[str, Any]  # {"ok": columns} or {"fault": (reason, detail)}

# Cheap objects go to the sandbox many at a time, dear ones singly: what is in hand at a kill is at most this much work.
_PACE_SECONDS: Final = 0.2
_PACE_OBJECTS: Final = 64


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step with the model chosen for it. Reading a header costs less than looking in the memo."""

    name: str
    table: str
    model: str
    fingerprint: str
    memoised: bool


@dataclass(frozen=True, slots=True)
class Work:
    """All that travels to the workers. `now` stamps every row of the batch."""

    steps: Mapping[str, tuple[PlannedStep, ...]]  # by modality
    settings: Settings
    now: datetime


def derive_batches(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        desk = _desk(work)
        for batch in batches:
            yield pa.RecordBatch.from_pylist(list(desk.outcomes(batch.to_pylist())), schema=SCHEMA)

    return run


class _Desk:
    """A worker's place of work: its sandbox, its way to the memo, and how fast it goes."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._sandbox = Sandbox(sandbox_config(work.settings))
        self._memo: Memo = open_memo(work.settings)
        self._pace = 1

    def outcomes(self, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        """For each object one row a step, or one quarantine row where the object as a whole is no good."""
        start = 0
        while start < len(rows):
            part = rows[start : start + self._pace]
            start += len(part)
            begun = time.monotonic()
            results = self._results(part)
            self._pace = max(1, min(_PACE_OBJECTS, int(len(part) * _PACE_SECONDS / (time.monotonic() - begun + 1e-6))))
            for row, result in zip(part, results, strict=True):
                yield from self._rows_of(row, result)

    def _rows_of(self, row: Row, results: Mapping[str, Answer]) -> Iterator[dict[str, Any]]:
        for step in self._steps(row):
            answer = results.get(step.name)
            if answer is None:
                continue  # an earlier fault spoke for the whole object
            if "fault" in answer:
                yield self._quarantined(row, step, *answer["fault"])
            elif answer["ok"] is not None:
                yield self._derived(row, step, answer["ok"])

    def _steps(self, row: Row) -> list[PlannedStep]:
        return [step for step in self.work.steps[row["modality"]] if row["only"] in {None, step.name}]

    def _results(self, rows: Sequence[Row]) -> list[dict[str, Answer]]:
        """From the memo, else from the sandbox; equal content in one part is asked for once."""
        answers: dict[tuple[str, ...], dict[str, Answer]] = {}
        asked: list[tuple[tuple[str, ...], Row, list[PlannedStep]]] = []
        for row in rows:
            content = _content(row)
            if content in answers:
                continue
            answers[content] = self._remembered(row)
            missing = [step for step in self._steps(row) if step.name not in answers[content]]
            if row["modality"] == Modality.CHAT:
                answers[content] = _message(row, missing)
            elif missing:
                asked.append((content, row, missing))
        jobs = [job([s.name for s in missing], row["modality"], row["pointer"]) for _, row, missing in asked]
        for (content, row, missing), made in zip(asked, self._sandbox.derive_many(jobs), strict=True):
            faults.point("derive.called")
            self._remember(row, missing, made)
            faults.point("derive.memoised")
            answers[content] |= made
        return [answers[_content(row)] for row in rows]

    def _remembered(self, row: Row) -> dict[str, Answer]:
        found: dict[str, Answer] = {}
        for step in self._steps(row):
            if step.memoised and (held := self._memo.get(_memo_key(row, step))) is not None:
                found[step.name] = {"ok": held["result"]}
        return found

    def _remember(self, row: Row, steps: Sequence[PlannedStep], made: Mapping[str, Answer]) -> None:
        for step in steps:
            if step.memoised and "ok" in made.get(step.name, {}):
                self._memo.put(_memo_key(row, step), {"result": made[step.name]["ok"]})

    def _derived(self, row: Row, step: PlannedStep, result: Mapping[str, Any]) -> dict[str, Any]:
        pointer = row["pointer"]
        facts = {"size": pointer["size"], "checksum": pointer["checksum"], "content_type": pointer["content_type"]}
        return {
            **self._provenance(row, step),
            **(facts | {"tier": "standard"} if step.table == METADATA.name else {}),
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
        named = {"event_seq": row["seq"], "step": step.name, "model": step.model, "fingerprint": step.fingerprint}
        return {name: row[name] for name in carried} | named


def _content(row: Row) -> tuple[str, ...]:
    """Rows alike in these have the same answers. Two messages are never one: their text is not told by a name."""
    return (
        row["modality"],
        row["pointer"]["checksum"],
        row["pointer"]["content_type"],
        row["only"] or "",
        row["text"] or "",
    )


def _memo_key(row: Row, step: PlannedStep) -> MemoKey:
    return MemoKey(row["pointer"]["checksum"], step.name, step.fingerprint)


def _message(row: Row, steps: Sequence[PlannedStep]) -> dict[str, Answer]:
    """Chat needs no sandbox: there is nothing to decode."""
    try:
        return {step.name: {"ok": message_result(row["text"])} for step in steps}
    except DataFault as fault:
        return {steps[0].name: {"fault": (fault.reason, fault.detail)}}


_open_desk: _Desk | None = None


def _desk(work: Work) -> _Desk:
    """Kept while the same sandbox is asked for: its child has the models loaded."""
    global _open_desk
    if _open_desk is None or _open_desk.work.settings != work.settings:
        _open_desk = _Desk(work)
    _open_desk.work = work
    return _open_desk
