"""Tags of the whole lake: made and taken away as tasks, and what the models were at one.

Reads   every table's metadata, the model book
Writes  a tag on every table, or where a table has no snapshot yet a property; a fact of the ledger
A table is looked at before those that it is made from, so that no row of the cut lacks what it came from: what was
committed between two looks is in the source and not yet in what is derived. The plan names the snapshots, so a tag that
was cut short is finished as it was begun.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from headwater.clock import to_text
from headwater.domain.lake_tag import EMPTY_AT, HOLD, NOTE_LETTERS_MAX, PIN, TAG, LakeTag, check_name
from headwater.domain.tables import EMBEDDINGS, EVENTS, TABLES
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.lake_tags import forget_tag, read_tag, read_tags, write_tag
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.metadata import Edit, current_snapshot_id, progress_in
from headwater.storage.tables.refs import create_ref, drop_ref
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Result, Step, Task, apply

# What is derived before what it is derived from: vectors first, events last.
_ORDER: Final = sorted((table.name for table in TABLES), key=lambda it: (it == EVENTS.name, it != EMBEDDINGS.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSnapshot(Step):
    """`about` is the table; without a snapshot it is empty. `keep_ms` is how long from now, if not until untagged."""

    action: ClassVar[str] = "name-snapshot"
    tag: str
    snapshot_id: int | None
    keep_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteTag(Step):
    """`about` is the tag's name; from now on readers know it."""

    action: ClassVar[str] = "note-tag"
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropName(Step):
    """`about` is the table."""

    action: ClassVar[str] = "drop-name"
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTag(Step):
    """`about` is the tag's name."""

    action: ClassVar[str] = "forget-tag"


@dataclass(frozen=True, slots=True)
class TagPlan:
    """What will be named, or no longer."""

    tag: LakeTag
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self.tag.to_dict(), "steps": [step.to_dict() for step in self.steps]}


class TagLake(Task[TagPlan]):
    kind = "tag"
    step_types = (NameSnapshot, NoteTag)
    ends_with_resume = True

    def __init__(
        self, parts: Parts, name: str, *, by: str, note: str = "", until: datetime | None = None, hold: bool = False
    ) -> None:
        self._parts = parts
        self._committer = Committer(parts.settings)
        self._name = check_name(name)
        self._by, self._note, self._until = by, note, until
        self._kind = HOLD if hold else PIN if until else TAG
        if not by.strip():
            raise InvalidRequest("Nobody knows whose tag that is. Say it: --by NAME")
        if len(note) > NOTE_LETTERS_MAX:
            raise InvalidRequest(f"A note has at most {NOTE_LETTERS_MAX} letters. Say it shorter.")
        if hold and until is not None:
            raise InvalidRequest("A hold has no end: its owner lifts it. A pin has one: leave --hold out.")
        if until is not None and until <= parts.clock():
            raise InvalidRequest(f"{to_text(until)} is over. Name a time that is to come.")

    @property
    def about(self) -> dict[str, Any]:
        return {"name": self._name}

    def plan(self) -> TagPlan:
        if (there := read_tag(self._parts.ledger, self._name)) is not None:
            raise Conflict(f"There is a {there.kind} {there.name} already, of {there.made_at}. See: headwater tags")
        bases = {name: self._committer.tables.base(name) for name in _ORDER}
        snapshots = {table.name: current_snapshot_id(bases[table.name].metadata) for table in TABLES}
        now, until = self._parts.clock(), self._until
        tag = LakeTag(
            self._name,
            self._kind,
            to_text(now),
            self._by,
            self._note,
            to_text(until) if until else None,
            snapshots,
            read_book(self._parts.ledger).to_text(),
            progress_in(bases[EMBEDDINGS.name].metadata).next_seq,
        )
        keep_ms = int((until - now) / timedelta(milliseconds=1)) if until else None
        named = [
            NameSnapshot(about=table, tag=self._name, snapshot_id=number, keep_ms=keep_ms)
            for table, number in snapshots.items()
        ]
        return TagPlan(tag, (*named, NoteTag(about=self._name, tag=tag.to_text())))

    def do(self, step: Step, held: Held) -> Result:
        match step:
            case NameSnapshot(about=table, tag=name, snapshot_id=None):
                _set_property(self._committer, table, EMPTY_AT + name, "true")
            case NameSnapshot(about=table, tag=name, snapshot_id=number, keep_ms=keep_ms):
                create_ref(self._committer, table, name, snapshot_id=number, keep_ms=keep_ms)
            case NoteTag(tag=text):
                write_tag(held.ledger, LakeTag.from_text(text))
        return {}


class UntagLake(Task[TagPlan]):
    kind = "untag"
    step_types = (DropName, ForgetTag)
    ends_with_resume = True

    def __init__(self, parts: Parts, name: str, *, by: str) -> None:
        self._parts = parts
        self._committer = Committer(parts.settings)
        self._name = name
        self._by = by

    @property
    def about(self) -> dict[str, Any]:
        return {"name": self._name}

    def plan(self) -> TagPlan:
        tag = require_tag(self._parts.ledger, self._name)
        tag.require_may_go(self._by)
        dropped = [DropName(about=table, tag=self._name) for table in tag.snapshots]
        return TagPlan(tag, (*dropped, ForgetTag(about=self._name)))

    def do(self, step: Step, held: Held) -> Result:
        match step:
            case DropName(about=table, tag=name):
                drop_ref(self._committer, table, name)
                _set_property(self._committer, table, EMPTY_AT + name, None)
            case ForgetTag(about=name):
                forget_tag(held.ledger, name)
        return {}


def tag_lake(task: TagLake | UntagLake, parts: Parts, plan: TagPlan | None = None) -> dict[str, Any]:
    """The tag, as it is now or was."""
    applied = apply(task, parts, plan)
    if applied.plan is not None:
        return applied.plan.tag.to_dict()
    (name,) = task.about.values()
    found = read_tag(parts.ledger, name)
    return found.to_dict() if found else {"name": name}


def list_tags(parts: Parts) -> list[dict[str, Any]]:
    """The latest first; `ended` where its time is over, and its snapshots may be gone."""
    now = parts.clock()
    return [{**tag.to_dict(), "ended": tag.has_ended(now)} for tag in read_tags(parts.ledger)]


def require_tag(ledger: Ledger, name: str) -> LakeTag:
    if (found := read_tag(ledger, name)) is None:
        known = ", ".join(tag.name for tag in read_tags(ledger)[:20])
        raise NotFound(f"There is no tag {name} of the lake. There is {known or 'none yet: headwater tag NAME'}.")
    return found


def _set_property(committer: Committer, table: str, name: str, value: str | None) -> None:
    def propose() -> tuple[Base, Edit] | None:
        base = committer.tables.base(table)
        if (base.metadata.get("properties") or {}).get(name) == value:
            return None
        return base, Edit(properties={name: value}) if value is not None else Edit(cleared=[name])

    committer.commit(table, propose)
