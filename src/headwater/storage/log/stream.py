"""The pointer log's lines, with log_partition, log_offset, log_end and value: Kafka's as a Spark stream, an embedded
log's read here.

`value` is the event as JSON, in the very bytes that were sent: any producer's, and perhaps no text at all. `log_end`
is an offset up to which everything of its partition is in this batch. Where rules ask for it, `token` is the SHA-256 of
the producer's token in a message's headers: no table is to hold a token.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.domain.groups import grouped
from headwater.domain.producers import HEADER, Rules
from headwater.settings import Settings
from headwater.storage.log.directory_log import PARTITION, DirectoryLog
from headwater.storage.log.kafka_conf import KafkaPlace, spark_options
from headwater.storage.log.pointer_log import PointerLog

_LINES: Final = pa.schema(
    [("log_partition", pa.int32()), ("log_offset", pa.int64()), ("log_end", pa.int64()), ("value", pa.binary())]
)

TOKEN: Final = "token"
# The last one that a message has: a proxy's, say, comes after what it was handed.
_TOKEN: Final = f"sha2(try_element_at(filter(headers, each -> each.key = '{HEADER}'), -1).value, 256)"


def stream_log(spark: SparkSession, settings: Settings, log: PointerLog, start: Mapping[int, int]) -> DataFrame:
    """From `start`, the offset to begin at by partition, and cut by events.

    Partitions that appear while it runs are read from their beginning.
    """
    place = KafkaPlace.parse(settings.text("log.uri"))
    # Spark wants every partition that there is; -2 is its word for the beginning.
    offsets = {str(partition): max(start.get(partition, -2), -2) for partition in log.begin()}
    with_tokens = Rules.of(settings).want_tokens
    lines = (
        spark.readStream.format("kafka")
        .options(**spark_options(place, settings))
        .option("subscribe", place.topic)
        .option("startingOffsets", json.dumps({place.topic: offsets}))
        .option("maxOffsetsPerTrigger", settings.whole("log.batch_events"))
        # What expired unread is found and written down by flow; to stop here would not bring it back.
        .option("failOnDataLoss", "false")
        .option("includeHeaders", str(with_tokens).lower())
        .load()
    )
    return lines.select(
        F.col("partition").alias("log_partition"),
        F.col("offset").alias("log_offset"),
        (F.col("offset") + 1).alias("log_end"),
        "value",
        *([F.expr(_TOKEN).alias(TOKEN)] if with_tokens else []),
    )


def read_segments(log: DirectoryLog, start: int, most_bytes: int) -> Iterator[pa.Table]:
    """What an embedded log holds now, from an offset on, in batches of whole segments."""
    for some in grouped(log.segments(start), lambda pair: len(pair[1]), most_bytes=most_bytes):
        lines = [(*segment.read_line(line), segment.end) for segment, data in some for line in segment.lines(data)]
        if lines:
            offsets, values, ends = zip(*lines, strict=True)
            columns = ([PARTITION] * len(lines), offsets, ends, values)
            yield pa.Table.from_pydict(dict(zip(_LINES.names, columns, strict=True)), _LINES)
