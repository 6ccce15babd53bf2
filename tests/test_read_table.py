"""Spark reads and rewrites tables through one door: what is wrong with a table is an error of ours, with the next move,
when a DataFrame is made and when it is carried out."""

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from lakes import parts_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sample_rows import rows
from waiting import let_pass, wait_until

from headwater import lake as lakes
from headwater.domain.ref import Ref
from headwater.domain.tables import EVENTS, MESSAGES
from headwater.errors import (
    AccessRefused,
    Conflict,
    HeadwaterError,
    InternalError,
    NotFound,
    OutcomeUnknown,
    SnapshotExpired,
    Unavailable,
)
from headwater.lake import Lake
from headwater.settings import Settings
from headwater.storage.io.local_path import local_path
from headwater.storage.spark.errors import translate
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import Keep
from headwater.storage.tables.java_tables import load_java
from headwater.storage.tables.metadata import current_snapshot_id
from headwater.storage.tables.read_table import collect, count_rows, is_empty, iterate, read_table, to_arrow
from headwater.storage.tables.refs import create_ref
from headwater.storage.tables.rewrite_files import remove_rows, rewrite_files
from headwater.storage.tables.spark_errors import java_error
from headwater.storage.tables.writer import TableWriter

LINES = 3


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        for number in range(LINES):
            add(made, number)
        yield made


def add(lake: Lake, number: int) -> None:
    row = {"object_id": f"o{number}", "event_id": f"e{number}", "customer": "acme", "text": f"line {number}"}
    given = rows(MESSAGES, [row]).select(MESSAGES.columns)
    TableWriter(lake.spark, lake.settings).publish(MESSAGES, given, {EVENTS.name: number + 1}, stage="derive")


def snapshots(lake: Lake) -> list[int]:
    return [one["snapshot-id"] for one in Committer(lake.settings).tables.base(MESSAGES.name).metadata["snapshots"]]


def expire_all_but_the_newest(lake: Lake) -> None:
    Committer(lake.settings).expire(MESSAGES.name, Keep(hours=0, newest=1, age=True))


def texts(read: DataFrame) -> list[str]:
    return sorted(to_arrow(read)["text"].to_pylist())


def test_a_table_is_read_as_it_is_now_or_as_it_was_at_a_snapshot_a_tag_a_branch_or_a_time(lake: Lake) -> None:
    first, second, _ = snapshots(lake)
    committer = Committer(lake.settings)
    create_ref(committer, MESSAGES.name, "begin", snapshot_id=first)
    create_ref(committer, MESSAGES.name, "side", "branch", snapshot_id=second)
    made_ms = committer.tables.base(MESSAGES.name).metadata["snapshots"][1]["timestamp-ms"]
    then = datetime.fromtimestamp(made_ms / 1000, UTC)
    for ref, expected in (
        (None, 3),
        (Ref(name="main"), 3),
        (Ref(snapshot_id=first), 1),
        (Ref(name="begin"), 1),
        (Ref(name="side"), 2),
        (Ref.of(then), 2),
        (Ref.of("2999-01-01"), 3),
    ):
        assert count_rows(read_table(lake.spark, MESSAGES, ref)) == expected, ref
    assert texts(read_table(lake.spark, MESSAGES, Ref(name="begin"))) == ["line 0"]
    newest = read_table(lake.spark, MESSAGES).orderBy("seq")
    assert [row["text"] for row in collect(newest)] == [row["text"] for row in iterate(newest)]
    assert is_empty(newest.where("seq > 9")) and not is_empty(newest)


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        (Ref(snapshot_id=5), r"silver.messages has no snapshot 5: it has expired, or never was. The oldest"),
        (Ref(name="x"), r"silver.messages has no tag or branch x. It has: main"),
        (Ref.of("2001-01-01"), r"At 2001-01-01T00:00:00Z silver.messages had no snapshot yet. The oldest"),
    ],
)
def test_what_no_ref_of_the_table_names_is_not_found(lake: Lake, ref: Ref, told: str) -> None:
    with pytest.raises(NotFound, match=told):
        read_table(lake.spark, MESSAGES, ref)


