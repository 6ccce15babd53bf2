"""Database: what the ledger asks of SQLite and of Postgres, and the same under a lease.

`sqlite_database` and `postgres_database` are the two; each has its own words for how rows are numbered and bytes kept.
A fenced database looks first, in every transaction, whether the lease is still ours.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from headwater.clock import Clock
from headwater.errors import Conflict
from headwater.storage.ledger.lease import Lease

Row = tuple[Any, ...]
Execute = Callable[..., list[Row]]


class Database(Protocol):
    """`?` marks a value in a statement, whatever the database itself wants."""

    @property
    def TYPES(self) -> dict[str, str]:
        """What `{row_id}`, `{bytes}` and `{by_key}` in a table's definition stand for."""
        ...

    @property
    def EMPTY(self) -> str:
        """The statement that takes every row out of `{table}`, without looking at each of them."""
        ...

    @property
    def changed(self) -> int:
        """How many rows the last statement of a transaction inserted, updated or deleted."""
        ...

    @property
    def clock(self) -> Clock | None:
        """The server's, where machines whose clocks may differ share the database."""
        ...

    def listed(self, types: Sequence[str], rows: Sequence[Row]) -> tuple[str, list[Any]]:
        """Rows as a part of a statement, where `values …` or a subquery may stand, and that part's values."""
        ...

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def has_table(self, name: str) -> bool: ...

    def transaction(self) -> AbstractContextManager[Execute]: ...

    def close(self) -> None: ...


class FencedDatabase:
    """A database whose transactions look first whether the lease is still ours; nothing fits in between."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    @property
    def TYPES(self) -> dict[str, str]:
        return self._database.TYPES

    @property
    def EMPTY(self) -> str:
        return self._database.EMPTY

    @property
    def changed(self) -> int:
        return self._database.changed

    @property
    def clock(self) -> Clock | None:
        return self._database.clock

    def listed(self, types: Sequence[str], rows: Sequence[Row]) -> tuple[str, list[Any]]:
        return self._database.listed(types, rows)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._database.query(statement, values)

    def has_table(self, name: str) -> bool:
        return self._database.has_table(name)

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        with self._database.transaction() as run:
            ours = (self._lease.name, self._lease.epoch)
            if not run("select 1 from leases where name = ? and epoch = ? and held = 1", ours):
                raise Conflict(lost_lease(self._lease.name))
            yield run

    def close(self) -> None:
        self._database.close()


def lost_lease(name: str) -> str:
    return f"The lease {name} was lost to another process while this one was silent. Nothing was written; start again."
