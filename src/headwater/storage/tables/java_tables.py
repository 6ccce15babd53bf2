"""Tables as Spark's JVM has them: loaded, and rows written to files by Spark's tasks.

Nothing is committed here. Spark writes a DataFrame's rows as if it compacted a table: the files are described to the
driver, and what becomes of them is `commit`'s affair. Files of a task or run that was killed are orphans.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from headwater.storage.tables.metadata_location import CATALOG
from headwater.storage.tables.spark_errors import translated_java


def load_java(spark: SparkSession, table: str) -> JavaObject:
    """As Iceberg's own library has it. NotFound where there is none, Unavailable where the catalog does not answer."""
    jvm: Any = spark._jvm
    with translated_java(table):
        # A catalog is looked up in the settings of the thread's active session, whichever session is passed.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
        # Spark3Util.loadIcebergTable would take a catalog that is down for one that is not there.
        catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, CATALOG)
        loaded: JavaObject = catalog.loadTable(jvm.org.apache.iceberg.catalog.TableIdentifier.parse(table))
    return loaded


def name_in_spark(table: str) -> str:
    return f"{CATALOG}.{table}"


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
        writer.save(name_in_spark(table))
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
        yield spark.read.format("iceberg").option("scan-task-set-id", token).load(name_in_spark(table))
    finally:
        manager.removeTasks(java, token)


def plan_files(java: JavaObject, wanted: Collection[str]) -> list[JavaObject]:
    """Of the data files that the table has now, those at these locations, as tasks that read them."""
    tasks = java.newScan().planFiles()
    try:
        return [task for task in each(tasks) if str(task.file().location()) in wanted]
    finally:
        tasks.close()


def each(iterable: JavaObject) -> Iterator[JavaObject]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()
