"""The schema of events, for producers that are not Headwater: JSON Schema 2020-12, versioned.

What it takes bronze takes, but for what JSON Schema cannot say, which its description tells and `check_event` looks at.
A version that is published stays as it is in what it takes; a field that is new and may be left out is no new version.
"""

from typing import Any, Final

from headwater.domain.event import EVENT_BYTES_MAX
from headwater.domain.event_fields import MODALITIES, NAME_BYTES_MAX, WHOLE_END
from headwater.domain.meta import KEY_LETTERS_MAX
from headwater.domain.modality import INLINE, Modality
from headwater.errors import NotFound

VERSION: Final = 1
Schema = dict[str, Any]

_END: Final = r"(?![\s\S])"  # of the text, in every dialect of patterns
_DAY: Final = (
    r"(?:[1-8]\d{3}|9[0-8]\d{2}|99[0-8]\d|999[0-8])-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])"
    r"|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"|(?:\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29"
)
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME: Final = rf"^(?:{_DAY})(?:T{_CLOCK}(?::[0-5]\d(?:\.\d{{1,9}})?)?(?:Z|(?:\+|-){_CLOCK})?)?{_END}"
_LAST_SECOND: Final = 253_370_764_800  # of the year 9998
_NO_PARTS: Final = rf"^(?![\s\S]*(?:^|/)\.{{0,2}}(?:/|{_END}))"


def event_schema(version: int = VERSION) -> Schema:
    if version != VERSION:
        raise NotFound(f"There is no version {version} of the event schema. Take version {VERSION}.")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:headwater:event:{VERSION}",
        "title": f"Headwater event, version {VERSION}",
        "description": "One message of the log: an object has arrived, or somebody wrote something. Four things JSON"
        f" Schema cannot say: an event has at most {EVENT_BYTES_MAX:,} bytes of UTF-8; the second part of pointer.path"
        " is the customer, where it may be percent-encoded; corrects is another id than event_id; meta has at most"
        " 16,384 bytes and 8 levels. Numbers that are whole are written without a point. Fields that are not named here"
        " are kept with the event, and nothing goes by them; names that begin with headwater_ are left to later"
        " versions.",
        "type": "object",
        "additionalProperties": True,
        "required": ["event_id", "customer", "occurred_at"],
        "properties": _properties(),
        "anyOf": _kinds(),
        "$defs": {
            "name": _name(NAME_BYTES_MAX, NAME_BYTES_MAX // 4),
            "word": {"type": ["string", "null"], "maxLength": NAME_BYTES_MAX // 4},
            "whole": {"type": "integer", "minimum": 0, "maximum": WHOLE_END - 1},
            "json": _json(),
        },
    }


def _properties() -> Schema:
    name, word = {"$ref": "#/$defs/name"}, {"$ref": "#/$defs/word"}
    return {
        "event_id": {**name, "description": "Makes the event, with its customer: the same twice is one event."},
        "customer": {**_name(256, 64), "description": "Whose it is."},
        "occurred_at": {
            "description": "ISO 8601; without a zone it is UTC. Or whole seconds since 1970.",
            "anyOf": [
                {"type": "string", "pattern": _TIME},
                {"type": "integer", "minimum": 0, "maximum": _LAST_SECOND},
            ],
        },
        "modality": {
            "enum": [*sorted(MODALITIES), None],
            "description": "What kind of object it is. A message without a pointer need not say that it is chat.",
        },
        "text": {"type": ["string", "null"], "description": "Of a message, and of nothing else."},
        "thread": {"anyOf": [{"type": "null"}, name], "description": "The conversation that it belongs to."},
        "corrects": {
            "anyOf": [{"type": "null"}, name],
            "description": "The id of an event of the same customer, about the same object, in whose place this one"
            " stands.",
        },
        "meta": {
            "anyOf": [{"type": "null"}, {"type": "object"}],
            "allOf": [{"$ref": "#/$defs/json"}],
            "description": "What is known beside the bytes.",
        },
        "pointer": {
            "type": ["object", "null"],
            "description": "Where the bytes are. A message has none, and needs no pointer.",
            "additionalProperties": True,
            "properties": {
                "path": {
                    "anyOf": [{"type": "null"}, {**name, "allOf": [{"pattern": _NO_PARTS}]}],
                    "description": "Relative to the lake's raw.uri: <kind>/<customer>/…",
                },
                "size": {
                    "anyOf": [{"type": "null"}, {"$ref": "#/$defs/whole"}],
                    "description": "In bytes, as the store says that took them.",
                },
                "checksum": {
                    "type": ["string", "null"],
                    "pattern": f"^[0-9a-f]{{64}}{_END}",
                    "description": "The SHA-256 of the bytes, in lower-case hex.",
                },
                "content_type": {**word, "description": "Else the ending of the path tells."},
                "offset": {
                    "anyOf": [{"type": "null"}, {"$ref": "#/$defs/whole"}],
                    "description": "Where in the object the bytes begin; 0 where it is left out.",
                },
                "version_id": {**word, "description": "The store's, where it keeps versions."},
                "etag": {**word, "description": "The store's."},
            },
        },
    }


def _kinds() -> list[Schema]:
    """A message that says nothing else, a message that says it is one, an object with bytes."""
    nothing, text = {"type": "null"}, {"type": "string"}
    place = {"path": {"type": "string"}, "size": {"type": "integer"}, "checksum": {"type": "string"}}
    bytes_there = {"type": "object", "required": [*place], "properties": place}
    kept = sorted(MODALITIES - INLINE)
    chat = Modality.CHAT.value
    return [
        {"required": ["text"], "properties": {"text": text, "modality": nothing, "pointer": nothing}},
        {"required": ["text", "modality"], "properties": {"text": text, "modality": {"const": chat}}},
        {
            "required": ["modality", "pointer"],
            "properties": {"text": nothing, "modality": {"enum": kept}, "pointer": bytes_there},
        },
    ]


def _name(plain_max: int, letters_max: int) -> Schema:
    """A letter may take four bytes, and in a path three times as many."""
    plain = {"pattern": rf"^[\u0001-\u007f]{{1,{plain_max}}}{_END}"}
    return {"type": "string", "minLength": 1, "pattern": rf"^[^\u0000]*{_END}",
            "anyOf": [plain, {"maxLength": letters_max}]}  # fmt: skip


def _json() -> Schema:
    again = {"$ref": "#/$defs/json"}
    return {
        "anyOf": [
            {"type": ["string", "number", "boolean", "null"]},
            {"type": "array", "items": again},
            {
                "type": "object",
                "propertyNames": {"minLength": 1, "maxLength": KEY_LETTERS_MAX},
                "additionalProperties": again,
            },
        ]
    }
