"""PySpark as first written: a row function over `binaryFile`, into Iceberg. It does not know what is done already, so
every update makes everything anew."""

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from peers import iceberg, job

rows = iceberg.rows


@udf(returnType=iceberg.FACTS)
def facts(path: str, data: Any) -> Any:
    return job.facts(path.rsplit("/", 1)[-1], bytes(data))


@udf(returnType=StringType())
def message(line: str) -> str:
    return str(job.message(line)["text"])


def update(inbox: Path, state: Path) -> None:
    spark = iceberg.session(state)
    for kind in ("calls", "pictures"):
        files = spark.read.format("binaryFile").load(f"file://{inbox.absolute()}/{kind}/*")
        made = files.select(F.element_at(F.split("path", "/"), -1).alias("id"), facts("path", "content").alias("facts"))
        made.select("id", "facts.*").writeTo(f"lake.peers.{kind}").using("iceberg").createOrReplace()
    lines = spark.read.text(f"file://{inbox.absolute()}/chat")
    number = F.split("value", " ").getItem(0)
    empty = (F.lit(None).cast("bigint").alias(name) for name in job.FIELDS[1:])
    made = lines.select(F.concat(F.lit("chat-"), number).alias("id"), message("value").alias("text"), *empty)
    made.writeTo("lake.peers.chat").using("iceberg").createOrReplace()
    spark.stop()
