"""Pointer log: events on their way, in order, kept for hours.

The port that the embedded directory log and Kafka share, and the choice by URI.
Invariant: offsets of a partition only grow, and are never used twice while the log keeps its identity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from headwater.clock import Clock, utc_now
from headwater.domain.event import Event
from headwater.errors import InvalidRequest
from headwater.settings import Settings

# Begins the identity of a directory log that had none, because an earlier version made it.
ADOPTED: Final = "directory-"


@dataclass(frozen=True, slots=True)
class LogLine:
    """`value` is what was published: an event as JSON, or whatever else a foreign producer sent."""

    partition: int
    offset: int
    published_at: datetime
    value: str


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry removed, and what it kept beyond its time because nobody has read it yet."""

    removed_events: int
    overdue_events: int


class PointerLog(Protocol):
    """At least once: publishing an event again adds a line, and bronze makes the two one.

    Twice is once for everything else: expiring again, or reading again, changes nothing.
    """

    def identity(self) -> str:
        """Changes when the log is made anew and its offsets mean other lines."""
        ...

    def fingerprint(self, partition: int, offset: int) -> str | None:
        """What tells a line from any other that could ever stand at its offset: of a log that may be set back to an
        older copy of itself. None where there is no such line any more, or where that cannot happen."""
        ...

    def publish(self, events: Sequence[Event]) -> None:
        """Durable when it returns; after an error some of the events may have been published."""
        ...

    def begin(self) -> dict[int, int]:
        """The first offset that is still kept, by partition."""
        ...

    def end(self) -> dict[int, int]:
        """The next offset to be given, by partition."""
        ...

    def read(self, partition: int, offset: int, limit: int) -> list[LogLine]:
        """Up to `limit` lines from an offset on; NotFound where they have expired."""
        ...

    def expire(self, now: datetime, consumed: Mapping[int, int], *, force: bool = False) -> Expired:
        """Remove what is past its retention. What `consumed` (the next offset to read) has not passed stays, unless
        `force`."""
        ...


@runtime_checkable
class BrokerLog(Protocol):
    """What a log on a broker has besides: others may set it up anew, and not every offset has a line."""

    def check_policy(self) -> bool:
        """InvalidRequest where it is set up to drop events by something else than their age; False where we may not
        ask, and so cannot know."""
        ...

    def uncommitted(self, partition: int, first: int, until: int) -> set[int]:
        """The offsets in between that hold a line nobody is to read: its transaction was aborted, or is open."""
        ...


def open_pointer_log(uri: str, settings: Settings, clock: Clock = utc_now) -> PointerLog:
    """Adapters are imported when chosen: a directory needs no Kafka client."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme == "kafka":
        from headwater.storage.log.kafka_log import KafkaLog

        return KafkaLog(uri, settings)
    if separator and scheme != "file":
        raise InvalidRequest(
            f"log.uri is {uri}, but {scheme} is not known here. Use a directory or kafka://host:port/topic."
        )
    from headwater.storage.log.directory_log import DirectoryLog

    place, producer = Path(rest if separator else uri), settings.text("put.producer")
    return DirectoryLog(place, settings.whole("log.retention_hours"), clock, producer)
