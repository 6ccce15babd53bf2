"""Publish: rows and progress in one Iceberg commit, at most once, however often a stage is killed.

Spark stages the files under a `wap.id`, invisible to readers; rows that the driver holds, it writes itself. One Java
transaction then adds the files to the table and sets the properties that say what was consumed. The properties are the
truth: Spark's checkpoints and the marks on snapshots are hints, because both can be lost (a deleted checkpoint, an
expired snapshot) while the rows stay.

A second writer of the same table is refused, since the commit is validated against the snapshot it started from;
a compaction in between adds no rows and passes.
"""

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from headwater import faults
from headwater.domain.progress import Positions, Progress
from headwater.domain.tables import Table
from headwater.errors import Conflict, Unavailable
from headwater.storage.data_files import write_files

# The stream's thread and the stages' thread may both publish quarantine rows.
_LOCKS: Final[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)

# What Iceberg calls the snapshot that a published one was staged as; with it, expiring the staged snapshot by any
# tool knows that its files live on.
_STAGED_AS: Final = "source-snapshot-id"


def progress_of(spark: SparkSession, table: Table) -> Progress:
    return Progress.from_properties(dict(_load(spark, table).properties()))


def publish(
    spark: SparkSession,
    table: Table,
    rows: DataFrame | pa.Table | None,
    consumed: Positions,
    *,
    stage: str,
    duplicates: int = 0,
) -> int:
    """Append `rows` (without `seq`) and note `consumed`, in one commit; how many. Raises Conflict if fenced."""
    if isinstance(rows, pa.Table) and not len(rows):
        rows = None
    if rows is None and not consumed and not duplicates:
        return 0
    with _LOCKS[table.name]:
        java = _load(spark, table)
        before = Progress.from_properties(dict(java.properties()))
        if rows is None:
            after = before.advanced(consumed, rows=0, duplicates=duplicates)
            if after != before:
                _move(spark, java, table, before, after)
            return 0
        start = java.currentSnapshot()
        written = _write(spark, java, table, rows, before.next_seq, stage)
        faults.point(f"{stage}.staged")
        after = before.advanced(consumed, rows=written.rows, duplicates=duplicates)
        java.refresh()
        if written.files:
            _commit_rows(spark, java, table, start, written, after)
        else:
            _move(spark, java, table, before, after)
        faults.point(f"{stage}.published")
        return written.rows


def remove(spark: SparkSession, table: Table, numbers: Sequence[int]) -> None:
    """Delete rows by their `seq`; who publishes to the table meanwhile waits, since a delete writes files anew."""
    with _LOCKS[table.name]:
        spark.sql(f"DELETE FROM lake.{table.name} WHERE seq IN ({', '.join(map(str, numbers))})")


def not_yet_in(spark: SparkSession, table: Table, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Those of `rows` whose key is new, each once; looked for only among the table's rows of their objects."""
    if not len(rows):
        return rows
    objects = spark.createDataFrame(pa.table({"object_id": pc.unique(rows["object_id"])}))
    held = spark.table(f"lake.{table.name}").join(F.broadcast(objects), "object_id", "left_semi").select(*key).toArrow()
    there, new = set(_keys(held, key)), []
    for one in _keys(rows, key):
        new.append(one not in there)
        there.add(one)
    return rows.filter(pa.array(new, pa.bool_()))


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in key), strict=True)


@dataclass(frozen=True, slots=True)
class _Written:
    """Files that are not in the table yet; `staged` is the snapshot that Spark staged them as."""

    files: list[JavaObject]
    rows: int
    staged: int | None = None


def _write(
    spark: SparkSession, java: JavaObject, table: Table, rows: DataFrame | pa.Table, next_seq: int, stage: str
) -> _Written:
    if isinstance(rows, pa.Table):
        # In one piece: picking rows from fifty takes three times as long.
        in_order = rows.combine_chunks().sort_by([(name, "ascending") for name in table.order])
        seq = pa.array(np.arange(next_seq, next_seq + len(rows)))
        numbered = in_order.append_column("seq", seq).select(table.schema.names)
        return _Written(write_files(spark._jvm, java, table, numbered), len(rows))
    staged = _stage(spark, table, rows, next_seq, stage)
    if staged is None:
        return _Written([], 0)
    count = int(staged.summary().get("added-records") or 0)
    return _Written(list(_each(staged.addedDataFiles(java.io()))), count, staged.snapshotId())


