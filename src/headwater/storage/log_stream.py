"""The pointer log as a Spark stream: lines with log_partition, log_offset, log_end and value.

`value` is the event as JSON. `log_end` is an offset up to which everything of its partition is in this batch.
"""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.settings import Settings
from headwater.storage.pointer_log import PointerLog


def stream_log(spark: SparkSession, settings: Settings) -> DataFrame:
    """Cut by bytes: Spark opens as many segments for a micro-batch as the setting allows."""
    lines = (
        spark.readStream.format("text")
        .option("maxBytesPerTrigger", settings.whole("log.batch_bytes"))
        .option("pathGlobFilter", "*.jsonl")
        .load(Path(settings.text("log.uri")).as_uri())
    )
    name = F.col("_metadata.file_name")
    end = F.regexp_extract(name, r"^(\d+)-(\d+)", 1).cast("long") + F.regexp_extract(name, r"^(\d+)-(\d+)", 2).cast(
        "long"
    )
    return lines.select(
        F.lit(0).alias("log_partition"),
        F.get_json_object("value", "$.offset").cast("long").alias("log_offset"),
        end.alias("log_end"),
        F.coalesce(F.get_json_object("value", "$.event"), F.get_json_object("value", "$.raw"), "value").alias("value"),
    )


def read_log(spark: SparkSession, log: PointerLog, positions: Sequence[tuple[int, int]]) -> DataFrame:
    """Lines at certain positions, read past Spark's stream; few, because the driver carries them."""
    found = [line for partition, offset in positions for line in log.read(partition, offset, 1)]
    rows = [(line.partition, line.offset, line.offset + 1, line.value) for line in found]
    return spark.createDataFrame(rows, "log_partition int, log_offset long, log_end long, value string")
