"""Row stream: all rows of a table, some columns of them, in memory that does not grow with the table.

`reading.scan` answers with what was asked for as one value. Who goes over every key of a lake gets them here instead,
file after file and batch after batch. No JVM.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.storage.tables import catalog as catalogs

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

BATCH_ROWS: Final = 10_000


def stream_rows(
    catalog: catalogs.Tables, name: str, columns: Sequence[str], *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Every row as it is now, in no order that could be relied on."""
    table = catalogs.load(catalog, name)
    with catalogs.translated(name):
        for task in table.scan().plan_files():
            yield from _stream_file(table, task, columns, batch_rows)


def _stream_file(
    table: "Table", task: "FileScanTask", columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    from pyarrow.parquet import ParquetFile

    with table.io.new_input(task.file.file_path).open() as source:
        file = ParquetFile(source)
        if not task.delete_files and set(columns) <= set(file.schema_arrow.names):
            yield from file.iter_batches(batch_rows, columns=list(columns))
            return
    # Rows that were deleted, or a column that the file has by another name or not at all: by Iceberg's rules.
    yield from _read_by_iceberg(table, task, columns)


def _read_by_iceberg(table: "Table", task: "FileScanTask", columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    projection = table.schema().select(*columns)
    scan = ArrowScan(table.metadata, table.io, projection, AlwaysTrue())
    for batch in scan.to_record_batches([task]):
        yield batch.select(list(columns))
