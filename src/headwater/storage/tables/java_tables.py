"""Tables as Spark's JVM has them: loaded, their errors translated, rows written to files by Spark's tasks.

Nothing is committed here. Spark writes a DataFrame's rows as if it compacted a table: the files are described to the
driver, and what becomes of them is `commit`'s affair. Files of a task or run that was killed are orphans.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import Conflict, Unavailable


def load_java(spark: SparkSession, table: str) -> JavaObject:
    jvm: Any = spark._jvm
    # A catalog is looked up in the settings of the thread's active session, whichever session is passed.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    try:
        loaded: JavaObject = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            spark._jsparkSession, f"lake.{table}"
        )
    except Py4JJavaError as error:
        raise Unavailable(
            f"{table} cannot be loaded: {first_line(error)}. Check the catalog and the warehouse, then run again."
        ) from error
    return loaded


def write_staged(java: JavaObject, table: str, rows: DataFrame, **options: str) -> list[JavaObject]:
    """Iceberg's descriptions of the files that Spark's tasks wrote of these rows; nobody sees them yet."""
    spark = rows.sparkSession
    jvm: Any = spark._jvm
    token = uuid.uuid4().hex
    # Iceberg's own way for a compaction to write without a commit.
    writer = rows.write.format("iceberg").option("rewritten-file-scan-task-set-id", token)
    writer = writer.option("check-nullability", "false").options(**options).mode("append")
    coordinator = jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
    try:
        writer.save(f"lake.{table}")
        return list(coordinator.fetchNewFiles(java, token))
    finally:
        coordinator.clearRewrite(java, token)


@contextmanager
def read_files(java: JavaObject, spark: SparkSession, table: str, tasks: Sequence[JavaObject]) -> Iterator[DataFrame]:
    """The rows of these files alone, whatever else the table has."""
    jvm: Any = spark._jvm
    token, listed = uuid.uuid4().hex, jvm.java.util.ArrayList()
    for task in tasks:
        listed.add(task)
    manager = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
    manager.stageTasks(java, token, listed)
    try:
        yield spark.read.format("iceberg").option("scan-task-set-id", token).load(f"lake.{table}")
    finally:
        manager.removeTasks(java, token)


def plan_files(java: JavaObject, wanted: Collection[str]) -> list[JavaObject]:
    """Of the data files that the table has now, those at these locations, as tasks that read them."""
    tasks = java.newScan().planFiles()
    try:
        return [task for task in each(tasks) if str(task.file().location()) in wanted]
    finally:
        tasks.close()


@contextmanager
def translated_java(table: str) -> Iterator[None]:
    """The one door through which errors of Iceberg's Java library become ours."""
    try:
        yield
    except Py4JJavaError as error:
        name = error.java_exception.getClass().getSimpleName()
        if name in {"ValidationException", "CommitFailedException"}:
            raise Conflict(f"{table} moved meanwhile: {first_line(error)}. Try again.") from error
        raise Unavailable(f"{table} cannot be written: {name}: {first_line(error)}. Try again.") from error


def each(iterable: JavaObject) -> Iterator[JavaObject]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def first_line(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).partition("\n")[0][:300].rstrip(".")
