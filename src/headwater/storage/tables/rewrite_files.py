"""Rewrite: files of a table written anew, for rows to go or for small files to become few.

Spark's tasks read the old files and write the new ones; one commit takes the ones out and puts the others in. Where
somebody else has rewritten one of them meanwhile the commit is refused: its rows would come back, or be there twice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.domain.tables import Table
from headwater.errors import Conflict, InternalError
from headwater.storage.tables.expired_scan import plan_again
from headwater.storage.tables.java_tables import load_java, plan_files, read_files, write_staged
from headwater.storage.tables.metadata import Metadata
from headwater.storage.tables.read_table import collect, read_table
from headwater.storage.tables.spark_errors import translated_java
from headwater.storage.tables.writer import TableWriter

_ATTEMPTS: Final = 5
Arrange = Callable[[DataFrame], DataFrame]


def remove_rows(writer: TableWriter, table: Table, which: Column) -> None:
    """Delete rows; the files that hold some of them are written anew, without them."""
    stay = ~F.coalesce(which, F.lit(False))
    _remove(writer, table, lambda rows: rows.where(which), lambda rows: rows.where(stay))


def remove_seqs(writer: TableWriter, table: Table, numbers: Sequence[int]) -> None:
    """The same for the rows that have these seqs, however many: a file is written anew once for all of its rows."""
    if not numbers:
        return
    given = writer.spark.createDataFrame(pa.table({"seq": pa.array(numbers, pa.int64())}))
    # Files are left out by their bounds, which no list of numbers could be compared with.
    between = F.col("seq").between(min(numbers), max(numbers))
    _remove(
        writer,
        table,
        lambda rows: rows.where(between).join(given, "seq", "left_semi"),
        lambda rows: rows.join(given, "seq", "left_anti"),
    )


def change_rows(writer: TableWriter, table: Table, which: Column, values: Mapping[str, Column]) -> None:
    """Give some columns of these rows other values; their files are written anew."""
    found = F.coalesce(which, F.lit(False))

    def change(rows: DataFrame) -> DataFrame:
        changed = {name: F.when(found, value).otherwise(F.col(name)) for name, value in values.items()}
        return rows.withColumns(changed)

    _remove(writer, table, lambda rows: rows.where(which), change)


def _remove(writer: TableWriter, table: Table, find: Arrange, keep: Arrange) -> None:
    # Two of one process would each find the other's files gone, again and again.
    with writer.rewrite_lock(table):
        _remove_locked(writer, table, find, keep)


def _remove_locked(writer: TableWriter, table: Table, find: Arrange, keep: Arrange) -> None:
    def attempt() -> None:
        rows = read_table(writer.spark, table).select("*", "_file")
        locations = {row["_file"] for row in collect(find(rows).select("_file").distinct())}
        if locations:
            _rewrite(writer, table, locations, keep, "overwrite")

    for _ in range(_ATTEMPTS):
        with suppress(_FilesGone):
            plan_again(attempt)
            return
    raise Conflict(f"{table.name} is compacted so often that no row can be deleted from it. Try again.")


def rewrite_files(writer: TableWriter, table: Table, locations: Collection[str], arrange: Arrange, spec: int) -> int:
    """Write the rows of these files anew as `arrange` lays them out, under a partition spec; how many files it makes.

    Conflict where one of them is gone.
    """
    try:
        return _rewrite(writer, table, locations, arrange, "rewrite", spec)
    except _FilesGone as gone:
        raise Conflict(f"{table.name} was rewritten by somebody else meanwhile. Plan again.") from gone


class _FilesGone(Exception):
    pass


def _rewrite(
    writer: TableWriter,
    table: Table,
    locations: Collection[str],
    arrange: Arrange,
    kind: str,
    spec: int | None = None,
) -> int:
    java = load_java(writer.spark, table.name)
    with translated_java(table.name, writing=True):
        tasks = plan_files(java, locations)
        if len(tasks) < len(locations):
            raise _FilesGone
        old = [task.file() for task in tasks]
        new = _write(writer, java, table, tasks, arrange, spec)
        if kind == "rewrite" and _rows(new) != _rows(old):
            raise InternalError(
                f"{table.name} has {_rows(old)} rows in files that came to {_rows(new)} when rewritten."
            )
    writer.sync(new)
    start = java.currentSnapshot().snapshotId()

    def all_there(snapshot: Metadata) -> None:
        if int(snapshot["summary"].get("deleted-data-files", 0)) != len(old):
            raise _FilesGone

    writer.replace(table, lambda now: _update(now, old, new, start if kind == "rewrite" else None), all_there)
    return len(new)


def _write(
    writer: TableWriter,
    java: JavaObject,
    table: Table,
    tasks: Sequence[JavaObject],
    arrange: Arrange,
    spec: int | None,
) -> list[JavaObject]:
    """Under each file's own spec, unless one is given."""
    specs = {int(task.file().specId()) for task in tasks}
    written: list[JavaObject] = []
    for number in sorted(specs) if spec is None else [spec]:
        own = tasks if spec is not None else [task for task in tasks if int(task.file().specId()) == number]
        with read_files(java, writer.spark, table.name, own) as rows:
            laid_out = {"output-spec-id": str(number), "use-table-distribution-and-ordering": "false"}
            arranged = arrange(rows) if spec is not None else _clustered(table, arrange(rows))
            written += write_staged(java, table.name, arranged, **laid_out)
    return written


def _clustered(table: Table, rows: DataFrame) -> DataFrame:
    """In one task, a day after the other: for what is rewritten because a few rows go."""
    day = F.to_date(table.day)
    return rows.coalesce(1).sortWithinPartitions(day, *table.order)


def _update(
    java: JavaObject, old: Sequence[JavaObject], new: Sequence[JavaObject], rewritten_from: int | None
) -> JavaObject:
    """`rewritten_from` is the snapshot that was read, where the rows stay the same."""
    update = java.newRewrite() if rewritten_from is not None else java.newOverwrite()
    for file in old:
        update.deleteFile(file)
    for file in new:
        update.addFile(file)
    return update.validateFromSnapshot(rewritten_from) if rewritten_from is not None else update


def _rows(files: Sequence[JavaObject]) -> int:
    return sum(int(file.recordCount()) for file in files)
