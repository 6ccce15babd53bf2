"""A lake as the commit before format 5 wrote it: a call of two channels, a screenshot and a chat line, run to its end.

It was made by that very commit, at `MADE_AT`; Iceberg names files by their whole paths, so the tables move to where a
test wants them by the relocation that migrations use. Nothing else of it knows where it is.
"""

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from headwater.domain.tables import TABLES
from headwater.settings import load
from headwater.storage.tables.catalog import warehouse_uri
from headwater.storage.tables.relocate import list_table_files, open_warehouse, relocate

FORMAT: Final = 4
MADE_AT: Final = "file:///tmp/lake-of-format-4/"
CALL: Final = "audio/acme/2026-03-01/call.wav"
SCREEN: Final = "images/acme/2026-03-01/screen.png"
CHAT: Final = "my invoice is wrong"
READ: Final = "Payment failed\nPlease update your payment details."
# PocketSphinx on both channels mixed; what was said: I would like to cancel my order and get my money back. / The
# machine did an update last night, and now it does not start.
HEARD: Final = (
    "i would like to cancel my order and get my money back "
    "the machine that alert at the match took a week and you killed me"
)


def former_lake(directory: Path) -> Path:
    """Written at `directory`, which must not be there yet."""
    packed = directory.with_name(f"{directory.name}-as-it-was")
    with tarfile.open(Path(__file__).with_name("lake_of_format_4.tar.xz")) as archive:
        archive.extractall(packed, filter="data")
    (packed / "warehouse").rename(moved := packed.with_name(f"{packed.name}-warehouse"))
    packed.rename(directory)
    settings = load(directory)
    with closing(sqlite3.connect(directory / "catalog.db")) as catalog, catalog:
        for table in TABLES:
            (location,) = _one(catalog, "metadata_location", table.name)
            found = _table(table.name, location, moved)
            files = list_table_files(found)
            path = table.name.replace(".", "/")
            moves = relocate(found, files, open_warehouse(settings), warehouse_uri(settings), path, lambda _: None)
            _one(catalog, "metadata_location", table.name, moves)
    return directory


def _table(name: str, location: str, moved: Path) -> Table:
    files = _Moved(moved)
    metadata = FromInputFile.table_metadata(files.new_input(location))
    return Table(tuple(name.split(".")), metadata, location, files, NoopCatalog("lake"))


class _Moved(PyArrowFileIO):
    """Files of the warehouse under the names that they had."""

    def __init__(self, warehouse: Path) -> None:
        super().__init__()
        self._warehouse = warehouse

    def new_input(self, location: str) -> Any:
        path = location.removeprefix("file:").lstrip("/").removeprefix(MADE_AT.removeprefix("file:///"))
        return super().new_input(f"file://{self._warehouse}/{path.removeprefix('warehouse/')}")


def _one(catalog: sqlite3.Connection, column: str, name: str, value: str | None = None) -> Any:
    where = "WHERE table_namespace = ? AND table_name = ?"
    if value is not None:
        catalog.execute(f"UPDATE iceberg_tables SET {column} = ? {where}", (value, *name.split(".")))
    return catalog.execute(f"SELECT {column} FROM iceberg_tables {where}", name.split(".")).fetchone()
