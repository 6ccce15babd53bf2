"""Object copy: raw objects and remembered results from one store to another, several at once.

Twice is once: a raw store keeps what it has under a key and compares, so an interrupted copy is simply repeated.
"""

import io
import mimetypes
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, BinaryIO, Final, cast

from headwater.errors import Unavailable
from headwater.storage.memo.memo import Memo
from headwater.storage.raw.store import RawStore

COPIES_AT_ONCE: Final = 8
_BATCH: Final = 256
Known = Callable[[str], tuple[str, str] | None]  # by path: checksum and content type


def copy_objects(
    keys: Iterable[str], source: RawStore, target: RawStore, known: Known, copied: Callable[[], None]
) -> Iterator[str]:
    """Each object as it is; yields those that are not what `known` says. Other bytes in the target are a Conflict."""

    def copy(key: str, expected: tuple[str, str] | None) -> bool:
        guessed = mimetypes.guess_type(key)[0] or "application/octet-stream"
        with _as_file(source.chunks(key)) as stream:
            pointer = target.put_stream(key, stream, expected[1] if expected else guessed)
        return expected is None or pointer.checksum == expected[0]

    stream = iter(keys)
    while batch := list(islice(stream, _BATCH)):
        with ThreadPoolExecutor(COPIES_AT_ONCE) as workers:
            for key, sound in zip(batch, workers.map(copy, batch, [known(key) for key in batch]), strict=True):
                copied()
                if not sound:
                    yield key


def copy_memo(source: Memo, target: Memo) -> None:
    """A result is determined by its key, so one that is there is the same one."""
    from obstore.exceptions import BaseError

    old, new = source.store, target.store
    try:
        for page in old.list():
            with ThreadPoolExecutor(COPIES_AT_ONCE) as workers:
                list(workers.map(lambda found: new.put(found["path"], old.get(found["path"]).bytes()), page))
    except BaseError as error:
        raise Unavailable(f"A memo could not be copied: {str(error).splitlines()[0][:200]}. Try again.") from error


class _Chunks(io.RawIOBase):
    """An iterator of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = chunk
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


@contextmanager
def _as_file(chunks: Iterator[bytes]) -> Iterator[BinaryIO]:
    with io.BufferedReader(_Chunks(chunks), 1 << 20) as stream:
        yield cast(BinaryIO, stream)
