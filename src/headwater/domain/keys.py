"""Raw keys are built here and nowhere else, from parts that have been checked.

A part is percent-encoded where it holds anything but letters, digits and `-_.~@+=`, so a key is plain ASCII on every
store. What cannot be encoded safely is refused: empty, `.`, `..`, control characters, over-long, not NFC (two
spellings that look alike would be two customers).
"""

import unicodedata
from datetime import datetime
from urllib.parse import quote

from headwater.domain.modality import Modality
from headwater.errors import InvalidRequest

PART_BYTES_MAX = 200  # after encoding; every file system takes 255 and a temporary name needs some room


def encode_part(part: str, what: str) -> str:
    """One path part, safe on every store; raises InvalidRequest where that cannot be."""
    if not part or part in {".", ".."}:
        raise InvalidRequest(f"{what} {part!r} cannot name anything. Use letters, digits, '-' or '_'.")
    if any(unicodedata.category(char) in {"Cc", "Cs", "Co", "Cn"} for char in part):
        raise InvalidRequest(f"{what} {part!r} holds control characters. Use letters, digits, '-' or '_'.")
    if unicodedata.normalize("NFC", part) != part:
        raise InvalidRequest(f"{what} {part!r} is not in Unicode NFC form; normalise it first.")
    if "/" in part or "\\" in part:
        raise InvalidRequest(f"{what} {part!r} holds a path separator. Use a plain name.")
    encoded = quote(part, safe="-_.~@+=")
    if len(encoded) > PART_BYTES_MAX:
        raise InvalidRequest(f"{what} is {len(encoded)} bytes long once encoded; the limit is {PART_BYTES_MAX}.")
    return encoded


def raw_key(modality: Modality, customer: str, occurred_at: datetime, name: str) -> str:
    """`audio/<customer>/<date>/<name>`"""
    day = occurred_at.date().isoformat()
    return f"{modality.prefix}/{encode_part(customer, 'customer')}/{day}/{encode_part(name, 'name')}"


def event_key(event_id: str, customer: str) -> str:
    """What makes an event: an id belongs to its customer. No name holds the zero between them."""
    return f"{event_id}\0{customer}"


def chat_key(customer: str, event_id: str) -> str:
    """A chat message has no bytes of its own, but it is an object with a name like any other."""
    return f"chat/{encode_part(customer, 'customer')}/{encode_part(event_id, 'id')}"
