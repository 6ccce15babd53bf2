"""Parts: a batch that the driver holds, dealt out to Spark's workers, and their answers brought back to it.

Arrow's bytes travel as they are, a part a task. As columns of a DataFrame every row would be taken apart and put
together again by the JVM on both ways, and the first batch of a session would wait for the code that does so.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

Batches = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

# Each worker has a share of every size, the largest first: whoever is ready early takes one of the small ones, so that
# nobody waits long for the last. A task costs Spark some 0.03 CPU seconds.
_SHARES: Final = (4, 2, 1, 1)
_ROWS_AT_ONCE: Final = 1_000


def deal(rows: pa.Table, content: pa.Array, kind: pa.Array, size: pa.Array, workers: int) -> list[pa.Table]:
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
        taken = [0] * len(shares)
        for weight, known in sorted(one_kind, reverse=True):
            chosen = min(range(len(shares)), key=lambda part: (taken[part] + weight) / shares[part])
            taken[chosen] += weight
            parts[chosen] += numbers[known]
    return [rows.take(pa.array(part, pa.int64())) for part in parts if part]


def wake_workers(spark: SparkSession) -> threading.Thread:
    """Have Spark start its Python meanwhile: that takes seconds, and bronze, which comes first, does without.

    One slot stays free for the log's stream.
    """
    context = spark.sparkContext
    tasks = max(1, context.defaultParallelism - 1)

    def wake() -> None:
        with suppress(Exception):  # what is wrong here will be wrong again where somebody waits for the answer
            context.parallelize(range(tasks), tasks).foreach(_nothing)

    thread = threading.Thread(target=wake, name="wake workers", daemon=True)
    thread.start()
    return thread


def _nothing(_: int) -> None:
    pass


def run_parts(spark: SparkSession, parts: Sequence[pa.Table], work: Batches, schema: pa.Schema) -> pa.Table:
    """Every part through `work` in a worker; their rows, together."""
    if not parts:
        return schema.empty_table()
    given = spark.sparkContext.parallelize([_pack(part.schema, part.to_batches(_ROWS_AT_ONCE)) for part in parts],
                                           len(parts))  # fmt: skip
    answers = given.map(lambda part: _pack(schema, work(_unpack(part)))).collect()
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
