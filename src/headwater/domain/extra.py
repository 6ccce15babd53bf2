"""Extra: what a producer sent beside the fields of an event, kept as one line of JSON in the order of its keys.

It is kept and shown, and nothing goes by it: neither is it content, so that who adds a field and sends again sends the
same event, nor is it carried to what is derived.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from headwater.domain.pointer import Pointer

# What an event is made of; `domain.event` writes it and `domain.line` reads it.
FIELDS: Final = frozenset(
    {"event_id", "modality", "customer", "occurred_at", "pointer", "text", "meta", "thread", "corrects"}
)
_POINTER_FIELDS: Final = frozenset(Pointer.__slots__)
_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def extra_to_json(fields: Mapping[str, Any]) -> str | None:
    """As it is kept, none where nothing was sent beside; fields of the pointer stand in an object `pointer`.

    Raises ValueError for what is nested too deep to be written again.
    """
    unknown = fields.keys() - FIELDS
    pointer = fields.get("pointer")
    place: dict[str, Any] = pointer if type(pointer) is dict else {}
    unknown_of_place = place.keys() - _POINTER_FIELDS
    if not (unknown or unknown_of_place):
        return None
    extra: dict[str, Any] = {name: fields[name] for name in unknown}
    if unknown_of_place:
        extra["pointer"] = {name: place[name] for name in unknown_of_place}
    try:
        try:
            return _to_json(extra)
        except ValueError:
            return _to_json(_spelled(extra))
    except RecursionError as error:
        raise ValueError("nested too deep to be kept") from error


def _spelled(value: Any) -> Any:
    """Python and others write NaN and Infinity, which JSON has not got: they are kept as words."""
    if isinstance(value, dict):
        return {name: _spelled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_spelled(inner) for inner in value]
    return value if type(value) is not float or isfinite(value) else json.dumps(value)
