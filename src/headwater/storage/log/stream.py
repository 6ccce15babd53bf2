"""The pointer log's lines, with log_partition, log_offset, log_end and value: Kafka's as a Spark stream, an embedded
log's read here.

`value` is the event as JSON, in the very bytes that were sent: any producer's, and perhaps no text at all. `log_end`
is an offset up to which everything of its partition is in this batch.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.domain.groups import grouped
from headwater.settings import Settings
from headwater.storage.log.directory_log import PARTITION, DirectoryLog
from headwater.storage.log.kafka_conf import KafkaPlace, spark_options
from headwater.storage.log.pointer_log import PointerLog

_LINES: Final = pa.schema(
    [("log_partition", pa.int32()), ("log_offset", pa.int64()), ("log_end", pa.int64()), ("value", pa.binary())]
)


def stream_log(spark: SparkSession, settings: Settings, log: PointerLog, start: Mapping[int, int]) -> DataFrame:
    """From `start`, the offset to begin at by partition, and cut by events.

    Partitions that appear while it runs are read from their beginning.
    """
    place = KafkaPlace.parse(settings.text("log.uri"))
    # Spark wants every partition that there is; -2 is its word for the beginning.
    offsets = {str(partition): max(start.get(partition, -2), -2) for partition in log.begin()}
    lines = (
        spark.readStream.format("kafka")
        .options(**spark_options(place, settings))
        .option("subscribe", place.topic)
        .option("startingOffsets", json.dumps({place.topic: offsets}))
        .option("maxOffsetsPerTrigger", settings.whole("log.batch_events"))
        # What expired unread is found and written down by flow; to stop here would not bring it back.
        .option("failOnDataLoss", "false")
        .load()
    )
    return lines.select(
        F.col("partition").alias("log_partition"),
        F.col("offset").alias("log_offset"),
        (F.col("offset") + 1).alias("log_end"),
        "value",
    )


def read_segments(log: DirectoryLog, start: int, most_bytes: int) -> Iterator[pa.Table]:
    """What an embedded log holds now, from an offset on, in batches of whole segments."""
    for some in grouped(log.segments(start), lambda pair: len(pair[1]), most_bytes=most_bytes):
        lines = [(*segment.read_line(line), segment.end) for segment, data in some for line in segment.lines(data)]
        if lines:
            offsets, values, ends = zip(*lines, strict=True)
            columns = ([PARTITION] * len(lines), offsets, ends, values)
            yield pa.Table.from_pydict(dict(zip(_LINES.names, columns, strict=True)), _LINES)
