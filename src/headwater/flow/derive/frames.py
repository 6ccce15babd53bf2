"""Messages between a worker and its child: a length, then JSON. JSON, because the child reads hostile files: what it
says must never be able to run anything in the worker, nor to stop it by saying what nobody understands.
"""

import json
import struct
from typing import Any, BinaryIO, Final

LENGTH: Final = struct.Struct("<I")
MESSAGE_BYTES_MAX: Final = 256 << 20
# What a child says beside its answers.
_SIGNS: Final = {
    "begun": bool,
    "done": bool,
    "fetching": bool,
    "calling": bool,
    "unavailable": str,
    "allow": int | float,
    "billed": int | float,
    "kept": dict,
}
NUMBER_MAX: Final = 1e15  # seconds, or money


def packed(message: Any) -> bytes:
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return LENGTH.pack(len(body)) + body


def read_message(stream: BinaryIO) -> Any:
    """The next message, or None at the end."""
    start = stream.read(LENGTH.size)
    if len(start) < LENGTH.size:
        return None
    return json.loads(stream.read(LENGTH.unpack(start)[0]))


class Unpacker:
    """Messages out of whatever pieces a pipe gives."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        self._held += data
        messages, position = [], 0
        while len(self._held) - position >= LENGTH.size:
            length = LENGTH.unpack_from(self._held, position)[0]
            if length > MESSAGE_BYTES_MAX:
                raise ValueError(f"a message of {length} bytes")
            end = position + LENGTH.size + length
            if len(self._held) < end:
                break
            messages.append(json.loads(bytes(self._held[position + LENGTH.size : end])))
            position = end
        del self._held[:position]
        return messages


def checked_message(message: Any, jobs: int) -> Any:
    """A child's message as the worker may follow it; raises ValueError where it is none, or about no job of `jobs`."""
    if type(message) is dict and "loading" in message:
        return message
    if type(message) is not dict or type(job := message.get("job")) is not int or not 0 <= job < jobs:
        raise ValueError("a message about nothing")
    if not message.keys() & _SIGNS.keys():
        fault = message.get("fault")
        texts = [message.get("tag"), *(fault if type(fault) is list else [])]
        if any(type(text) is not str for text in texts) or len(texts) != (3 if "fault" in message else 1):
            raise ValueError("an answer of no step")
    elif any(name in message and not _is_sign(message[name], kind) for name, kind in _SIGNS.items()):
        raise ValueError("a sign that says nothing")
    return message


def _is_sign(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and (not isinstance(value, int | float) or 0 <= value <= NUMBER_MAX)
