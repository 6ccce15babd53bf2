"""A Spark session on an Iceberg catalog, for the PySpark arms: two cores, the jar that Headwater fetched, no tricks at
start."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from peers import job

FACTS = StructType(
    [StructField("text", StringType()), *(StructField(name, LongType()) for name in job.FIELDS[1:])],
)
ROW = "id string, text string, duration_ms bigint, width bigint, height bigint"


def session(state: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    built = SparkSession.builder.master("local[2]").appName("peers")
    for name, value in _conf(state).items():
        built = built.config(name, value)
    return built.getOrCreate()


def _conf(state: Path) -> dict[str, str]:
    return {
        "spark.jars": os.environ["PEERS_ICEBERG_JAR"],
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"file://{state.absolute()}",
    }


def rows(state: Path) -> list[job.Row]:
    spark = session(state)
    found: list[job.Row] = []
    for kind in ("calls", "pictures", "chat"):
        found += [tuple(row) for row in spark.table(f"lake.peers.{kind}").select(*job.COLUMNS).collect()]
    spark.stop()
    return found
