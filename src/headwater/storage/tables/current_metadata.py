"""Current metadata: which metadata file is each table's current one, for all tables read and set at one instant."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.errors import InvalidRequest
from headwater.storage.tables.catalog import translated

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog


def read_all_locations(catalog: "Catalog") -> dict[str, str]:
    """By table. One statement, so what is read is a state that the lake was in."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    known = _in_sql(catalog)
    with translated("the catalog"), Session(known.engine) as session:
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        rows = session.execute(select(*columns).where(IcebergTables.catalog_name == known.name)).all()
    return {f"{namespace}.{name}": str(location) for namespace, name, location in rows if location}


def set_all_locations(catalog: "Catalog", locations: Mapping[str, str]) -> None:
    """All or none, whatever they were before; no file is deleted. Twice is once."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import delete, insert
    from sqlalchemy.orm import Session

    known = _in_sql(catalog)
    with translated("the catalog"):
        for namespace in {table.rpartition(".")[0] for table in locations}:
            known.create_namespace_if_not_exists(namespace)
        with Session(known.engine) as session:
            for table, metadata in locations.items():
                namespace, _, name = table.rpartition(".")
                row = known._create_table_row(namespace, name, metadata)
                key = ("catalog_name", "table_namespace", "table_name")
                session.execute(delete(IcebergTables).filter_by(**{column: row[column] for column in key}))
                session.execute(insert(IcebergTables).values(**row))
            session.commit()


def _in_sql(catalog: "Catalog") -> "SqlCatalog":
    from pyiceberg.catalog.sql import SqlCatalog

    if not isinstance(catalog, SqlCatalog):
        raise InvalidRequest(
            "The catalog is an Iceberg REST server, which tells no states of one instant and lets nobody set them. "
            "Back up and restore that server's own database, and the ledger's, with their own tools."
        )
    return catalog
