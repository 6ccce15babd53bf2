"""Messages between a worker and its child: a length, then JSON. JSON, because the child reads hostile files: what it
says must never be able to run anything in the worker, nor to stop it by saying what nobody understands.
"""

import json
import struct
from typing import Any, BinaryIO, Final

LENGTH: Final = struct.Struct("<I")
MESSAGE_BYTES_MAX: Final = 256 << 20


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
