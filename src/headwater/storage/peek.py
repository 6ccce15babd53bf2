"""Peek: a table's properties and current summary, without PyIceberg's import where that can be spared.

Deciding that there is nothing to do must not cost a second. The catalog is a table that names each table's metadata
file, and that is JSON: one look into SQLite or Postgres and one read of a file or an object are enough.
"""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from headwater.domain.progress import Progress
from headwater.domain.tables import Table
from headwater.errors import InvalidRequest, NotFound, Unavailable
from headwater.settings import Settings
from headwater.storage.rest_catalog import URIS, is_rest
from headwater.storage.s3 import S3Target, is_s3, one_spelling

_MISSING = "{} is not in the lake's catalog. Make the lake again with: headwater init"
_LOCATION = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


def peek_progress(settings: Settings, table: Table) -> Progress:
    return Progress.from_properties(_properties(settings, table))


def _properties(settings: Settings, table: Table) -> Mapping[str, str]:
    uri, warehouse = settings.text("catalog.uri"), settings.text("catalog.warehouse")
    namespace, _, name = table.name.partition(".")
    if is_rest(uri):
        return _from_rest(settings, table)
    if uri.startswith("sqlite:///"):
        location = _from_sqlite(Path(uri.removeprefix("sqlite:///")), namespace, name)
    elif uri.startswith(("postgresql://", "postgres://")):
        location = _from_postgres(uri, namespace, name)
    else:
        raise InvalidRequest(f"catalog.uri is not known here. {URIS}")
    if location is None:
        raise NotFound(_MISSING.format(table.name))
    if is_s3(warehouse):
        metadata = _read_s3(location, settings)
    else:
        # Spark writes file:/…, PyIceberg file:///…
        metadata = json.loads(Path("/" + location.removeprefix("file:").lstrip("/")).read_bytes())
    properties: dict[str, str] = metadata["properties"]
    return properties


def _from_rest(settings: Settings, table: Table) -> Mapping[str, str]:
    """The server alone knows where a table's metadata is, and sends it along."""
    from headwater.storage.catalog import load, open_catalog

    try:
        return load(open_catalog(settings), table.name).properties
    except NotFound:
        raise NotFound(_MISSING.format(table.name)) from None


def _from_sqlite(file: Path, namespace: str, name: str) -> str | None:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
        row = connection.execute(_LOCATION, (namespace, name)).fetchone()
    return str(row[0]) if row else None


def _from_postgres(uri: str, namespace: str, name: str) -> str | None:
    from headwater.storage.postgres_database import PostgresDatabase

    with closing(PostgresDatabase(uri)) as database:
        rows = database.query(_LOCATION, (namespace, name))
    return str(rows[0][0]) if rows else None


def _read_s3(location: str, settings: Settings) -> dict[str, Any]:
    from obstore.exceptions import BaseError

    place, _, name = one_spelling(location).rpartition("/")
    target = S3Target.from_settings(place, settings)
    try:
        metadata: dict[str, Any] = json.loads(bytes(target.store(target.session()).get(name).bytes()))
    except (BaseError, OSError) as error:
        raise Unavailable(f"{location} cannot be read: {str(error).partition(chr(10))[0]}. Try again.") from error
    return metadata
