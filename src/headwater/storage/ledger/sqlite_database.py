"""One SQLite file, spoken to by threads and processes: short transactions, a patient lock, errors translated.

Its twin is `postgres_database`; what both have is in `database`.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Final

from headwater.errors import DataFault, HeadwaterError, InvalidRequest, Unavailable
from headwater.storage.io.sqlite_file import connect, is_read_only
from headwater.storage.ledger.database import Execute, Row

BUSY_SECONDS: Final = 30.0  # four writers at once wait for seconds; a few more are no reason to fail
# How SQLite says that a file cannot grow: its own, the log of what is written, or the small map that even readers make.
_NO_ROOM: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
CACHE_KB: Final = 64 << 10  # with the default of 2 MB, claiming took twice as long at 400,000 keys


class SqliteDatabase:
    """Synced at each commit: what was answered survives a power cut."""

    # Rows of a table that is kept by its key are found in one step, and its key is not kept twice.
    TYPES: Final = {"row_id": "integer primary key", "bytes": "blob", "by_key": "without rowid"}
    EMPTY: Final = "delete from {table}"  # without a condition, SQLite frees whole pages
    clock: Final = None  # this machine's, as of all who open the file

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = RLock()
        self.changed = 0
        with self._translated():
            self.is_read_only = is_read_only(file)
            if not self.is_read_only:
                file.parent.mkdir(parents=True, exist_ok=True)
            # Streaming batches arrive on threads of their own; the lock above keeps them apart.
            self._connection = connect(file, BUSY_SECONDS, own_thread=False)
            if not self.is_read_only:
                self._write_ahead()
            self._connection.execute("pragma synchronous = full")
            self._connection.execute(f"pragma cache_size = -{CACHE_KB}")

    def _write_ahead(self) -> None:
        """Of several that open a new file at once, SQLite lets one make it a write-ahead one and refuses the rest."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock, self._translated():
            return self._connection.execute(statement, values).fetchall()

    def listed(self, types: Sequence[str], rows: Sequence[Row]) -> tuple[str, list[Any]]:
        marks = f"({', '.join('?' * len(types))})"
        return f"values {', '.join([marks] * len(rows))}", [value for row in rows for value in row]

    def has_table(self, name: str) -> bool:
        return bool(self.query("select 1 from sqlite_master where type = 'table' and name = ?", (name,)))

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """All or nothing; takes the write lock at once, so that what was read still holds when it writes."""
        if self.is_read_only:
            raise InvalidRequest(f"{self._file} cannot be written from here: the lake can be read, and no more.")
        with self._lock, self._translated():
            self._connection.execute("begin immediate")
            try:
                yield self._run
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.execute("commit")

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connection.execute(statement, values)
        rows = cursor.fetchall()
        self.changed = cursor.rowcount
        return rows

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The one place where SQLite's errors become ours."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
                raise Unavailable(
                    f"{self._file} cannot grow: {error}. Make room on its disk, then try again."
                ) from error
            raise Unavailable(
                f"{self._file} failed: {error}. Check the disk and who else uses it, then try again."
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: sqlite3.DatabaseError) -> HeadwaterError:
        return DataFault("CORRUPT", f"{self._file} is not a sound SQLite file: {error}. Restore it from a backup.")
