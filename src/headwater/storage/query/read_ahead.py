"""Read-ahead: pieces of a file on an object store, fetched as they are asked for and a little further.

A query engine asks for a Parquet file in small steps: the footer, then a page's header, then the page. A request costs
more than what it brings, so each fetch reaches ahead: little where a reader has just come to, twice as far each time it
goes on from there. So one row costs a few hundred kilobytes, and a whole column a few large requests.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Fetch = Callable[[int, int], bytes]  # from an offset, so many bytes

WHOLE_BYTES: Final = 256 << 10  # a file up to this size takes one request
TAIL_BYTES: Final = 32 << 10  # where a Parquet file tells what it holds
FIRST_BYTES: Final = 64 << 10
AHEAD_BYTES_MAX: Final = 8 << 20
HELD_BYTES_MAX: Final = 32 << 20  # of one file, over all the places in it that are being read
GAP_BYTES: Final = 64 << 10  # what is left out between two reads that still are one after the other


@dataclass(slots=True)
class _Block:
    start: int
    data: bytes
    ahead: int  # how far the fetch reached that brought it

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class ReadAhead:
    """Safe to be read by several threads at once; a piece that two of them miss is fetched twice."""

    def __init__(self, size: int, fetch: Fetch) -> None:
        self._size = size
        self._fetch = fetch
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, _Block] = OrderedDict()  # by start; the one used last is the last
        self._tail: _Block | None = None
        self._readers = 0

    def open(self) -> "ReadAhead":
        """For one more reader, who closes it."""
        with self._lock:
            self._readers += 1
        return self

    def close(self) -> None:
        """After the last reader only the footer is kept: that is asked for again when the file is opened again."""
        with self._lock:
            self._readers -= 1
            if not self._readers:
                self._blocks.clear()

    def read(self, offset: int, count: int) -> bytes:
        end = min(offset + count, self._size)
        pieces = []
        while offset < end:
            block = self._held_block(offset) or self._read_block(offset, end - offset)
            piece = block.data[offset - block.start : end - block.start]
            if not piece:
                raise OSError(f"a data file ends at {offset} instead of {self._size}")
            pieces.append(piece)
            offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _held_block(self, offset: int) -> _Block | None:
        with self._lock:
            if self._tail is not None and self._tail.start <= offset < self._tail.end:
                return self._tail
            held = reversed(self._blocks.values())
            found = next((block for block in held if block.start <= offset < block.end), None)
            if found is not None:
                self._blocks.move_to_end(found.start)
            return found

    def _read_block(self, offset: int, count: int) -> _Block:
        tail = max(0, self._size - (self._size if self._size <= WHOLE_BYTES else TAIL_BYTES))
        if offset >= tail:
            self._tail = _Block(tail, self._fetch(tail, self._size - tail), 0)
            return self._tail
        before = self._before(offset)
        ahead = min(2 * before.ahead, AHEAD_BYTES_MAX) if before else FIRST_BYTES
        block = _Block(offset, self._fetch(offset, min(max(count, ahead), self._size - offset)), ahead)
        self._keep(block, before)
        return block

    def _before(self, offset: int) -> _Block | None:
        """The block that this read goes on from."""
        with self._lock:
            return next((block for block in self._blocks.values() if 0 <= offset - block.end < GAP_BYTES), None)

    def _keep(self, block: _Block, before: _Block | None) -> None:
        with self._lock:
            if before is not None:
                self._blocks.pop(before.start, None)
            self._blocks[block.start] = block
            held = sum(len(each.data) for each in self._blocks.values())
            while held > HELD_BYTES_MAX and len(self._blocks) > 1:
                held -= len(self._blocks.popitem(last=False)[1].data)
