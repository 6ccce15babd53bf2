"""Metadata locations: which metadata file is each table's current one, in the SQL catalog's own table.

Spark's JDBC catalog and PyIceberg's share it. A commit is one UPDATE that names the file it replaces, so of two who
start from the same one only one succeeds. The statement is sent once: an answer that got lost is not asked for again by
doing it again, but settled by looking what is there (`storage.tables.commit`).
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headwater.errors import WAY_BACK, InvalidRequest, NotFound, Unavailable
from headwater.settings import Settings
from headwater.storage.io.sqlite_file import connect
from headwater.storage.tables.rest_catalog import URIS

if TYPE_CHECKING:
    from headwater.storage.ledger.postgres_database import PostgresDatabase

CATALOG: Final = "lake"
_ATTEMPTS: Final = 3
BUSY_SECONDS: Final = 30  # an 8 s lock of another process must not fail a commit
_KEY: Final = "catalog_name = ? AND table_namespace = ? AND table_name = ?"
# With its own key: a connection that is out of step answers a question that somebody asked before.
_READ: Final = f"SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables WHERE {_KEY}"
_SWAP: Final = (
    f"UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? WHERE {_KEY} "
    "AND metadata_location = ?"
)


class MetadataLocations(Protocol):
    def read(self, table: str) -> str:
        """NotFound where the catalog knows no such table."""
        ...

    def swap(self, table: str, old: str, new: str) -> bool:
        """False where the table was not at `old`. Unavailable where there is no answer: then it may have been done."""
        ...


def open_metadata_locations(uri: str) -> MetadataLocations:
    """Of a SQL catalog, by its URI."""
    if uri.startswith("sqlite:///"):
        return SqliteLocations(Path(uri.removeprefix("sqlite:///")))
    if uri.startswith(("postgresql://", "postgres://")):
        return PostgresLocations(uri)
    raise InvalidRequest(f"catalog.uri is not known here. {URIS}")


def metadata_locations(settings: Settings) -> MetadataLocations:
    """Kept, because connecting to a server takes longer than asking it."""
    return _opened(settings.text("catalog.uri"))


_opened = lru_cache(maxsize=32)(open_metadata_locations)


class SqliteLocations:
    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, table: str) -> str:
        with self._translated(), closing(self._connect("ro")) as connection:
            row = connection.execute(_READ, _key(table)).fetchone()
        return _found(table, row)

    def swap(self, table: str, old: str, new: str) -> bool:
        with self._translated(), closing(self._connect("rw")) as connection:
            return connection.execute(_SWAP, (new, old, *_key(table), old)).rowcount > 0

    def _connect(self, mode: str) -> sqlite3.Connection:
        return connect(self._file, BUSY_SECONDS, mode)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if not self._file.is_file():
                raise NotFound(f"There is no catalog at {self._file}. {WAY_BACK}") from error
            raise Unavailable(f"The catalog {self._file} failed: {error}. Try again.") from error


class PostgresLocations:
    """A wire that gives an answer twice leaves every later one a step behind. So an answer counts that names what was
    asked for, and a swap that was answered is looked up."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._database: PostgresDatabase | None = None
        self._lock = threading.Lock()

    def read(self, table: str) -> str:
        for _ in range(_ATTEMPTS):
            rows = self._opened().query(_READ, _key(table))
            if not rows or rows[0][:3] == _key(table):
                return _found(table, rows[0] if rows else None)
            self._opened().disconnect()
        raise Unavailable("The catalog answers to something else than it is asked. Try again.")

    def swap(self, table: str, old: str, new: str) -> bool:
        changed = self._opened().change_once(_SWAP, (new, old, *_key(table), old))
        if changed and self.read(table) != new:
            raise Unavailable("The catalog's answer does not fit what is there.")
        return changed > 0

    def _opened(self) -> "PostgresDatabase":
        from headwater.storage.ledger.postgres_database import PostgresDatabase

        with self._lock:
            self._database = self._database or PostgresDatabase(self._uri)
            return self._database


def _key(table: str) -> tuple[str, str, str]:
    namespace, _, name = table.rpartition(".")
    return CATALOG, namespace, name


def _found(table: str, row: tuple[str, ...] | None) -> str:
    if row is None or not row[3]:
        raise NotFound(f"{table} is not in the lake's catalog. {WAY_BACK}")
    return str(row[3])
