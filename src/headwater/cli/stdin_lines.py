"""Lines of standard input as they come, with a word when no more have come yet."""

import os
import select
import sys
from collections.abc import Iterator
from typing import Final

from headwater.flow.land_text import TEXT_BYTES_MAX

_PIECE_BYTES: Final = 1 << 16


def stdin_lines() -> Iterator[bytes | str | None]:
    """None where the next read would wait. Of a line that is longer than any message, as much as shows that."""
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # somebody's stand-in for it
        yield from sys.stdin
        return
    held = b""
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
        piece = os.read(descriptor, _PIECE_BYTES)
        if not piece:
            break
        # The end of an overlong line is waited for with its beginning in hand, and what is between is dropped.
        *lines, rest = piece.split(b"\n")
        for line in lines:
            yield _joined(held, line)
            held = b""
        held = _joined(held, rest)
    if held:
        yield held


def _joined(held: bytes, more: bytes) -> bytes:
    return (held + more)[: TEXT_BYTES_MAX + 8]