def test_a_snapshot_that_expired_is_not_found_nor_is_it_by_who_had_planned_on_it(lake: Lake) -> None:
    ref = Ref(snapshot_id=snapshots(lake)[0])
    planned = read_table(lake.spark, MESSAGES, ref)
    expire_all_but_the_newest(lake)
    with pytest.raises(NotFound, match=f"has no snapshot {ref}: it has expired, or never was. The oldest that"):
        read_table(lake.spark, MESSAGES, ref)
    with pytest.raises(NotFound, match=f"has no snapshot {ref}: it has expired, or never was. Read the table as it is"):
        count_rows(planned)


def test_files_that_are_gone_when_rows_are_read_are_an_expired_snapshot(lake: Lake) -> None:
    planned = read_table(lake.spark, MESSAGES)
    (file, *_) = (Path(local_path(row["_file"])) for row in collect(planned.select("_file")))
    file.unlink()
    for carry_out in (to_arrow, collect, lambda read: list(iterate(read))):
        with pytest.raises(SnapshotExpired, match=rf"{file.name} is gone.*Run again") as expired:
            carry_out(planned)
        assert expired.value.file.endswith(file.name)


def test_a_deletion_whose_files_are_gone_plans_again_and_says_so_where_they_are_missing(lake: Lake) -> None:
    file = local_path(collect(read_table(lake.spark, MESSAGES).select("_file"))[0]["_file"])
    Path(file).unlink()
    with pytest.raises(NotFound, match=r"is missing, and the table still names it.*Bring it back"):
        remove_rows(TableWriter(lake.spark, lake.settings), MESSAGES, F.col("text").startswith("line"))


def test_a_table_that_was_dropped_is_not_found_nor_is_it_by_who_had_planned_on_it(lake: Lake) -> None:
    planned = read_table(lake.spark, MESSAGES)
    parts_of(lake).catalog.drop_table(MESSAGES.name)
    with pytest.raises(NotFound, match=r"silver.messages is not in the lake's catalog.*headwater restore"):
        read_table(lake.spark, MESSAGES)
    with pytest.raises(NotFound, match=r"silver.messages is not in the lake's catalog"):
        read_table(lake.spark, MESSAGES, Ref(name="main"))
    with pytest.raises(NotFound, match=r"is not in the lake's catalog"):
        count_rows(planned)


def test_a_rewrite_of_files_that_somebody_else_rewrote_is_a_conflict_and_changes_nothing(lake: Lake) -> None:
    writer = TableWriter(lake.spark, lake.settings)
    locations = {row["_file"] for row in collect(read_table(lake.spark, MESSAGES).select("_file"))}

    def another_comes_first(held: DataFrame) -> DataFrame:
        remove_rows(TableWriter(lake.spark, lake.settings), MESSAGES, F.col("text") == "line 1")
        return held

    spec = int(load_java(lake.spark, MESSAGES.name).spec().specId())
    for arrange, told in (
        (another_comes_first, "silver.messages moved meanwhile: .* Try again"),  # refused by the commit
        (lambda held: held, "silver.messages was rewritten by somebody else meanwhile. Plan again"),  # and before it
    ):
        with pytest.raises(Conflict, match=told):
            rewrite_files(writer, MESSAGES, locations, arrange, spec)
        assert texts(read_table(lake.spark, MESSAGES)) == ["line 0", "line 2"]


@pytest.mark.parametrize("at", [None, Ref(name="main")])
def test_a_catalog_that_does_not_answer_is_unavailable(spark: SparkSession, settings: Settings, at: Ref | None) -> None:
    Path(settings.text("catalog.uri").removeprefix("sqlite:///")).write_bytes(b"no database" * 100)
    with pytest.raises(Unavailable, match=r"The catalog did not answer: .*not a database.* Check catalog.uri") as down:
        read_table(spark, MESSAGES, at)
    assert down.value.retryable
    with pytest.raises(Unavailable, match="The catalog did not answer"):
        TableWriter(spark, settings).not_yet_in(MESSAGES, spark.createDataFrame([("a",)], "object_id string"), ["x"])


