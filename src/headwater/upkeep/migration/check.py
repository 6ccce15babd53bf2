"""What is asked of a migration's target before the lake is touched, and compared before it is switched.

Reads   every part of the target; the source's tables, leases and log
Writes  nothing but what opening an empty place makes
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from obstore.exceptions import BaseError

from headwater.domain.tables import EVENTS
from headwater.errors import Conflict, DataFault, Unavailable
from headwater.storage.log.kafka_conf import is_kafka
from headwater.storage.memo.memo import open_memo
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.relocate import open_warehouse
from headwater.storage.tables.row_hash import RowHash, hash_refs
from headwater.upkeep.exclusion import RUN_LEASE
from headwater.upkeep.format import MOVED_TO
from headwater.upkeep.migration.places import CATALOG, LEDGER, LOG, shown_place
from headwater.upkeep.parts import Parts

if TYPE_CHECKING:
    from pyiceberg.table import Table

# In the ledger that a lake came to: which one it is.
CAME_AS: Final = "migrated"
FORMAT: Final = "format"
ATTEMPTS: Final = 6
RETRY_SECONDS: Final = 0.5
T = TypeVar("T")


def ask(target: Parts) -> None:
    """Each part answers under its new settings; a wrong one must not be found out after the lake was marked."""
    target.ledger.fact(FORMAT)
    target.log.begin()
    next(target.raw_store.list(), None)
    with catalogs.translated("the target's catalog"):
        target.catalog.list_namespaces()
    target.index.position()
    for name, open_store in (("memo.uri", _memo_store), ("catalog.warehouse", open_warehouse)):
        try:
            next(iter(open_store(target.settings).list()), None)
        except BaseError as error:
            message = str(error).splitlines()[0][:200]
            raise Unavailable(f"{shown_place(target.settings, name)} did not answer: {message}. Try again.") from error


def check_other_places(source: Parts, target: Parts, settings: tuple[str, ...]) -> None:
    """One server may go by two names: of what moves by its address, is the same behind both?"""
    asked: dict[str, Callable[[Parts], Any]] = {
        LEDGER: _lease,
        CATALOG: _database,
        LOG: lambda parts: parts.log.identity() if is_kafka(parts.settings.text(LOG)) else None,
    }
    for name, identify in asked.items():
        if name in settings and (here := identify(source)) is not None and here == identify(target):
            before, after = shown_place(source.settings, name), shown_place(target.settings, name)
            raise Conflict(
                f"{name} is {before} here and {after} in FILE, and both are the same. "
                "Name another place; or, if only its address has changed, edit headwater.toml by hand."
            )


def check_target_ledger(source: Parts, target: Parts) -> None:
    """An empty ledger, one that this migration began to fill, or one whose lake has left."""
    there = target.ledger
    if there.fact(FORMAT) is not None and not there.fact(MOVED_TO) and there.fact(CAME_AS) != identity_of(source):
        raise Conflict(f"{shown_place(target.settings, LEDGER)} is the ledger of another lake. Name an empty database.")


def check_target_table(target: Parts, name: str, table: "Table") -> None:
    catalog = target.catalog
    if catalog.table_exists(name) and catalog.load_table(name).metadata.table_uuid != table.metadata.table_uuid:
        raise Conflict(f"The target's catalog has a table {name} of another lake. Name an empty database.")


def identity_of(source: Parts) -> str:
    """Which lake: its first table's id, which it keeps wherever it goes."""
    return str(source.catalog.load_table(EVENTS.name).metadata.table_uuid)


def verify_table(source: Parts, target: Parts, name: str) -> dict[str, RowHash]:
    before, after = source.catalog.load_table(name), target.catalog.load_table(name)
    if before.metadata.refs != after.metadata.refs or _history(before) != _history(after):
        raise DataFault("CORRUPT", f"{name} did not arrive with its branches, tags and snapshots. Migrate again.")
    expected, found = hash_refs(before), hash_refs(after)
    if expected != found:
        raise DataFault(
            "CORRUPT", f"{name} did not arrive with its rows: expected={expected} found={found}. Migrate again."
        )
    return found


def patiently(step: Callable[[], T]) -> T:
    """Every step may be taken again, so a store that failed once is asked again.

    One S3 server (versitygw 1.8) answers some of Arrow's requests with 400, as if it had misread the one before.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return step()
        except (OSError, Unavailable):
            time.sleep(RETRY_SECONDS)
    return step()


def _memo_store(settings: Any) -> Any:
    return open_memo(settings).store


def _lease(parts: Parts) -> tuple[Any, ...] | None:
    """The one that this very migration holds, if this is the ledger where it does."""
    held = parts.ledger.held(RUN_LEASE)
    return (held.process, held.since) if held else None


def _database(parts: Parts) -> tuple[Any, ...] | None:
    """What a Postgres server says of itself; None for a file, whose path is its name."""
    engine: Any = getattr(parts.catalog, "engine", None)
    if engine is None or engine.dialect.name != "postgresql":
        return None
    with catalogs.translated("the catalog"), engine.connect() as connection:
        asked = connection.exec_driver_sql("select pg_postmaster_start_time(), current_database(), current_schema()")
        return tuple(asked.one())


def _history(table: "Table") -> list[tuple[int, int | None, int | None]]:
    return [(each.snapshot_id, each.parent_snapshot_id, each.sequence_number) for each in table.metadata.snapshots]
