"""How far a table has come: the one reader of progress, without PyIceberg's import where that can be spared.

Deciding that there is nothing to do must not cost a second. The catalog is a table that names each table's metadata
file, and that is JSON: one look into SQLite or Postgres and one read of a file or an object are enough. A REST server
alone knows where a table's metadata is, and sends it along.
"""

from headwater.domain.progress import Progress
from headwater.domain.ref import Ref
from headwater.domain.tables import Table
from headwater.errors import NotFound
from headwater.settings import Settings
from headwater.storage.tables.commit import CommittedTables, open_committed_tables
from headwater.storage.tables.metadata import progress_at, progress_in
from headwater.storage.tables.resolve_ref import resolve
from headwater.storage.tables.warehouse_files import WarehouseFiles


def read_progress(lake: Settings | CommittedTables, table: Table, as_of: Ref | None = None) -> Progress:
    """As it is now, or as it was with the snapshot that a ref names, which is what a rollback to it would go back to.

    Of a lake's settings, or of a writer's `tables`, which need not read what they wrote themselves.
    """
    tables = open_committed_tables(lake, WarehouseFiles(lake)) if isinstance(lake, Settings) else lake
    metadata = tables.base(table.name).metadata
    if as_of is None:
        return progress_in(metadata)
    snapshot = resolve(metadata, as_of, table.name)
    if (then := progress_at(metadata, snapshot.snapshot_id)) is None:
        raise NotFound(
            f"Snapshot {snapshot.snapshot_id} of {table.name} does not say how far the table had come, and none before "
            "it that is kept does. Ask for a later one."
        )
    return then
