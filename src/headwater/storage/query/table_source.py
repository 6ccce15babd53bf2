"""A table's rows as something that DuckDB can select from, read from the data files themselves.

Iceberg finds a column in a file by its number, so files from before a column was added or renamed are read with the
others. Files that others wrote and that were only taken in have no numbers, and are read by names, as the table's name
mapping has it. Rows that a delete file names are left out by their file and position. What DuckDB could misread even so
(names that changed hands, a type or a kind of delete file that it is not told of) is read by PyIceberg as a whole:
slower, and right.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from headwater.storage.query.lake_files import LakeFiles
from headwater.storage.tables.row_filter import literal, names, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.types import IcebergType, NestedField

_PLAIN: Final = {
    "boolean": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "date": "DATE",
    "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP WITH TIME ZONE", "string": "VARCHAR",
    "uuid": "UUID", "binary": "BLOB",
}  # fmt: skip
_NAME_MAPPING: Final = "schema.name-mapping.default"
_FILE: Final = "data file of the row"


class CannotRead(Exception):
    """DuckDB would read this table wrongly, or not at all."""


def source_of(
    connection: "DuckDBPyConnection", files: LakeFiles, table: "IcebergTable", tasks: "Sequence[FileScanTask]"
) -> str:
    """SQL that can stand after FROM, with the table's columns under their names. Raises CannotRead."""
    name = ".".join(table.name())
    selected = names([column.name for column in table.schema().columns])
    parts = []
    for deleted, group in groupby(sorted(tasks, key=_has_deletes), _has_deletes):
        these = list(group)
        folder = f"{name}/{'deleted' if deleted else 'whole'}"
        rows = _read(table, files.add(folder, [task.file for task in these], table.io))
        if deleted:
            gone = _deleted_rows(connection, files, table, folder, these)
            rows = f"{rows} AS kept ANTI JOIN {gone} ON kept.{quoted(_FILE)} = gone.file AND file_row_number = gone.pos"
        parts.append(f"SELECT {selected} FROM {rows}")
    return f"({' UNION ALL '.join(parts) or _no_rows(table.schema())})"


def _has_deletes(task: "FileScanTask") -> bool:
    return bool(task.delete_files)


def _read(table: "IcebergTable", pattern: str) -> str:
    options = f"hive_partitioning = false, filename = {literal(_FILE)}"
    if _NAME_MAPPING not in table.properties:
        return f"read_parquet({literal(pattern)}, schema = {_numbers(table.schema().columns)}, {options})"
    _check_names(table.metadata.schemas)
    by_name = f"SELECT * FROM read_parquet({literal(pattern)}, union_by_name = true, {options}, file_row_number = true)"
    return f"({_no_rows(table.schema())} UNION ALL BY NAME {by_name})"


def _numbers(fields: "Sequence[NestedField]") -> str:
    """What `read_parquet` takes as its schema: a field's number, and what it is called and is in this table.

    Also of fields inside a column: without these DuckDB takes a struct's fields by their places in it.
    """
    members = [
        f"{field.field_id}: {{name: {literal(field.name)}, type: {literal(_type(field.field_type))}, "
        f"default_value: {_default(field)}, children: {_numbers(_inside(field.field_type))}}}"
        for field in fields
    ]
    return f"MAP {{{', '.join(members)}}}" if members else "NULL"


def _inside(kind: "IcebergType") -> "Sequence[NestedField]":
    """The fields of a struct, the element of a list, key and value of a map."""
    return getattr(kind, "fields", ())


def _no_rows(schema: "Schema") -> str:
    typed = [f"NULL::{_type(column.field_type)} AS {quoted(column.name)}" for column in schema.columns]
    return f"SELECT {', '.join(typed)} WHERE false"


def _default(column: "NestedField") -> str:
    if column.initial_default is not None:
        raise CannotRead(f"{column.name} has a default of its own")
    return "NULL"


def _type(kind: "IcebergType") -> str:
    from pyiceberg.types import DecimalType, ListType, MapType, StructType

    match kind:
        case StructType():
            return f"STRUCT({', '.join(f'{quoted(field.name)} {_type(field.field_type)}' for field in kind.fields)})"
        case ListType():
            return f"{_type(kind.element_type)}[]"
        case MapType():
            return f"MAP({_type(kind.key_type)}, {_type(kind.value_type)})"
        case DecimalType():
            return f"DECIMAL({kind.precision}, {kind.scale})"
    if (plain := _PLAIN.get(str(kind))) is None:
        raise CannotRead(f"DuckDB is not told of {kind}")
    return plain


def _check_names(schemas: "Sequence[Schema]") -> None:
    """Read by names, a name must have meant the same field in every schema that the table had."""
    from pyiceberg.schema import index_name_by_id

    by_name: dict[str, int] = {}
    by_number: dict[int, str] = {}
    for schema in schemas:
        for number, name in index_name_by_id(schema).items():
            if by_name.setdefault(name, number) != number or by_number.setdefault(number, name) != name:
                raise CannotRead(f"{name} was renamed or made anew")


def _deleted_rows(
    connection: "DuckDBPyConnection",
    files: LakeFiles,
    table: "IcebergTable",
    folder: str,
    tasks: "Sequence[FileScanTask]",
) -> str:
    """A table of the file and the position of each row that a delete file names."""
    from pyiceberg.manifest import FileFormat

    deletes = {file.file_path: file for task in tasks for file in task.delete_files}
    if any(file.file_format != FileFormat.PARQUET for file in deletes.values()):
        raise CannotRead("deletes are kept in bitmaps")
    pattern = files.add(f"{folder}/positions", list(deletes.values()), table.io)
    listed = ", ".join(f"({literal(place)}, {literal(name)})" for place, name in files.names(folder).items())
    made = quoted(f"deleted rows of {'.'.join(table.name())}")
    connection.execute(
        f"CREATE TEMP TABLE {made} AS SELECT known.file, pos FROM "
        f"read_parquet({literal(pattern)}, hive_partitioning = false) "
        f"JOIN (VALUES {listed}) AS known (place, file) ON file_path = known.place"
    )
    return f"{made} AS gone"


def read_by_pyiceberg(table: "IcebergTable", **scan: Any) -> "pa.Table":
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(table.io, PyArrowFileIO):
        table.io = load_file_io({**table.io.properties, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"})
    return table.scan(**scan).to_arrow()
