"""What a lake says of an event: whether its raw store has the bytes that are announced, and they are what it says, and
whether its rules let a producer send it. Writes nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

from headwater.domain.check_event import check_event
from headwater.domain.event_problems import Problem, shown
from headwater.domain.modality import INLINE
from headwater.domain.producers import Rules
from headwater.errors import HeadwaterError
from headwater.producer_section import ANYBODY
from headwater.settings import Settings
from headwater.storage.raw.store import RawStore, digest


def check_producer(settings: Settings, name: str, event: Mapping[str, Any] | str | bytes) -> list[Problem]:
    """Of an event that is one, and names a customer for whom that producer may not write."""
    rules = Rules.of(settings)
    if check_event(event) or not rules:
        return []
    if name != ANYBODY:
        rules.require(name)
    fields = event if isinstance(event, Mapping) else json.loads(event)
    problem = rules.problem(name, fields["customer"])
    return [] if problem is None else [problem]


def check_announced(raw_store: RawStore | None, event: Mapping[str, Any] | str | bytes) -> list[Problem]:
    """What is wrong with the event itself, and where it is sound, with its bytes; without a store not with them."""
    if (problems := check_event(event)) or raw_store is None:
        return problems
    fields = event if isinstance(event, Mapping) else json.loads(event)
    pointer = fields.get("pointer")
    if not isinstance(pointer, Mapping) or fields.get("modality") in INLINE:
        return []
    path, size, offset = pointer["path"], pointer["size"], pointer.get("offset") or 0
    try:
        found = raw_store.head(path)
    except HeadwaterError as error:
        return [Problem("pointer.path", str(error))]
    if found is None:
        return [Problem("pointer.path", f"{shown(path)} is not in the raw store")]
    if found.size < offset + size or (not offset and found.size != size):
        return [Problem("pointer.size", f"{size:,}, and the object has {found.size:,} bytes")]
    checksum, _ = digest(raw_store.chunks(path, offset, size))
    if checksum == pointer["checksum"]:
        return []
    return [Problem("pointer.checksum", f"{shown(pointer['checksum'])}, and the bytes in the store have {checksum}")]
