"""Reading: rows of the lake's tables without a JVM.

PyIceberg plans which files hold the rows, DuckDB reads them. A table that DuckDB could misread (delete files, columns
that changed over time, files on an object store) is read by PyIceberg itself: slower, and right.
`run_sql` answers a stranger's query: it may read the tables and nothing else of this machine.
"""

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import to_text
from headwater.domain import tables
from headwater.errors import InvalidRequest, NotFound
from headwater.storage import catalog as catalogs
from headwater.storage.where import Where, condition_of, expression_of, names, quoted_list

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as IcebergTable

# Queries that look the tables up by other means than their names see all of them.
_LOOKS_AROUND: Final = re.compile(
    r"\b(show|information_schema|duckdb_\w+|pg_\w+|query|query_table|from_substrait)\b", re.I
)
# The schema in which every model's rows are to be seen.
ALL_MODELS: Final = "all_models"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNKNOWN_TABLE: Final = re.compile(r"Table with name \"?(\S+?)\"? does not exist")


def scan(
    catalog: catalogs.Tables,
    name: str,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Rows whose columns equal a value, are in a collection or lie `Between`; files are pruned by the same rule."""
    table = catalogs.load(catalog, name)
    chosen = tuple(columns) if columns is not None else _columns(table)
    with catalogs.translated(name):
        tasks = plan(table, where or {})
        if not _duck_reads(table, tasks):
            return _scan_arrow(table, chosen, where or {}, limit)
        return _scan_duck(table, tasks, chosen, where or {}, limit)


def plan(table: "IcebergTable", where: Where) -> "list[FileScanTask]":
    """The data files that may hold such rows, from manifests alone."""
    return list(table.scan(row_filter=expression_of(where)).plan_files())


def duck(
    catalog: catalogs.Tables, wanted: Collection[str] | None = None, hidden: Collection[str] = ()
) -> "DuckDBPyConnection":
    """A DuckDB connection with a view per table, as `silver.transcripts` and `transcripts`; it reaches nothing else.

    `hidden` are the fingerprints of models that are not active: their rows are in `all_models.transcripts` alone.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    allowed = [
        path
        for table in tables.TABLES
        if wanted is None or table.name in wanted
        for path in _create_views(connection, catalog, table, hidden)
    ]
    connection.execute(f"SET allowed_paths = {quoted_list(allowed)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def run_sql(
    catalog: catalogs.Tables,
    query: str,
    hidden: Collection[str] = (),
    others: Mapping[str, pa.Table] | None = None,
) -> dict[str, Any]:
    """`{"columns": […], "rows": [{…}]}`; one statement that reads, over the tables it names and `others`."""
    import duckdb

    _check_statement(query)
    connection = duck(catalog, _named_in(query), hidden)
    try:
        for name, rows in (others or {}).items():
            connection.register(name, rows)
        answer = connection.sql(query).to_arrow_table()
    except duckdb.PermissionException as error:
        raise InvalidRequest("A query reads the lake's tables; files and settings are out of its reach.") from error
    except duckdb.CatalogException as error:
        raise _unknown(error) from error
    except duckdb.Error as error:
        raise InvalidRequest(f"The query cannot be answered: {error}") from error
    finally:
        connection.close()
    return {"columns": answer.column_names, "rows": to_json_rows(answer)}


def to_json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of plain JSON values: times as ISO 8601 in UTC, bytes as hex."""
    return [{name: to_plain(value) for name, value in row.items()} for row in to_rows(table)]


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """As `to_pylist`, which loads pandas for the sake of times; these are made of their microseconds here."""
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if column.type != tables.TIMESTAMP:
        return list(column.to_pylist())
    moments = column.cast(pa.int64()).to_pylist()
    return [None if moment is None else _EPOCH + timedelta(microseconds=moment) for moment in moments]


def to_plain(value: Any) -> Any:
    """A value that JSON can carry."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return to_text(value) if value.tzinfo else value.isoformat()
        case date():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): to_plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [to_plain(inner) for inner in value]
        case _:
            return str(value)


def _check_statement(query: str) -> None:
    import duckdb

    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise InvalidRequest(f"That is not SQL: {error}") from error
    if len(statements) != 1:
        raise InvalidRequest(f"One statement at a time, please; found {len(statements)}.")
    if statements[0].type not in {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}:
        kind = statements[0].type.name
        raise InvalidRequest(f"Queries only read: SELECT, WITH, DESCRIBE, SUMMARIZE or EXPLAIN, not {kind}.")


