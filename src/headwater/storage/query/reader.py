"""Reading: rows of the lake's tables without a JVM, on a disk and on an object store alike.

PyIceberg plans which files hold the rows; DuckDB reads of them what is asked for: the columns, the row groups that a
filter leaves, as many rows as a limit wants. `scan` answers our own questions and `run_sql` a stranger's, who sees the
tables as views and cannot write, whatever the statement: see `statement`, `query_engine` and `lake_files`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater import faults
from headwater.domain import tables
from headwater.domain.ref import Ref
from headwater.storage.query.engine import Engine, open_engine
from headwater.storage.query.plain_rows import distinct_names, to_json_rows
from headwater.storage.query.statement import ALL_MODELS, parse
from headwater.storage.query.table_source import CannotRead, read_by_pyiceberg, source_of
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.expired_scan import plan_again
from headwater.storage.tables.row_filter import RowFilter, condition_of, expression_of, names
from headwater.storage.tables.time_travel import TablesAt

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as IcebergTable

_ROWS_AT_ONCE: Final = 10_000


def scan(
    catalog: catalogs.Tables,
    name: str,
    columns: Sequence[str] | None = None,
    where: RowFilter | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Rows whose columns equal a value, are in a collection or lie `Between`; files are pruned by the same rule.

    Of `TablesAt` they are those of then; a column that is asked for and came later is null.
    """
    return plan_again(lambda: _scan_planned(catalog, name, columns, where or {}, limit))


def _scan_planned(
    catalog: catalogs.Tables, name: str, columns: Sequence[str] | None, where: RowFilter, limit: int | None
) -> pa.Table:
    table = catalogs.load(catalog, name)
    chosen, there = tuple(columns) if columns is not None else _columns(table), _columns(table)
    value = tables.find(".".join(table.name()))
    known = value is not None and set(chosen) <= set(value.schema.names)
    schema = pa.schema([value.schema.field(name) for name in chosen]) if value and known else None
    with catalogs.translated(name):
        tasks = plan(table, where)
        if not tasks and schema is not None:
            return pa.Table.from_batches([], schema)  # not schema.empty_table(): that loads pandas
        present = [name for name in chosen if schema is None or name in there]
        rows = _scan(table, tasks, present, where, limit)
    return _conform(rows, schema) if schema is not None else rows


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for number, field in enumerate(schema):
        if field.name not in rows.column_names:
            schema = schema.set(number, field.with_nullable(True))
            rows = rows.add_column(number, field.name, pa.nulls(len(rows), field.type))
    return rows.cast(schema)


def plan(table: "IcebergTable", where: RowFilter) -> "list[FileScanTask]":
    """The data files that may hold such rows, from manifests alone."""
    return list(table.scan(row_filter=expression_of(where)).plan_files())


