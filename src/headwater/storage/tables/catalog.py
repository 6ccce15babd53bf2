"""Catalog: the Iceberg tables, seen without a JVM.

Spark's JDBC catalog `lake` and PyIceberg's `SqlCatalog` share one database, so both see the same tables. Here
tables are made, loaded, and their properties compared and set; rows are read in `reading` and written in `publish`.
Invariant: a property changes only in an optimistic commit, so of two who expect the same value one is refused.
"""

import random
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headwater.domain import tables
from headwater.errors import WAY_BACK, Conflict, HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.settings import Settings
from headwater.storage.io.s3 import S3Target, is_s3, one_spelling
from headwater.storage.io.sqlite_file import connect
from headwater.storage.tables.expired_scan import expired
from headwater.storage.tables.metadata_location import BUSY_SECONDS, CATALOG
from headwater.storage.tables.rest_catalog import URIS, is_rest, is_rest_catalog, rest_conf, unmoved
from headwater.storage.tables.schema_evolution import add_unpartitioned_spec, iceberg_schema, metrics_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement

NAME: Final = CATALOG
COMMIT_ATTEMPTS: Final = 30

# With Iceberg's default of 4 retries, four processes appending 20 times each lost two commits; with these none.
_PROPERTIES: Final = {
    "format-version": "2",
    "commit.retry.num-retries": str(COMMIT_ATTEMPTS),
    "commit.retry.min-wait-ms": "50",
    "write.distribution-mode": "hash",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.metrics.default": "counts",
}


def open_catalog(settings: Settings) -> "Catalog":
    """The lake's catalog; an absent SQLite file is made. Imports PyIceberg, which costs about a second."""
    uri, warehouse = settings.text("catalog.uri"), warehouse_uri(settings)
    if is_rest(uri):
        return _open_rest(settings)
    if uri.startswith("sqlite:///"):
        _prepare_sqlite(Path(uri.removeprefix("sqlite:///")))
        uri = f"{uri}?timeout={BUSY_SECONDS}"
    elif is_postgres(uri):
        # psycopg 3, and a connection is tried before it is used: the server may have been restarted since.
        uri = f"postgresql+psycopg://{uri.partition('://')[2]}"
    else:
        raise InvalidRequest(f"catalog.uri is not known here. {URIS}")
    files = S3Target.from_settings(warehouse, settings, "catalog.warehouse").iceberg() if is_s3(warehouse) else {}
    with translated("the catalog"):
        from headwater.storage.tables.sql_catalog import LakeCatalog

        chosen = {"uri": uri, "warehouse": warehouse, "schema_version": "v1", "pool_pre_ping": "true", **files}
        return LakeCatalog(NAME, settings, **chosen)


def _open_rest(settings: Settings) -> "Catalog":
    warehouse = warehouse_uri(settings)
    files = S3Target.from_settings(warehouse, settings, "catalog.warehouse").iceberg() if is_s3(warehouse) else {}
    with translated("the catalog"):
        from pyiceberg.catalog.rest import RestCatalog

        return RestCatalog(NAME, **rest_conf(settings), **files)


def is_postgres(uri: str) -> bool:
    return uri.startswith(("postgresql://", "postgres://"))


class Tables(Protocol):
    """What a reader needs of a catalog."""

    def load_table(self, identifier: str) -> "Table": ...


def open_reader(settings: Settings) -> Tables:
    """The same tables for reading only, without SQLAlchemy and Arrow's data sets: half the imports."""
    uri = settings.text("catalog.uri")
    if uri.startswith("sqlite:///") and warehouse_uri(settings).startswith("file://"):
        return SqliteReader(Path(uri.removeprefix("sqlite:///")))
    return open_catalog(settings)


class SqliteReader:
    """Reads where a table's metadata is from the catalog's own SQLite table, and the metadata from its file."""

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise NotFound(f"There is no catalog at {file}. {WAY_BACK}")
        self._file = file

    def load_table(self, identifier: str) -> "Table":
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import Table

        from headwater.storage.tables.local_file_io import LocalFiles

        namespace, _, name = identifier.rpartition(".")
        location = self._metadata_location(namespace, name)
        files = LocalFiles()
        metadata = FromInputFile.table_metadata(files.new_input(location))
        return Table((*namespace.split("."), name), metadata, location, files, NoopCatalog(NAME))

    def _metadata_location(self, namespace: str, name: str) -> str:
        query = (
            "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? "
            "AND table_name = ? AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
        )
        with closing(connect(Path(self._file), BUSY_SECONDS)) as connection:
            found = connection.execute(query, (NAME, namespace, name)).fetchone()
        if found is None:
            raise _no_table(f"{namespace}.{name}")
        return str(found[0])


def warehouse_uri(settings: Settings) -> str:
    """Absolute and with a scheme: Spark and PyIceberg must spell a file's name alike."""
    warehouse = settings.text("catalog.warehouse")
    return one_spelling(warehouse) if "://" in warehouse else f"file://{Path(warehouse).absolute()}"


