"""Events: one of them is looked at, corrected, or passed over, by whoever tends the lake.

Reads   bronze.events, silver.quarantine, the log, the raw store
Writes  the log; which of its lines are passed over
An operator's correction is what a producer's is: an event that names another one and stands in its place. It is sent
through the log, so that a run brings it in, and a log that is read anew comes to the same.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from headwater.clock import to_text
from headwater.domain.event import Event
from headwater.domain.event_fields import CHECKSUM, NAME_BYTES_MAX
from headwater.domain.line import PAYLOAD_LETTERS
from headwater.domain.modality import INLINE
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.errors import Conflict, HeadwaterError, InvalidRequest, NotFound
from headwater.flow.log.skipped import SkippedLine, note_skipped
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.query.plain_rows import to_json_rows, to_rows
from headwater.storage.query.reader import scan
from headwater.storage.raw.store import digest
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.row_filter import RowFilter
from headwater.upkeep.event_bytes import check_announced
from headwater.upkeep.lineage import events_of, require_one_customer, tell_event
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Moved, Result, Step, Task, apply

_POSITION: Final = re.compile(r"(\d{1,9}):(\d{1,18})")
Row = dict[str, Any]


def show_event(parts: Parts, name: str, customer: str | None = None) -> Row:
    """`{"events": […], "quarantined": […], "line": {…}}` of an id, of an object's path, or of a place in the log such
    as `0:17`, whose line is told where the log still has it; NotFound where there is nothing."""
    reader, line = parts.reader, _line_at(parts, name)
    for where in _meanings(name, customer):
        events = to_rows(scan(reader, EVENTS.name, EVENTS.schema.names, where))
        refused = to_json_rows(scan(reader, QUARANTINE.name, QUARANTINE.columns, where))
        if events or refused:
            told = [tell_event(row, events_of(reader, row["object_id"])) for row in events]
            return {"events": told, "quarantined": refused, "line": line}
    if line is not None:
        return {"events": [], "quarantined": [], "line": line}
    raise _not_found(name, customer)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCorrection(Step):
    """Expects the event that counts for the object; `event` is what is sent, as JSON."""

    action: ClassVar[str] = "send-correction"
    object_id: str
    event: str


@dataclass(frozen=True, slots=True)
class CorrectionPlan:
    """`counts` is the event that counts for the object now; `changes` are fields of its pointer, each before and after,
    and none where the lake has them so."""

    event_id: str
    customer: str
    object_id: str
    counts: str
    changes: Mapping[str, tuple[Any, Any]]
    event: str

    @property
    def about(self) -> Mapping[str, Any]:
        return {"customer": self.customer, "event_id": self.event_id}

    @property
    def steps(self) -> tuple[Step, ...]:
        if not self.changes:
            return ()
        return (SendCorrection(about=self.event_id, expects=self.counts, object_id=self.object_id, event=self.event),)

    def to_dict(self) -> Row:
        told = {**asdict(self), "changes": {name: list(both) for name, both in self.changes.items()}}
        return {**told, "event": json.loads(self.event), "steps": [step.to_dict() for step in self.steps]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipLine(Step):
    """Expects the log in which the place is meant."""

    action: ClassVar[str] = "skip-line"
    partition: int
    offset: int
    by: str
    because: str


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """`line` is what stands there now."""

    partition: int
    offset: int
    log: str
    by: str
    because: str
    line: str

    @property
    def about(self) -> Mapping[str, Any]:
        return {"partition": self.partition, "offset": self.offset, "log": self.log}

    @property
    def steps(self) -> tuple[Step, ...]:
        known: Row = {"partition": self.partition, "offset": self.offset, "by": self.by, "because": self.because}
        return (SkipLine(about=f"{self.partition}:{self.offset}", expects=self.log, **known),)

    def to_dict(self) -> Row:
        return {**asdict(self), "steps": [step.to_dict() for step in self.steps]}


def plan_skip(parts: Parts, position: str, *, because: str, by: str) -> SkipPlan:
    """Pure. InvalidRequest of what was read already, and of a place at which nothing stands yet."""
    place = _POSITION.fullmatch(position)
    if place is None:
        raise InvalidRequest(f"{position} is no place in the log. Say PARTITION:OFFSET, such as 0:17.")
    if not (because.strip() and by.strip()):
        raise InvalidRequest("Say why it is to be passed over, and who says so: --because TEXT --by NAME")
    partition, offset = int(place[1]), int(place[2])
    if offset < read_progress(parts.settings, EVENTS).offsets.get(partition, 0):
        raise InvalidRequest(f"{position} was read already: headwater event show {position}")
    line = _line_at(parts, position)
    if line is None:
        raise InvalidRequest(f"Nothing stands at {position} of the log. How far it goes: headwater status")
    return SkipPlan(partition, offset, parts.log.identity(), by, because, line["value"][:PAYLOAD_LETTERS])


def plan_correction(
    parts: Parts,
    name: str,
    *,
    customer: str | None = None,
    checksum: str | None = None,
    size: int | None = None,
    content_type: str | None = None,
    from_bytes: bool = False,
) -> CorrectionPlan:
    """Pure. What is given, or with `from_bytes` what the stored bytes tell; InvalidRequest where they contradict it."""
    row = _event_named(parts.reader, name, customer)
    if row["modality"] in INLINE:
        raise InvalidRequest(f"{row['event_id']} is a message, whose text is all it has. Send one that corrects it.")
    counts = events_of(parts.reader, row["object_id"])[0]
    place = {field: value for field, value in counts["pointer"].items() if value is not None}
    if from_bytes:
        checksum, size = _told_by_bytes(parts, place, checksum, size)
    if checksum is not None and not CHECKSUM.fullmatch(checksum):
        raise InvalidRequest(f"{checksum!r} is no SHA-256 in 64 lower-case hex digits. From the bytes: --from-bytes")
    given = {"checksum": checksum, "size": size, "content_type": content_type}
    wanted = {field: value for field, value in given.items() if value is not None}
    if not wanted:
        raise InvalidRequest("Correct what? Say --checksum, --size, --content-type or --from-bytes.")
    changes = {field: (place.get(field), value) for field, value in wanted.items() if place.get(field) != value}
    sent = _correction(row, counts, {**place, **wanted})
    if changes and (problems := check_announced(parts.raw_store, sent)):
        found = "; ".join(map(str, problems))
        raise InvalidRequest(f"The correction would be wrong too: {found}. Take it from the bytes: --from-bytes")
    text = json.dumps(sent, ensure_ascii=False, sort_keys=True)
    return CorrectionPlan(row["event_id"], row["customer"], row["object_id"], counts["event_id"], changes, text)


class TendEvent(Task[CorrectionPlan | SkipPlan]):
    """Of one plan: what is done is what was looked at."""

    kind = "event"
    step_types = (SendCorrection, SkipLine)
    refuses_when_moved = True

    def __init__(self, parts: Parts, plan: CorrectionPlan | SkipPlan) -> None:
        self._parts = parts
        self._plan = plan

    @property
    def about(self) -> Mapping[str, Any]:
        return self._plan.about

    def plan(self) -> CorrectionPlan | SkipPlan:
        return self._plan

    def state(self, step: Step) -> str:
        """Which event counts now, or which log is there."""
        if not isinstance(step, SendCorrection):
            return self._parts.log.identity()
        events = events_of(self._parts.reader, step.object_id)
        return str(events[0]["event_id"]) if events else "nothing"

    def do(self, step: Step, held: Held) -> Result:
        """Sent twice is sent once, as bronze counts."""
        match step:
            case SendCorrection():
                self._parts.log_to_write.publish([Event.from_dict(json.loads(step.event))])
            case SkipLine():
                at = to_text(self._parts.clock())
                line = SkippedLine(step.partition, step.offset, step.expects, step.by, step.because, at)
                note_skipped(held.ledger, line)
        return {}


def correct_event(parts: Parts, plan: CorrectionPlan) -> bool:
    """Whether there was anything to send; Conflict where another event counts by now than when it was planned."""
    try:
        applied = apply(TendEvent(parts, plan), parts, plan)
    except Moved as moved:
        raise Conflict(f"{moved} Look at it again: headwater event show {plan.event_id}") from moved
    return bool(applied.resumed or applied.results)


def skip_line(parts: Parts, plan: SkipPlan) -> None:
    """The next batch that comes to it does not look at its bytes."""
    try:
        apply(TendEvent(parts, plan), parts, plan)
    except Moved as moved:
        raise Conflict(f"{moved} The log was made anew, and another line stands there.") from moved


def _line_at(parts: Parts, name: str) -> Row | None:
    """What stands at a place of the log, if it is one and the log still has it."""
    place = _POSITION.fullmatch(name)
    if place is None:
        return None
    try:
        found = parts.log.read(int(place[1]), int(place[2]), 1)
    except HeadwaterError:
        return None
    lines = [line for line in found if line.offset == int(place[2])]
    return {"published_at": to_text(lines[0].published_at), "value": lines[0].value} if lines else None


def _event_named(reader: Tables, name: str, customer: str | None) -> Row:
    for where in _meanings(name, customer):
        rows = to_rows(scan(reader, EVENTS.name, EVENTS.schema.names, where))
        if rows:
            require_one_customer(name, {row["customer"] for row in rows})
            return rows[0]
        if len(scan(reader, QUARANTINE.name, ["event_id"], where, limit=1)):
            raise InvalidRequest(
                f"{name} was refused and is no event of the lake: headwater event show {name}. "
                "Correct the event that its object has, or publish it again, sound."
            )
    raise _not_found(name, customer)


def _meanings(name: str, customer: str | None) -> list[RowFilter]:
    """An id, an object's path, and a place in the log."""
    whose: RowFilter = {"customer": customer} if customer else {}
    found: list[RowFilter] = [{"event_id": name, **whose}, {"object_id": name, **whose}]
    if place := _POSITION.fullmatch(name):
        found.append({"log_partition": int(place[1]), "log_offset": int(place[2])})
    return found


