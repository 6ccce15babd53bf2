"""Peek: how far a table has come, without PyIceberg's import where that can be spared.

Deciding that there is nothing to do must not cost a second. The catalog is a table that names each table's metadata
file, and that is JSON: one look into SQLite or Postgres and one read of a file or an object are enough.
"""

from headwater.domain.progress import Progress
from headwater.domain.tables import Table
from headwater.settings import Settings
from headwater.storage.tables.commit import SqlTables
from headwater.storage.tables.metadata_location import metadata_locations
from headwater.storage.tables.rest_catalog import is_rest
from headwater.storage.tables.warehouse_files import WarehouseFiles


def peek_progress(settings: Settings, table: Table) -> Progress:
    if is_rest(settings.text("catalog.uri")):
        return _from_rest(settings, table)
    return SqlTables(metadata_locations(settings), WarehouseFiles(settings)).base(table.name).progress


def _from_rest(settings: Settings, table: Table) -> Progress:
    """The server alone knows where a table's metadata is, and sends it along."""
    from headwater.storage.tables.catalog import load, open_catalog, progress

    return progress(load(open_catalog(settings), table.name))
