"""Seen rows: which ids an import has met by now, and what they said, on disk where they are many.

Key     a row's id and customer; of a file without an id its place.
Keeps   two hashes and a line for each row: some 30 bytes, of which 16 MB stay in memory.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from headwater.errors import Unavailable

_CACHE_KB: Final = 16 << 10
# A hash has 64 bits: of 100 million rows one is refused for another's id with a chance of 1 in 3,700.
_TABLE: Final = """create table seen (
    key integer primary key, content integer not null, source integer not null, line integer not null)"""


class SeenRow(NamedTuple):
    """A row by the hash of what makes it the same and of what it says, and where it stands: the number of its source,
    and its line."""

    key: int
    content: int
    source: int
    line: int


class Earlier(NamedTuple):
    """The row that had the id before, and whether it says the same."""

    same: bool
    source: int
    line: int


class SeenRows:
    """Of one import, in one thread."""

    def __init__(self) -> None:
        # A database without a name is a temporary file of SQLite's own: gone with the connection, even if killed.
        self._database = sqlite3.connect("", isolation_level=None)
        for pragma in ("journal_mode = off", "synchronous = off", f"cache_size = -{_CACHE_KB}"):
            self._database.execute(f"pragma {pragma}")
        self._database.execute(_TABLE)
        self._database.execute("begin")

    def close(self) -> None:
        self._database.close()

    def add(self, rows: Sequence[SeenRow]) -> list[Earlier | None]:
        """For each, in order, the one that came before it, if any. A batch may hold an id more than once."""
        before = self._database.total_changes
        paged = sorted(rows, key=lambda row: row[0])  # neighbours share pages; the order of one key's rows stays
        try:
            self._database.executemany("insert into seen values (?, ?, ?, ?) on conflict do nothing", paged)
            if self._database.total_changes - before == len(rows):
                return [None] * len(rows)
            return [self._earlier(*row) for row in rows]
        except sqlite3.OperationalError as error:
            raise Unavailable(
                f"The ids of an import find no room in the temporary directory: {error}. "
                "Make room, or name another place by TMPDIR, and import again; what was stored is safe."
            ) from error

    def _earlier(self, key: int, content: int, source: int, line: int) -> Earlier | None:
        found = self._database.execute("select content, source, line from seen where key = ?", (key,)).fetchone()
        return None if found[1:] == (source, line) else Earlier(found[0] == content, *found[1:])
