"""Partitions: a batch that the driver holds, dealt out to Spark's tasks, and their answers brought back to it.

Arrow's bytes travel as they are, a partition a task. As columns of a DataFrame every row would be taken apart and put
together again by the JVM on both ways, and the first batch of a session would wait for the code that does so.
"""

import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import heapreplace
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.errors import HeadwaterError, InternalError, describe, sound_text
from headwater.storage.spark.errors import translate
from headwater.storage.spark.existing_session import tagged_jobs
from headwater.storage.spark.packed_environment import is_local
from headwater.storage.tables.read_table import to_arrow
from headwater.storage.tables.spread_rows import persisted

Column: TypeAlias = pa.Array | pa.ChunkedArray
Batches = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

# Each worker has a share of every size, the largest first: whoever is ready early takes one of the small ones, so that
# nobody waits long for the last. A task costs Spark some 0.03 CPU seconds.
_SHARES: Final = (4, 2, 1, 1)
_ROWS_AT_ONCE: Final = 1_000
_BUCKETS: Final = 4_096
_SIZE_MAX: Final = 1 << 40


def balanced_partitions(rows: pa.Table, content: Column, kind: Column, size: Column, workers: int) -> list[pa.Table]:
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


def partitions_in_order(rows: pa.Table, content: Column, parts: int) -> list[pa.Table]:
    """The rows in turn, those with the same content together, each part in the order of the whole.

    What several workers leave undone at the end is then the end of the whole, give or take a few.
    """
    turns: dict[str, int] = {}
    for known in content.to_pylist():
        turns.setdefault(known, len(turns) % parts)
    places = pa.array([turns[known] for known in content.to_pylist()], pa.int64())
    dealt = [rows.filter(pc.equal(places, part)).combine_chunks() for part in range(parts)]
    return [part for part in dealt if len(part)]


def repartition_balanced(
    rows: DataFrame, content: str, kind: str, kinds: Sequence[str], size: str, workers: int
) -> DataFrame:
    """The rows of a DataFrame, dealt out in the same way without being looked at: by how much there is of each content.

    Contents are told apart by a few thousand buckets, whose sizes are all that the driver learns. Partitions come in
    the order of their size, which is the order in which Spark begins them. `content`, `kind` and `size` are SQL.
    """
    spark = rows.sparkSession
    bucketed = rows.withColumn("_bucket", F.expr(f"cast(pmod(xxhash64({content}), {_BUCKETS}) as int)"))
    # What an event says of its size is somebody else's word: two of the largest must not be too much for a sum.
    weight = f"least(greatest({size}, 0), {_SIZE_MAX}) + 1"
    sums = [F.sum(F.expr(f"if({kind} = '{name}', {weight}, 0)")).alias(name) for name in kinds]
    sized = to_arrow(bucketed.groupBy("_bucket").agg(*sums))
    parts = balanced_partitions(
        sized.select(["_bucket"]), sized["_bucket"], pa.repeat("", len(sized)), _shares(sized), workers
    )
    slots = _slots(spark, len(parts))
    dealt = [(bucket, slots[number]) for number, part in enumerate(parts) for bucket in part["_bucket"].to_pylist()]
    places = spark.createDataFrame(dealt, "_bucket int, _slot long")
    placed = bucketed.join(F.broadcast(places), "_bucket").repartition(max(1, len(parts)), "_slot")
    return placed.drop("_bucket", "_slot")


def _shares(sized: pa.Table) -> pa.Array:
    """Of each bucket, what it has of every kind as a share of that kind: a byte of a call takes another time than one
    of a chat."""
    total = pa.array([0.0] * len(sized))
    for name in sized.column_names[1:]:
        column = pc.cast(pc.fill_null(sized[name], 0), pa.float64()).combine_chunks()
        total = pc.add(total, pc.divide(column, max(1.0, pc.sum(column).as_py() or 0.0)))
    return pc.cast(pc.multiply(total, 1e9), pa.int64(), safe=False)


def _slots(spark: SparkSession, count: int) -> list[int]:
    """For each partition a key that Spark's own hash sends there."""
    if count <= 1:
        return [0]
    hashed = spark.range(count * 32).selectExpr("id", f"pmod(hash(id), {count}) as part")
    numbers = to_arrow(hashed).to_pylist()
    found = {row["part"]: row["id"] for row in reversed(numbers)}
    return [found.get(part, part) for part in range(count)]


def warm_up_workers(spark: SparkSession, ready: Callable[[], None]) -> None:
    """Have Spark start its Python meanwhile: that takes seconds, and bronze, which comes first, does without.

    `ready` is called in each worker. One slot stays free for the log's stream.
    """
    context = spark.sparkContext
    tasks = max(1, context.defaultParallelism - 1)

    def wake() -> None:
        with (
            suppress(Exception),
            tagged_jobs(spark),
        ):  # what is wrong here will be wrong again where somebody waits for the answer
            context.parallelize(range(tasks), tasks).foreach(lambda _: ready())

    threading.Thread(target=wake, name="wake workers", daemon=True).start()


def picklable_errors(work: Batches) -> Batches:
    """The same work; what it raises can be told by a worker. Spark waits for ever for one that cannot say what it has:
    half a character in an exception's text is enough, also in that of one that only caused it."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from work(batches)
        except Exception as error:
            print(sound_text(traceback.format_exc()), file=sys.stderr)
            ours = error if isinstance(error, HeadwaterError) else InternalError(describe(error))
            raise ours from None

    return run


def map_partitions(spark: SparkSession, parts: Sequence[pa.Table], work: Batches, schema: pa.Schema) -> pa.Table:
    """Every part through `work` in a worker; their rows, together."""
    if not parts:
        return schema.empty_table()
    packed = [_pack(part.schema, part.to_batches(_ROWS_AT_ONCE)) for part in parts]
    given = spark.sparkContext.parallelize(packed, len(packed))
    try:
        with tagged_jobs(spark):
            answers = given.map(lambda part: _pack(schema, picklable_errors(work)(_unpack(part)))).collect()
    except Py4JJavaError as error:
        raise translate(error) from error
    return pa.concat_tables([pa.Table.from_batches(_unpack(answer), schema) for answer in answers])


@contextmanager
def persisted_on_disk(made: DataFrame) -> Iterator[DataFrame]:
    """What models answered, on the disks of the machines that asked them: it is read once for every table.

    In two copies where there are several machines; where both are lost, models are asked again, through their memo.
    """
    local = is_local(str(made.sparkSession.sparkContext.master))
    try:
        with persisted(made, StorageLevel.DISK_ONLY if local else StorageLevel.DISK_ONLY_2) as held:
            held.count()  # now, by all workers at once: a look at the first rows would ask for one part after the other
            yield held
    except (Py4JJavaError, PySparkException) as error:
        raise translate(error) from error


def _pack(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def _unpack(packed: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(packed) as stream:
        yield from stream