def test_a_mistake_of_ours_in_a_query_is_an_internal_error_and_one_that_is_not_the_jvms_is_left(lake: Lake) -> None:
    with pytest.raises(InternalError, match=r"Spark broke: .*CAST_INVALID_INPUT"):
        collect(read_table(lake.spark, MESSAGES).select(F.col("text").cast("int")))
    assert java_error(KeyError("a")) is None
    bug = KeyError("a")
    assert translate(bug) is bug
    assert current_snapshot_id(Committer(lake.settings).tables.base(MESSAGES.name).metadata) == snapshots(lake)[-1]


def wait_in(marker: Path, rows: DataFrame) -> DataFrame:
    """The same rows, from a task that says when it has begun and then takes a minute."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        marker.touch()
        let_pass(60, "longer than it takes to cancel it")
        yield from batches

    return rows.mapInArrow(work, rows.schema)


def when_begun(marker: Path, act: Callable[[], object]) -> threading.Thread:
    def watch() -> None:
        wait_until(marker.exists)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_read_that_is_cancelled_is_no_error_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever stops a run must know it from one that failed."""
    marker = tmp_path / "begun"
    stopper = when_begun(marker, spark.sparkContext.cancelAllJobs)
    with pytest.raises(Exception, match="cancelled") as cancelled:
        collect(wait_in(marker, spark.range(1)))
    stopper.join()
    assert not isinstance(cancelled.value, HeadwaterError)


def test_a_batch_that_a_stopped_stream_breaks_off_is_no_error_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    marker, raised = tmp_path / "begun", []

    def take(batch: DataFrame, _number: int) -> None:
        try:
            to_arrow(wait_in(marker, batch))
        except Exception as error:
            raised.append(error)
            raise

    source = spark.readStream.format("rate").option("rowsPerSecond", 5).load().select("value")
    query = source.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "notes")).start()
    when_begun(marker, query.stop).join()
    wait_until(lambda: bool(raised))
    assert [isinstance(error, HeadwaterError) for error in raised] == [False]


AT = "\n\tat org.apache.iceberg.exceptions.ValidationException.check(ValidationException.java:49)"
S3 = "software.amazon.awssdk.services.s3.model.S3Exception"


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        ("org.apache.iceberg.exceptions.CommitFailedException: no", Conflict, "silver.messages moved meanwhile: no"),
        ("org.apache.iceberg.exceptions.CommitStateUnknownException: lost", OutcomeUnknown, "It is unknown whether"),
        ("org.apache.iceberg.exceptions.NotAuthorizedException: no", AccessRefused, "Check catalog.token"),
        ("org.apache.iceberg.exceptions.ServiceUnavailableException: busy", Unavailable, "did not answer: busy"),
        (f"java.lang.IllegalStateException: odd{AT}", InternalError, "java.lang.IllegalStateException: odd"),
        (f"{S3}: Slow down (Service: S3, Status Code: 503)", Unavailable, "The warehouse did not answer: Slow down"),
        (f"{S3}: Denied (Service: S3, Status Code: 403)", AccessRefused, "The warehouse refused our key: Denied"),
    ],
)
def test_what_iceberg_and_s3_raise_is_of_one_of_our_kinds(
    spark: SparkSession, words: str, kind: type[Exception], told: str
) -> None:
    """As an executor's task tells it: within the words of the job that failed."""
    from pyspark.errors.exceptions.captured import SparkRuntimeException

    job = f"Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 9): {words}\n\tat a.b.C.d(C.java:1)"
    found = java_error(SparkRuntimeException(job, ""), MESSAGES.name)
    assert type(found) is kind
    assert told in str(found)
