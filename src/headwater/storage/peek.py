"""Peek: a table's properties and current summary, without PyIceberg's import where that can be spared.

Deciding that there is nothing to do must not cost a second. The embedded catalog is a SQLite file that names each
table's metadata file, and that is JSON; both are read with the standard library. Other catalogs are asked properly.
"""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from headwater.domain.progress import Progress
from headwater.domain.tables import Table
from headwater.errors import NotFound
from headwater.settings import Settings

_LOCATION = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


def peek_progress(settings: Settings, table: Table) -> Progress:
    return Progress.from_properties(_properties(settings, table))


def _properties(settings: Settings, table: Table) -> Mapping[str, str]:
    uri, warehouse = settings.text("catalog.uri"), settings.text("catalog.warehouse")
    if uri.startswith("sqlite:///") and "://" not in warehouse:
        return _from_sqlite(Path(uri.removeprefix("sqlite:///")), table)
    from headwater.storage.catalog import load, open_catalog

    return load(open_catalog(settings), table.name).properties


def _from_sqlite(file: Path, table: Table) -> Mapping[str, str]:
    namespace, _, name = table.name.partition(".")
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
        row = connection.execute(_LOCATION, (namespace, name)).fetchone()
    if row is None:
        raise NotFound(f"{table.name} is not in the catalog {file}. Make the lake again with: headwater init")
    # Spark writes file:/…, PyIceberg file:///…
    metadata: dict[str, Any] = json.loads(Path("/" + row[0].removeprefix("file:").lstrip("/")).read_bytes())
    properties: dict[str, str] = metadata["properties"]
    return properties