def _named_in(query: str) -> set[str] | None:
    """A name too many costs a plan of its files; a name too few would cost the answer, so any mention counts."""
    if _LOOKS_AROUND.search(query):
        return None
    return {table.name for table in tables.TABLES if re.search(rf"\b{table.short_name}\b", query, re.I)}


def _unknown(error: Exception) -> Exception:
    if not (found := _UNKNOWN_TABLE.search(str(error))):
        return InvalidRequest(f"The query cannot be answered: {error}")
    known = [name for table in tables.TABLES for name in (table.name, table.short_name)]
    near = difflib.get_close_matches(found[1].lower(), known, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    return NotFound(
        f"There is no table {found[1]}.{hint} All of them: {', '.join(table.name for table in tables.TABLES)}"
    )


def _create_views(
    connection: "DuckDBPyConnection", catalog: catalogs.Tables, table: tables.Table, hidden: Collection[str]
) -> list[str]:
    """Returns the files that the views read."""
    iceberg = catalogs.load(catalog, table.name)
    with catalogs.translated(table.name):
        tasks = plan(iceberg, {})
        paths = _paths(tasks)
        columns = _columns(iceberg)
        if _duck_reads(iceberg, tasks) and paths:
            source = _files(paths)
        else:
            source, paths = f"rows_of_{table.short_name}", []
            connection.register(source, _scan_arrow(iceberg, columns, {}, None) if tasks else _empty(table.schema))
    for schema in (table.name.partition(".")[0], ALL_MODELS):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    whole = f"{ALL_MODELS}.{table.short_name}"
    connection.execute(f"CREATE VIEW {whole} AS SELECT {names(columns)} FROM {source}")
    connection.execute(f"CREATE VIEW {table.name} AS FROM {whole} WHERE {_seen(table, hidden)}")
    connection.execute(f"CREATE VIEW main.{table.short_name} AS FROM {table.name}")
    return paths


def _seen(table: tables.Table, hidden: Collection[str]) -> str:
    parts = [f"NOT {condition_of({name: sorted(hidden)})}" for name in table.model_columns if hidden]
    return " AND ".join(parts) or "true"


def seen(rows: pa.Table, table: tables.Table, hidden: Collection[str]) -> pa.Table:
    """Without the rows of models that are not active."""
    for name in table.model_columns if hidden else ():
        rows = rows.filter(pc.invert(pc.is_in(rows[name], value_set=pa.array(sorted(hidden)))))
    return rows


def is_local(table: "IcebergTable") -> bool:
    """Whether DuckDB can open the files: on this machine, and without letters that it takes for a pattern."""
    location = table.location()
    return location.startswith(("file:", "/")) and not set(location) & set("*?[")


def _duck_reads(table: "IcebergTable", tasks: "list[FileScanTask]") -> bool:
    return is_local(table) and len(table.metadata.schemas) == 1 and not any(task.delete_files for task in tasks)


def _paths(tasks: "list[FileScanTask]") -> list[str]:
    from headwater.storage.local_path import local_path

    return [local_path(task.file.file_path) for task in tasks]


def _scan_duck(
    table: "IcebergTable", tasks: "list[FileScanTask]", columns: Sequence[str], where: Where, limit: int | None
) -> pa.Table:
    import duckdb

    value = tables.find(".".join(table.name()))
    kinds = pa.schema([value.schema.field(name) for name in columns]) if value else None
    if not tasks and kinds is not None:
        return _empty(kinds)
    bound = f" LIMIT {limit:d}" if limit is not None else ""
    query = f"SELECT {names(columns)} FROM {_files(_paths(tasks))} WHERE {condition_of(where)}{bound}"
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(query).to_arrow_table()
    return found.cast(kinds) if kinds is not None else found


def _scan_arrow(table: "IcebergTable", columns: Sequence[str], where: Where, limit: int | None) -> pa.Table:
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(table.io, PyArrowFileIO):
        table.io = load_file_io({**table.io.properties, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"})
    rows = table.scan(row_filter=expression_of(where), selected_fields=tuple(columns), limit=limit).to_arrow()
    value = tables.find(".".join(table.name()))
    known = value is not None and set(columns) <= set(value.schema.names)
    rows = rows.select(list(columns))
    return rows.cast(pa.schema([value.schema.field(name) for name in columns])) if value and known else rows


def _files(paths: Sequence[str]) -> str:
    return f"read_parquet({quoted_list(paths)}, hive_partitioning = false)"


def _columns(table: "IcebergTable") -> tuple[str, ...]:
    return tuple(column.name for column in table.schema().columns)


def _empty(schema: pa.Schema) -> pa.Table:
    # Not schema.empty_table(): that loads pandas.
    return pa.Table.from_batches([], schema)