def create_tables(catalog: "Catalog", wanted: Iterable[tables.Table] = tables.TABLES) -> None:
    """Namespaces and tables, by default every one of `domain.tables`; twice is once."""
    from pyiceberg.exceptions import TableAlreadyExistsError

    for table in wanted:
        with translated(table.name):
            catalog.create_namespace_if_not_exists(table.name.partition(".")[0])
            if not catalog.table_exists(table.name):
                try:
                    _create(catalog, table)
                except TableAlreadyExistsError:
                    continue


def load(catalog: "Tables | Catalog", name: str) -> "Table":
    """By full or short name: `silver.transcripts`, `transcripts`."""
    table = tables.find(name)
    with translated(name):
        return catalog.load_table(table.name if table else name)


def set_properties_if(
    catalog: "Catalog",
    name: str,
    expected: Mapping[str, str | None],
    changes: Mapping[str, str],
) -> None:
    """Compare and set in one commit; None expects that a property is absent.

    A commit of somebody else in between is retried; Conflict when the expectation no longer holds. A REST catalog
    compares rows only (see `rest_catalog`).
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import SetPropertiesUpdate

    for attempt in range(COMMIT_ATTEMPTS):
        table = load(catalog, name)
        _check_expectation(name, expected, table.properties)
        requirements = unmoved(table) if is_rest_catalog(catalog) else (_requirement(expected),)
        try:
            with translated(name, keep=CommitFailedException):
                table._do_commit((SetPropertiesUpdate(updates=dict(changes)),), requirements)
            return
        except CommitFailedException:
            time.sleep(random.uniform(0.01, 0.05) * (attempt + 1))
    raise Unavailable(f"{name} is committed to so often that its properties could not be set. Try again.")


@contextmanager
def translated(what: str, keep: type[Exception] | None = None) -> Iterator[None]:
    """The one door through which errors of PyIceberg, SQLAlchemy and the file system become ours."""
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        if keep is not None and isinstance(error, keep):
            raise
        raise _ours(what, error) from error


def _ours(what: str, error: Exception) -> Exception:
    from pyiceberg import exceptions
    from sqlalchemy.exc import SQLAlchemyError

    match error:
        case exceptions.NoSuchTableError() | exceptions.NoSuchNamespaceError():
            return _no_table(what)
        case exceptions.CommitFailedException():
            return Conflict(f"{what} was changed by somebody else meanwhile: {error}. Try again.")
        case exceptions.CommitStateUnknownException():
            return Unavailable(f"It is unknown whether the commit to {what} arrived: {error}. Read the table to know.")
        case exceptions.UnauthorizedError() | exceptions.ForbiddenError() | exceptions.OAuthError():
            return InvalidRequest(f"The catalog refused us at {what}: {error}. Check catalog.token.")
        case FileNotFoundError():
            return expired(what, error)
        case SQLAlchemyError() | sqlite3.Error() | OSError() | exceptions.RESTError():
            return Unavailable(f"{what} could not be reached: {str(error).splitlines()[0]}")
        case _:
            return error


def _no_table(name: str) -> NotFound:
    if tables.find(name):
        return NotFound(f"{name} is not in the lake's catalog. {WAY_BACK}")
    return NotFound(f"There is no table {name}. All of them: headwater status")


def _prepare_sqlite(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection:
            # Kept in the file itself, so Spark's driver finds it so too: readers do not block the writer.
            connection.execute("PRAGMA journal_mode=WAL")
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(
            f"The catalog {file} cannot be opened: {error}. Check the path and its permissions."
        ) from error


def _create(catalog: "Catalog", table: tables.Table) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.table.sorting import SortField, SortOrder
    from pyiceberg.transforms import DayTransform, IdentityTransform

    schema = iceberg_schema(table.schema)
    day = schema.find_field(table.day).field_id
    catalog.create_table(
        table.name,
        schema,
        partition_spec=PartitionSpec(PartitionField(day, 1000, DayTransform(), f"{table.day}_day")),
        sort_order=SortOrder(
            *(SortField(schema.find_field(column).field_id, IdentityTransform()) for column in table.order)
        ),
        properties=_PROPERTIES | metrics_of(table),
    )
    add_unpartitioned_spec(catalog, table.name)


def _check_expectation(name: str, expected: Mapping[str, str | None], found: Mapping[str, str]) -> None:
    for key, value in expected.items():
        if found.get(key) != value:
            raise Conflict(
                f"{name} moved meanwhile: {key} expected={value} found={found.get(key)}. Read it and plan again."
            )


def _requirement(expected: Mapping[str, str | None]) -> "TableRequirement":
    """PyIceberg checks requirements against the very metadata that its commit swaps, so nothing fits in between."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import ValidatableTableRequirement

    class ExpectProperties(ValidatableTableRequirement):
        type: str = "expect-properties"

        def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
            found = base_metadata.properties if base_metadata else {}
            if any(found.get(key) != value for key, value in expected.items()):
                raise CommitFailedException("properties have moved")

    return ExpectProperties()  # type: ignore[return-value]
