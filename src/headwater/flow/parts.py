"""Parts: a batch that the driver holds, dealt out to Spark's workers, and their answers brought back to it.

Arrow's bytes travel as they are, a part a task. As columns of a DataFrame every row would be taken apart and put
together again by the JVM on both ways, and the first batch of a session would wait for the code that does so.
"""

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heapreplace
from typing import Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headwater.errors import Unavailable

Column: TypeAlias = pa.Array | pa.ChunkedArray
Batches = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

# Each worker has a share of every size, the largest first: whoever is ready early takes one of the small ones, so that
# nobody waits long for the last. A task costs Spark some 0.03 CPU seconds.
_SHARES: Final = (4, 2, 1, 1)
_ROWS_AT_ONCE: Final = 1_000


def deal(rows: pa.Table, content: Column, kind: Column, size: Column, workers: int) -> list[pa.Table]:
    """The rows as parts; those with the same content stay together.

    Of every kind the largest go first, to where there is most room. Kinds are dealt out one by one, since a byte of a
    call takes another time than a byte of a chat.
    """
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, known in enumerate(content.to_pylist()):
        numbers[known].append(number)
    kinds, sizes = kind.to_pylist(), size.to_pylist()
    sized: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for known, (first, *_) in numbers.items():
        sized[kinds[first]].append((sizes[first] + 1, known))
    shares = [share for share in _SHARES for _ in range(workers)]
    parts: list[list[int]] = [[] for _ in shares]
    for one_kind in sized.values():
        # By share, who has how much: among equals it is always the one with least that comes next.
        taken = {share: [(0, part) for part, own in enumerate(shares) if own == share] for share in _SHARES}
        for weight, known in sorted(one_kind, reverse=True):
            share = min(taken, key=lambda share: (taken[share][0][0] + weight) / share)
            before, part = taken[share][0]
            heapreplace(taken[share], (before + weight, part))
            parts[part] += numbers[known]
    whole = rows.combine_chunks()  # else every part would put all pieces together again
    return [whole.take(pa.array(part, pa.int64())) for part in parts if part]


def wake_workers(spark: SparkSession, ready: Callable[[], None]) -> None:
    """Have Spark start its Python meanwhile: that takes seconds, and bronze, which comes first, does without.

    `ready` is called in each worker. One slot stays free for the log's stream.
    """
    context = spark.sparkContext
    tasks = max(1, context.defaultParallelism - 1)

    def wake() -> None:
        with suppress(Exception):  # what is wrong here will be wrong again where somebody waits for the answer
            context.parallelize(range(tasks), tasks).foreach(lambda _: ready())

    threading.Thread(target=wake, name="wake workers", daemon=True).start()


def run_parts(spark: SparkSession, parts: Sequence[pa.Table], work: Batches, schema: pa.Schema) -> pa.Table:
    """Every part through `work` in a worker; their rows, together."""
    if not parts:
        return schema.empty_table()
    packed = [_pack(part.schema, part.to_batches(_ROWS_AT_ONCE)) for part in parts]
    given = spark.sparkContext.parallelize(packed, len(packed))
    try:
        answers = given.map(lambda part: _pack(schema, work(_unpack(part)))).collect()
    except Py4JJavaError as error:
        if told := re.search(r"headwater\.errors\.Unavailable: (.*)", str(error.java_exception)):
            raise Unavailable(told.group(1)) from error
        raise
    return pa.concat_tables([pa.Table.from_batches(_unpack(answer), schema) for answer in answers])


def _pack(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def _unpack(packed: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(packed) as stream:
        yield from stream
