"""A pointer event: the small message that says an object has arrived. It never carries a payload but chat text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self

from headwater.clock import parse_time, to_text
from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer

# What every log takes as one message; Kafka's brokers and clients refuse more unless told otherwise.
EVENT_BYTES_MAX: Final = 1_000_000
_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class Event:
    """`event_id` makes an event: the same id with the same content, however often, is one event.

    `meta` is what is known beside the bytes, `thread` the conversation that it belongs to; both are content. `corrects`
    is the id of an event of the same customer about the same object, in whose place this one stands. `producer` is who
    sends it, by the rules of `domain.producers`.
    """

    event_id: str
    modality: Modality
    customer: str
    pointer: Pointer
    occurred_at: datetime
    text: str | None = None
    meta: Mapping[str, Any] | None = None
    thread: str | None = None
    corrects: str | None = None
    producer: str | None = None

    @property
    def object_id(self) -> str:
        """An object's identity is its path."""
        return self.pointer.path

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "event_id": self.event_id,
            "modality": self.modality.value,
            "customer": self.customer,
            "pointer": {name: value for name, value in self.pointer.to_dict().items() if value is not None},
            "occurred_at": to_text(self.occurred_at),
        }
        more = {"text": self.text, "meta": self.meta, "thread": self.thread, "corrects": self.corrects}
        more |= {"producer": self.producer}
        return fields | {name: value for name, value in more.items() if value is not None}

    def to_json(self) -> str:
        return _to_json(self.to_dict())

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError on anything that is not an event."""
        return cls(
            event_id=fields["event_id"],
            modality=Modality(fields["modality"]),
            customer=fields["customer"],
            pointer=Pointer.from_dict(fields["pointer"]),
            occurred_at=parse_time(fields["occurred_at"]),
            text=fields.get("text"),
            meta=fields.get("meta"),
            thread=fields.get("thread"),
            corrects=fields.get("corrects"),
            producer=fields.get("producer"),
        )


def by_producer(events: Sequence[Event], producer: str) -> Sequence[Event]:
    """The events, sent by this one unless it has no name."""
    return [replace(event, producer=producer) for event in events] if producer else events
