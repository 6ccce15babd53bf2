"""Key file: more keys than memory should hold, each with a word to it, in a temporary file of this process.

For whoever compares all keys of one place with all keys of another. The file has no name and is gone with the process,
however it ends.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from headwater.errors import Unavailable

_CACHE_KB: Final = 32 << 10


class KeyFile:
    """Use it as a context manager, by one thread. A key is any text, also one that no encoding knows."""

    def __init__(self) -> None:
        with _translated():
            self._connection = sqlite3.connect("", isolation_level=None)  # without a name it is SQLite's to delete
            for pragma in ("journal_mode = off", "synchronous = off", f"cache_size = -{_CACHE_KB}"):
                self._connection.execute(f"pragma {pragma}")
            self._connection.execute("create table keys (key blob primary key, word text not null) without rowid")
            # One that never ends: nobody else is to see anything, and nothing is to outlive the file.
            self._connection.execute("begin")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Of two with one key the later counts."""
        given = ((_encoded(key), word) for key, word in pairs)
        with _translated():
            self._connection.executemany("insert or replace into keys values (?, ?)", given)

    def get(self, key: str) -> str | None:
        with _translated():
            found = self._connection.execute("select word from keys where key = ?", (_encoded(key),)).fetchone()
        return None if found is None else str(found[0])

    def discard(self, key: str) -> None:
        with _translated():
            self._connection.execute("delete from keys where key = ?", (_encoded(key),))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __len__(self) -> int:
        with _translated():
            return int(self._connection.execute("select count(*) from keys").fetchone()[0])

    def __iter__(self) -> Iterator[str]:
        """In order; the file is not to be changed meanwhile."""
        with _translated():
            for (key,) in self._connection.execute("select key from keys order by key"):
                yield _decoded(key)


def _encoded(key: str) -> bytes:
    """A name on a disk may be no text at all, which Python tells by lone surrogates."""
    return key.encode("utf-8", "surrogatepass")


def _decoded(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Unavailable(
            f"Keys could not be kept in a temporary file: {error}. Make room where TMPDIR points, or name another "
            "place, then try again."
        ) from error