def _not_found(name: str, customer: str | None) -> NotFound:
    whose = f" of {customer}" if customer else ""
    return NotFound(
        f"No event{whose} is called {name}, and none stands there in the log. A place is PARTITION:OFFSET, such as "
        "0:17; what was sent just now comes in by headwater run."
    )


def _told_by_bytes(parts: Parts, place: Row, checksum: str | None, size: int | None) -> tuple[str, int]:
    if checksum is not None or size is not None:
        raise InvalidRequest("--from-bytes tells checksum and size by itself. Leave out --checksum and --size.")
    if parts.raw_store.head(place["path"]) is None:
        raise NotFound(f"{place['path']} is not in the raw store, so its bytes tell nothing. Store it first.")
    return digest(parts.raw_store.chunks(place["path"]))


def _correction(row: Row, counts: Row, place: Row) -> Row:
    """The event that counts, with another pointer. Its id is made of what it says and of what it was made from: the
    same command again sends the same event, and one that goes back to what was once said sends a new one."""
    event = {name: counts[name] for name in ("customer", "modality", "text", "thread") if counts[name] is not None}
    event |= {"meta": json.loads(counts["meta"])} if counts["meta"] else {}
    event |= {"occurred_at": counts["occurred_at"].isoformat(), "pointer": place, "corrects": row["event_id"]}
    said = json.dumps({**event, "counts": counts["event_id"]}, sort_keys=True)
    told = hashlib.sha256(said.encode()).hexdigest()[:12]
    name = f"{row['event_id']}~{told}"
    return {"event_id": name if len(name.encode()) <= NAME_BYTES_MAX else f"correction~{told}", **event}
