"""The pointer log as a Spark stream, or read at once: lines with log_partition, log_offset, log_end and value.

`value` is the event as JSON. `log_end` is an offset up to which everything of its partition is in this batch.
"""

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.domain.groups import grouped
from headwater.settings import Settings
from headwater.storage.directory_log import PARTITION, DirectoryLog, read_line
from headwater.storage.kafka_conf import KafkaPlace, is_kafka, spark_options
from headwater.storage.pointer_log import PointerLog

_LINES: Final = pa.schema(
    [("log_partition", pa.int32()), ("log_offset", pa.int64()), ("log_end", pa.int64()), ("value", pa.string())]
)


def stream_log(
    spark: SparkSession, settings: Settings, log: PointerLog, start: Mapping[int, int] | None = None
) -> DataFrame:
    """`start` is the offset to begin at, by partition, where no checkpoint says otherwise; the log's beginning else."""
    uri = settings.text("log.uri")
    if is_kafka(uri):
        return _stream_kafka(spark, settings, log, start or {})
    return _stream_directory(spark, settings, uri)


def checkpoint(settings: Settings) -> str:
    """Where Spark notes what it has read of the log.

    For Kafka the note is thrown away at every start: the table's own property says where to begin, and a note that
    is older or newer than the table (a restored catalog, a topic made anew) would only contradict it.
    """
    place = f"{settings.text('checkpoints.uri')}/bronze"
    if is_kafka(settings.text("log.uri")):
        if "://" in place.removeprefix("file://"):
            return f"{place}/{uuid.uuid4().hex}"
        shutil.rmtree(place.removeprefix("file://"), ignore_errors=True)
    return place


def _stream_kafka(spark: SparkSession, settings: Settings, log: PointerLog, start: Mapping[int, int]) -> DataFrame:
    """Cut by events. Partitions that appear while it runs are read from their beginning."""
    place = KafkaPlace.parse(settings.text("log.uri"))
    # Spark wants every partition that there is; -2 is its word for the beginning.
    offsets = {str(partition): max(start.get(partition, -2), -2) for partition in log.begin()}
    lines = (
        spark.readStream.format("kafka")
        .options(**spark_options(place, settings))
        .option("subscribe", place.topic)
        .option("startingOffsets", json.dumps({place.topic: offsets}))
        .option("maxOffsetsPerTrigger", settings.whole("log.batch_events"))
        # What expired unread is found and written down by `flow.continuity`; to stop here would not bring it back.
        .option("failOnDataLoss", "false")
        .load()
    )
    return lines.select(
        F.col("partition").alias("log_partition"),
        F.col("offset").alias("log_offset"),
        (F.col("offset") + 1).alias("log_end"),
        # Other people's producers send any bytes; what is not UTF-8 would be unreadable in every table it got to.
        F.make_valid_utf8(F.col("value").cast("string")).alias("value"),
    )


def _stream_directory(spark: SparkSession, settings: Settings, uri: str) -> DataFrame:
    """Cut by bytes: Spark opens as many segments for a micro-batch as the setting allows."""
    lines = (
        spark.readStream.format("text")
        .option("maxBytesPerTrigger", settings.whole("log.batch_bytes"))
        .option("pathGlobFilter", "*.jsonl")
        .load(Path(uri.removeprefix("file://")).as_uri())
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


def read_segments(log: DirectoryLog, start: Mapping[int, int], most_bytes: int) -> Iterator[pa.Table]:
    """What an embedded log holds now, as batches of the same columns, read here: for who does not wait for more.

    Spark needs two seconds to begin a stream, and its file source would only read the same files.
    """
    found = log.segments(start.get(PARTITION, 0))
    for some in grouped(found, lambda pair: len(pair[1]), most_bytes=most_bytes):
        lines = [(*read_line(line), segment.end) for segment, data in some for line in data.split(b"\n")[:-1]]
        if lines:
            offsets, values, ends = zip(*lines, strict=True)
            columns = ([PARTITION] * len(lines), offsets, ends, values)
            yield pa.Table.from_pydict(dict(zip(_LINES.names, columns, strict=True)), _LINES)


def read_log(spark: SparkSession, log: PointerLog, positions: Sequence[tuple[int, int]]) -> DataFrame:
    """Lines at certain positions, read past Spark's stream; few, because the driver carries them."""
    found = [line for partition, offset in positions for line in log.read(partition, offset, 1)]
    rows = [(line.partition, line.offset, line.offset + 1, line.value) for line in found]
    return spark.createDataFrame(rows, "log_partition int, log_offset long, log_end long, value string")
