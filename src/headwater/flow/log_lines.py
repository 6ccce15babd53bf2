"""Lines of the log as rows: read here, a batch at a time, in the driver or in Spark's tasks by the same code.

Whether a line is an event is `domain.line`'s to say, and whether its producer may write for its customer the rules' of
`domain.producers`. Of a line that is too long to travel, the driver has the place only, until it is read in a task.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.domain.line import Line, read_line, unsound_line
from headwater.domain.pointer import POINTER_TYPE
from headwater.domain.producers import Rules
from headwater.domain.quarantine import FORBIDDEN
from headwater.domain.tables import TIMESTAMP
from headwater.storage.log.stream import TOKEN
from headwater.storage.tables.read_table import to_arrow

PLACE: Final = ("log_partition", "log_offset", "log_end")
SEEN: Final = pa.schema(
    [
        pa.field("sound", pa.bool_()),
        pa.field("small", pa.bool_()),
        pa.field("log_partition", pa.int32()),
        pa.field("log_offset", pa.int64()),
        pa.field("log_end", pa.int64()),
        pa.field("event_id", pa.string()),
        pa.field("modality", pa.string()),
        pa.field("customer", pa.string()),
        pa.field("object_id", pa.string()),
        pa.field("occurred_at", TIMESTAMP),
        pa.field("pointer", POINTER_TYPE),
        pa.field("text", pa.string()),
        pa.field("meta", pa.string()),
        pa.field("thread", pa.string()),
        pa.field("extra", pa.string()),
        pa.field("corrects", pa.string()),
        pa.field("content_hash", pa.string()),
        pa.field("payload", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
SMALL_BYTES: Final = 8 << 10  # 5,000 lines of that size are 40 MB in the driver's memory


def to_driver(lines: DataFrame | pa.Table) -> pa.Table:
    """The batch in the driver; of a line that is too long to travel, only its place."""
    if isinstance(lines, pa.Table):
        return lines
    small = F.coalesce(F.octet_length("value") <= SMALL_BYTES, F.lit(True))
    value = F.when(small, F.col("value")).alias("value")
    return to_arrow(lines.select(*PLACE, *_token_of(lines), small.alias("small"), value))


def _token_of(lines: DataFrame) -> list[str]:
    """Who streams them looks for tokens where a rule does."""
    return [TOKEN] if TOKEN in lines.columns else []


def parse_lines(lines: DataFrame, rules: Rules) -> DataFrame:
    """The same reading, in Spark's tasks."""
    given = lines.select(*PLACE, *_token_of(lines), "value")
    return given.mapInArrow(partial(_read_batches, rules), from_arrow_schema(SEEN))


def _read_batches(rules: Rules, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (read_batch(batch, rules) for batch in batches)


def read_batch(batch: pa.RecordBatch, rules: Rules) -> pa.RecordBatch:
    """Every line as a row of bronze.events, as far as it is one. `payload` is what an unsound line said."""
    places = [batch.column(name) for name in PLACE]
    values = batch.column("value").to_pylist()
    numbered = batch.column("log_offset").is_valid().to_pylist()
    read = [read_line(value) if known else unsound_line(value) for value, known in zip(values, numbered, strict=True)]
    if rules:
        tokens = batch.column(TOKEN).to_pylist() if TOKEN in batch.schema.names else [None] * len(read)
        read = [rules.judged(line, *sent) for line, *sent in zip(read, values, tokens, strict=True)]
    columns = dict(zip(Line._fields, zip(*read, strict=True) if read else [()] * len(Line._fields), strict=True))
    sound = pa.array(columns["sound"], pa.bool_())
    whole = pc.is_in(pa.array(columns["reason"], pa.string()), pa.array([None, FORBIDDEN], pa.string()))
    pointer = [pa.array(columns[field.name], field.type) for field in POINTER_TYPE]
    made = {
        "sound": sound,
        "small": pc.or_kleene(pc.less_equal(pc.binary_length(batch["value"]), SMALL_BYTES), pc.invert(whole)),
        "object_id": pa.array(columns["path"], pa.string()),
        "pointer": pa.StructArray.from_arrays(pointer, fields=list(POINTER_TYPE), mask=pc.invert(sound)),
        **dict(zip(PLACE, places, strict=True)),
    }
    arrays = [made[field.name] if field.name in made else pa.array(columns[field.name], field.type) for field in SEEN]
    return pa.RecordBatch.from_arrays(arrays, schema=SEEN)
