"""Rescan: find raw objects that the tables do not know, and announce them again.

A log that lost events (expired unread, a topic made anew, a crash between storing and publishing) did not lose the
objects: they are durable before their event is. What no row of bronze.events names is published once more, under its
path as the event's id, so that an event that arrives after all is counted as a second one. Chat lines live in the log
alone and cannot be found here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

from headwater.domain.event import Event
from headwater.domain.modality import Modality, classify
from headwater.domain.pointer import Pointer
from headwater.domain.shown import ShownAsTable
from headwater.domain.tables import EVENTS
from headwater.flow.land import find_orphans
from headwater.storage.io.key_file import KeyFile
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.losses import close_losses
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.query.row_stream import stream_rows
from headwater.storage.raw.store import ObjectStat, RawStore, digest
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Result, Step, Task, apply

if TYPE_CHECKING:
    from headwater.storage.tables.catalog import Tables

# An object this young may still have its event on the way: `put` publishes within seconds.
GRACE: Final = timedelta(minutes=5)
BATCH_EVENTS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceObjects(Step):
    """Expects the log that was there when it was planned."""

    action: ClassVar[str] = "announce-objects"
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseLosses(Step):
    """What the journal holds as lost was looked for."""

    action: ClassVar[str] = "close-losses"


@dataclass(frozen=True, slots=True)
class RescanPlan(ShownAsTable):
    """Objects to announce, and keys that are not of our making and are left alone."""

    orphans: tuple[ObjectStat, ...]
    foreign: tuple[str, ...]
    log: str

    @property
    def steps(self) -> tuple[Step, ...]:
        batches = (self.orphans[at : at + BATCH_EVENTS] for at in range(0, len(self.orphans), BATCH_EVENTS))
        announced = (
            AnnounceObjects(
                about="log",
                expects=self.log,
                paths=tuple(found.path for found in some),
                cost={"objects": len(some), "bytes_read": sum(found.size for found in some)},
            )
            for some in batches
        )
        return (*announced, CloseLosses(about="journal"))

    def to_dict(self) -> dict[str, Any]:
        return {
            "orphans": [found.path for found in self.orphans],
            "foreign": list(self.foreign),
            "steps": [step.to_dict() for step in self.steps],
        }


def plan_rescan(
    raw: RawStore, catalog: "Tables", log: PointerLog, *, now: datetime, grace: timedelta = GRACE
) -> RescanPlan:
    """Lists the raw store once; writes nothing, starts no JVM. What the tables know is not held in memory."""
    with KeyFile() as known:
        known.add((name, "") for name in _objects(catalog))
        found = list(find_orphans(raw, known, stored_before=now - grace))
    orphans = tuple(orphan for orphan in found if _parse(orphan.path) is not None)
    foreign = tuple(orphan.path for orphan in found if _parse(orphan.path) is None)
    return RescanPlan(orphans, foreign, log.identity() or "")


def _objects(catalog: "Tables") -> Iterator[str]:
    for batch in stream_rows(catalog, EVENTS.name, ("object_id",)):
        yield from batch["object_id"].to_pylist()


class Rescan(Task[RescanPlan]):
    kind = "rescan"
    step_types = (AnnounceObjects, CloseLosses)

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def plan(self) -> RescanPlan:
        parts = self._parts
        return plan_rescan(parts.raw_store, parts.reader, parts.log, now=parts.clock())

    def state(self, step: Step) -> str:
        return self._parts.log.identity() or ""

    def do(self, step: Step, held: Held) -> Result:
        """Announced twice is announced once, as bronze counts."""
        match step:
            case AnnounceObjects():
                raw = self._parts.raw_store
                found = filter(None, (raw.head(path) for path in step.paths))
                events = list(filter(None, (event_of(raw, one) for one in found)))
                self._parts.log_to_write.publish(events)
                return {"published": len(events)}
            case _:
                close_losses(held.ledger, "rescanned", self._parts.clock())
                return {}


def event_of(raw: RawStore, found: ObjectStat) -> Event | None:
    """The event that `put` would have made of the object; its bytes are read for their checksum."""
    if (parsed := _parse(found.path)) is None:
        return None
    modality, customer, day, content_type = parsed
    checksum, size = digest(raw.chunks(found.path))
    pointer = Pointer(found.path, size, content_type, checksum, version_id=found.version_id, etag=found.etag)
    # The day is in the key; the hour is not, unless the object was stored on that very day.
    stored = found.modified_at.astimezone(UTC)
    occurred_at = stored if stored.date() == day else datetime.combine(day, time(), UTC)
    return Event(found.path, modality, customer, pointer, occurred_at.replace(microsecond=0))


def _parse(path: str) -> tuple[Modality, str, date, str] | None:
    """Modality, customer, day and content type, where `domain.keys` could have made this key."""
    parts = path.split("/")
    kind = classify(parts[-1])
    if len(parts) < 4 or kind is None or kind[0].prefix != parts[0]:
        return None
    try:
        return kind[0], unquote(parts[1]), date.fromisoformat(parts[2]), kind[1]
    except ValueError:
        return None


def rescan(parts: Parts, plan: RescanPlan | None = None) -> int:
    """How many objects were announced."""
    applied = apply(Rescan(parts), parts, plan)
    return sum(result.get("published", 0) for _, result in (*applied.resumed, *applied.results))
