"""Lost: whether a lake was here whose catalog or ledger is gone.

An empty one in its place would be worse than none: rows would no longer be found, or let in twice. Reads only.
"""

from typing import TYPE_CHECKING, Final, Protocol

from headwater.domain.tables import EVENTS, TABLES
from headwater.errors import Conflict
from headwater.settings import Settings
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.rest_catalog import is_rest
from headwater.storage.tables.warehouse_files import WarehouseFiles

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_BACK: Final = "Bring it back from a backup: headwater restore FILE"


class Parts(Protocol):
    @property
    def settings(self) -> Settings: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def catalog(self) -> "Catalog": ...


def check_not_lost(parts: Parts, *, known: bool) -> None:
    """Conflict where a part of a lake is gone; `known` says that the ledger knows a lake here.

    A lake's ledger gets to know it when all its tables are made, so one that knows it and lacks a table has lost it.
    """
    with catalogs.translated("the catalog"):
        there = [table.name for table in TABLES if parts.catalog.table_exists(table.name)]
    missing = [table.name for table in TABLES if table.name not in there]
    if known and missing:
        raise Conflict(f"The ledger knows a lake here, but its catalog lacks {', '.join(missing)}. {_BACK}")
    if known:
        return
    for table in TABLES:
        if table.name in there and (rows := read_progress(parts.settings, table).next_seq):
            raise Conflict(f"{table.name} has {rows:,} rows here, but the ledger knows no lake. {_BACK}")
    if not there and (found := _left_behind(parts.settings)):
        raise Conflict(
            f"{found} is a table's file that neither catalog nor ledger knows of: a lake was here. {_BACK}; "
            "or, for a new one, name another catalog.warehouse."
        )


def _left_behind(settings: Settings) -> str | None:
    """A data file of the first table; a REST catalog's warehouse may be a name that only its server knows."""
    if is_rest(settings.text("catalog.uri")):
        return None
    folder = f"{catalogs.warehouse_uri(settings).rstrip('/')}/{EVENTS.name.replace('.', '/')}/data"
    return next(WarehouseFiles(settings).list(folder), None)
