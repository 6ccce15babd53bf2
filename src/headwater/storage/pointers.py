"""Catalog pointers: which metadata file is each table's current one, read at one instant and set one by one."""

from typing import TYPE_CHECKING

from headwater.storage.catalog import translated

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def read_pointers(catalog: "Catalog") -> dict[str, str]:
    """By table. One statement, so what is read is a state that the lake was in."""
    from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    with translated("the catalog"):
        assert isinstance(catalog, SqlCatalog)
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        with Session(catalog.engine) as session:
            rows = session.execute(select(*columns).where(IcebergTables.catalog_name == catalog.name)).all()
    return {f"{namespace}.{name}": str(location) for namespace, name, location in rows if location}


def set_pointer(catalog: "Catalog", table: str, metadata: str) -> None:
    """Whatever it was before; no file is deleted. Twice is once."""
    with translated(table):
        catalog.create_namespace_if_not_exists(table.rpartition(".")[0])
        if catalog.table_exists(table):
            if catalog.load_table(table).metadata_location == metadata:
                return
            catalog.drop_table(table)
        catalog.register_table(table, metadata)


def is_there(catalog: "Catalog", metadata: str) -> bool:
    from pyiceberg.io import load_file_io

    with translated(metadata):
        return load_file_io(catalog.properties, metadata).new_input(metadata).exists()