def duck(
    catalog: catalogs.Tables, wanted: Collection[str] | None = None, hidden: Collection[str] = ()
) -> "DuckDBPyConnection":
    """A DuckDB connection with a view per table, as `silver.transcripts` and `transcripts`; it reaches nothing else.

    It has the files of the moment, and fails where these have expired since.
    `hidden` are the fingerprints of models that are not active: their rows are in `all_models.transcripts` alone.
    """
    engine = Engine()
    for table in tables.TABLES:
        if wanted is None or table.name in wanted:
            _create_views(engine, catalog, table, hidden)
    engine.lock()
    return engine.connection


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows come as they are made. Of two columns with one name the second has a number.

    `as_of` are the snapshots that were read, where a ref was given.
    """

    columns: list[str]
    rows: Iterator[list[dict[str, Any]]]
    as_of: dict[str, Any] | None = None


def run_sql(
    catalog: catalogs.Tables,
    query: str,
    hidden: Collection[str] = (),
    others: Mapping[str, pa.Table] | None = None,
    as_of: Ref | None = None,
) -> dict[str, Any]:
    """`{"columns": […], "rows": [{…}]}`; one statement that reads, over the tables it names and `others`.

    With a ref, `as_of` tells the snapshots that were read: see `TablesAt.to_dict`.
    """

    def read() -> dict[str, Any]:
        with open_answer(catalog, query, hidden, others, as_of=as_of) as answer:
            found = {"columns": answer.columns, "rows": [row for rows in answer.rows for row in rows]}
            return found | ({"as_of": answer.as_of} if answer.as_of else {})

    return plan_again(read)


@contextmanager
def open_answer(
    catalog: catalogs.Tables,
    query: str,
    hidden: Collection[str] = (),
    others: Mapping[str, pa.Table] | None = None,
    memory_mb: int | None = None,
    as_of: Ref | None = None,
) -> Iterator[Answer]:
    """Raises SnapshotExpired where files go while they are read: who reads to the end can `plan_again`.

    `as_of` is of every table that the query names; NotFound where one of them does not have it.
    """
    others = others or {}
    with open_engine(memory_mb) as engine:
        statement = parse(engine.connection, query)
        named = statement.tables(frozenset(others))
        wanted = [table for table in tables.TABLES if table.name in named]
        past = TablesAt(catalog, as_of, [table.name for table in wanted]) if as_of else None
        for table in wanted:
            _create_views(engine, past or catalog, table, hidden)
        for name, rows in others.items():
            engine.connection.register(name, rows)
        engine.lock()
        faults.point("sql.planned")
        batches = engine.connection.sql(statement.text).to_arrow_reader(_ROWS_AT_ONCE)
        plain = (to_json_rows(pa.Table.from_batches([batch])) for batch in batches)
        yield Answer(distinct_names(batches.schema.names), plain, past.to_dict() if past else None)


def seen(rows: pa.Table, table: tables.Table, hidden: Collection[str]) -> pa.Table:
    """Without the rows of models that are not active."""
    for name in [name for name in table.model_columns if hidden and name in rows.column_names]:
        rows = rows.filter(pc.invert(pc.is_in(rows[name], value_set=pa.array(sorted(hidden)))))
    return rows


def is_local(table: "IcebergTable") -> bool:
    """Whether DuckDB can open the files: on this machine, and without letters that it takes for a pattern."""
    location = table.location()
    return location.startswith(("file:", "/")) and not set(location) & set("*?[")


def _create_views(engine: Engine, catalog: catalogs.Tables, table: tables.Table, hidden: Collection[str]) -> None:
    iceberg = catalogs.load(catalog, table.name)
    with catalogs.translated(table.name):
        tasks = plan(iceberg, {})
        try:
            source = source_of(engine.connection, engine.files, iceberg, tasks)
        except CannotRead:
            source = f"rows_of_{table.short_name}"
            engine.connection.register(source, read_by_pyiceberg(iceberg))
    for schema in (table.name.partition(".")[0], ALL_MODELS):
        engine.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    whole = f"{ALL_MODELS}.{table.short_name}"
    columns = _columns(iceberg)
    engine.connection.execute(f"CREATE VIEW {whole} AS SELECT {names(columns)} FROM {source}")
    engine.connection.execute(f"CREATE VIEW {table.name} AS FROM {whole} WHERE {_seen(table, columns, hidden)}")
    engine.connection.execute(f"CREATE VIEW main.{table.short_name} AS FROM {table.name}")


def _seen(table: tables.Table, columns: Collection[str], hidden: Collection[str]) -> str:
    """Rows from before a table knew models are nobody's to hide."""
    of_models = [name for name in table.model_columns if hidden and name in columns]
    return " AND ".join(f"NOT {condition_of({name: sorted(hidden)})}" for name in of_models) or "true"


def _scan(
    table: "IcebergTable", tasks: "list[FileScanTask]", columns: Sequence[str], where: RowFilter, limit: int | None
) -> pa.Table:
    with suppress(CannotRead):
        return _scan_files(table, tasks, columns, where, limit)
    scanned = {"row_filter": expression_of(where), "selected_fields": tuple(columns), "limit": limit}
    return read_by_pyiceberg(table, **scanned).select(list(columns))


def _scan_files(
    table: "IcebergTable", tasks: "list[FileScanTask]", columns: Sequence[str], where: RowFilter, limit: int | None
) -> pa.Table:
    bound = f" LIMIT {limit:d}" if limit is not None else ""
    with open_engine() as engine:
        source = source_of(engine.connection, engine.files, table, tasks)
        query = f"SELECT {names(columns)} FROM {source} WHERE {condition_of(where)}{bound}"
        return engine.connection.sql(query).to_arrow_table()


def _columns(table: "IcebergTable") -> tuple[str, ...]:
    return tuple(column.name for column in table.schema().columns)