def _stage(spark: SparkSession, table: Table, rows: DataFrame, next_seq: int, stage: str) -> JavaObject | None:
    token = f"{stage}-{uuid.uuid4().hex}"
    order = [F.col(name) for name in table.order if name in rows.columns]
    numbered = rows.withColumn("seq", F.row_number().over(Window.orderBy(*order)).cast("long") + F.lit(next_seq - 1))
    spark.conf.set("spark.wap.id", token)
    try:
        columns = [F.col(name) for name in table.schema.names]
        numbered.select(*columns).writeTo(f"lake.{table.name}").option("check-nullability", "false").append()
    finally:
        spark.conf.unset("spark.wap.id")
    # From the newest back: it was staged a moment ago, and a table may keep thousands.
    snapshots = _load(spark, table).snapshots()
    for position in reversed(range(len(snapshots))):
        if snapshots[position].summary().get("wap.id") == token:
            return snapshots[position]
    return None


def _commit_rows(
    spark: SparkSession, java: JavaObject, table: Table, start: JavaObject, written: _Written, after: Progress
) -> None:
    jvm: Any = spark._jvm
    transaction = java.newTransaction()
    overwrite = transaction.newOverwrite()
    for file in written.files:
        overwrite.addFile(file)
    if start is not None:
        overwrite.validateFromSnapshot(start.snapshotId())
    overwrite.conflictDetectionFilter(jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue())
    overwrite.validateNoConflictingData()
    if written.staged is not None:
        overwrite.set(_STAGED_AS, str(written.staged))
    try:
        overwrite.commit()
        _set_properties(transaction, after)
        transaction.commitTransaction()
    except Py4JJavaError as error:
        _resolve(java, table, after, error)


def _move(spark: SparkSession, java: JavaObject, table: Table, before: Progress, after: Progress) -> None:
    """Progress alone, on top of the very metadata that was read: there is no snapshot to validate against."""
    jvm: Any = spark._jvm
    operations = java.operations()
    for more_tries in (2, 1, 0):
        base = operations.refresh()
        if Progress.from_properties(dict(base.properties())) != before:
            raise _overtaken(table)
        properties = jvm.java.util.HashMap(base.properties())
        for name, value in after.to_properties().items():
            properties.put(name, value)
        try:
            operations.commit(base, base.replaceProperties(properties))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "CommitFailedException" and more_tries:
                continue  # maintenance came between
            _resolve(java, table, after, error)
        return


def _each(iterable: JavaObject) -> Iterator[JavaObject]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _set_properties(transaction: JavaObject, after: Progress) -> None:
    update = transaction.updateProperties()
    for name, value in after.to_properties().items():
        update.set(name, value)
    update.commit()


def _overtaken(table: Table) -> Conflict:
    return Conflict(
        f"{table.name} moved while rows were being published: another writer is at work on this lake. "
        "Stop it, then run again; nothing was written."
    )


def _resolve(java: JavaObject, table: Table, after: Progress, error: Py4JJavaError) -> None:
    """A commit has three outcomes; an unknown one is settled by reading the table, never by deleting files."""
    name = error.java_exception.getClass().getSimpleName()
    if name in {"ValidationException", "CommitFailedException"}:
        raise _overtaken(table) from error
    if name != "CommitStateUnknownException":
        raise error
    try:
        java.refresh()
        landed = Progress.from_properties(dict(java.properties())) == after
    except Py4JJavaError as unreadable:
        raise Unavailable(
            f"It is unknown whether the commit to {table.name} landed: the catalog does not answer. "
            "The next run finds out by reading the table; no file was deleted."
        ) from unreadable
    if not landed:
        raise Unavailable(f"The commit to {table.name} did not land. Run again.") from error


def _load(spark: SparkSession, table: Table) -> JavaObject:
    jvm: Any = spark._jvm
    # A catalog is looked up in the settings of the thread's active session, whichever session is passed.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    try:
        loaded: JavaObject = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            spark._jsparkSession, f"lake.{table.name}"
        )
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage()).partition("\n")[0][:300]
        raise Unavailable(
            f"{table.name} cannot be loaded: {said}. Check the catalog and the warehouse, then run again."
        ) from error
    return loaded
