"""A batch that goes from table to table in Spark's tasks gives what one that meets in the driver gives, row for row."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import rounds
from lakes import parts_of
from sample_rows import rows

from headwater import lake as lakes
from headwater.domain.tables import EVENTS, MESSAGES, TABLES
from headwater.flow.partitions import repartition_balanced
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.writer import TableWriter

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        yield made


def filled(directory: Path, media: Path, *, driver_rows: int) -> Lake:
    rounds.use_cheap_models(directory)
    with (directory / FILE_NAME).open("a") as file:
        file.write(f"[run]\ndriver_rows = {driver_rows}\nbatch_rows = 7\n")
    lake = lakes.init(directory)
    for number in range(2):
        rounds.put_round(lake, media / f"round-{number}", number)
    lake.run()
    return lake


def test_both_ways_give_the_same_rows(engine: None, tmp_path: Path) -> None:
    for number in range(2):
        rounds.make_media(tmp_path / "media", number)
    with (
        filled(tmp_path / "met", tmp_path / "media", driver_rows=1_000) as met,
        filled(tmp_path / "spread", tmp_path / "media", driver_rows=1) as apart,
    ):
        assert rounds.contents(apart) == rounds.contents(met)
        for table in TABLES:
            told = read_progress(apart.settings, table)
            assert told.consumed == read_progress(met.settings, table).consumed
            found = apart.table(table.name, all_models=True).to_arrow()["seq"].to_pylist()
            assert sorted(found) == list(range(told.next_seq)), "numbers are dense"
        assert apart.search("invoice").hits
        assert apart.status()["index"] == met.status()["index"]
        # A model beside the others, by the same ways.
        for opened in (met, apart):
            assert opened.models.replay("transcribe", "cheap_models:LouderSpeech").finished
        one, other = (
            sorted(
                (row["object_id"], row["text"])
                for row in opened.table("transcripts", all_models=True).to_arrow().to_pylist()
            )
            for opened in (met, apart)
        )
        assert one == other


def test_rows_of_many_days_are_laid_out_together_and_of_few_each_by_its_own(lake: Lake) -> None:
    writer = TableWriter(lake.spark, lake.settings)
    for days, files in ((2, 2), (300, 1)):
        given = [{"object_id": f"o{n}", "occurred_at": AT + timedelta(days=n % days)} for n in range(600)]
        table = rows(MESSAGES, given).select(MESSAGES.columns)
        before = len(files_of(lake))
        writer.publish(MESSAGES, table, {}, stage="test")
        assert len(files_of(lake)) - before == files, "by the driver"
        before = len(files_of(lake))
        writer.publish(MESSAGES, lake.spark.createDataFrame(table).coalesce(1), {}, stage="test")
        assert len(files_of(lake)) - before == files, "by Spark's tasks"
    assert lake.spark.table("lake.silver.messages").count() == 2_400
    day = (AT + timedelta(days=77)).date()
    query = f"select count(*) as n from messages where occurred_at::date = '{day}'"
    assert lake.sql(query)["rows"] == [{"n": 4}]
    # Few files then, whatever the days.
    for number in range(6):
        given = [{"object_id": f"m{number}-{n}", "occurred_at": AT + timedelta(days=10 * n)} for n in range(50)]
        writer.publish(MESSAGES, rows(MESSAGES, given).select(MESSAGES.columns), {}, stage="test")
    assert len(files_of(lake)) == 12
    lake.maintain()
    assert len(files_of(lake)) == 1
    assert lake.spark.table("lake.silver.messages").count() == 2_700


def files_of(lake: Lake) -> list[str]:
    table = parts_of(lake).catalog.load_table(MESSAGES.name)
    return [task.file.file_path for task in table.scan().plan_files()]


def test_rows_are_dealt_out_by_size_with_equal_contents_together(lake: Lake) -> None:
    sizes = [1_000] * 3 + [10] * 300
    table = pa.table(
        {
            "content": [f"c{n // 2}" for n in range(len(sizes))],
            "kind": ["call" if size > 10 else "chat" for size in sizes],
            "size": sizes,
        }
    )
    frame = lake.spark.createDataFrame(table)
    dealt = repartition_balanced(frame, "content", "kind", ["call", "chat"], "size", 3)
    from pyspark.sql import functions as F

    placed = dealt.withColumn("part", F.spark_partition_id()).toArrow().to_pylist()
    assert len(placed) == len(sizes)
    parts: dict[str, set[int]] = {}
    for row in placed:
        parts.setdefault(row["content"], set()).add(row["part"])
    assert all(len(where) == 1 for where in parts.values())
    weights: dict[int, int] = {}
    for row in placed:
        weights[row["part"]] = weights.get(row["part"], 0) + (300 if row["kind"] == "call" else 3)
    assert len(weights) >= 9, "every worker has several parts"
    assert max(weights.values()) < sum(weights.values()) / 2


def test_an_import_of_history_does_not_make_a_file_a_day(lake: Lake) -> None:
    """1,500 messages of 1,500 days took 389 s, and left 1,507 files."""
    log = parts_of(lake).log
    from headwater.flow.land_text import text_event

    log.publish([text_event(f"line {n}", "acme", f"m{n}", AT - timedelta(days=n)) for n in range(1_500)])
    lake.run()
    assert lake.spark.table("lake.silver.messages").count() == 1_500
    told = {line["name"]: line["files"] for line in lake.status()["tables"]}
    assert told[EVENTS.name] <= 2
    assert told[MESSAGES.name] <= 2


def test_rows_that_are_new_are_numbered_as_they_were_counted_however_spark_lays_them_out(lake: Lake) -> None:
    """Spark joins small partitions of a shuffle: two readings, one of few columns, were not alike. 26,256 of 59,995."""
    lake.spark.conf.set("spark.sql.shuffle.partitions", "16")
    writer = TableWriter(lake.spark, lake.settings)
    draw = random.Random(7)
    given = [
        {"object_id": f"o{number}", "step": "message", "fingerprint": "f", "text": draw.randbytes(64).hex()}
        for number in range(60_000)
    ]
    made = rows(MESSAGES, given).select(MESSAGES.columns)
    writer.publish(MESSAGES, made.slice(0, 5), {}, stage="test")
    nullable = pa.schema([field.with_nullable(True) for field in made.schema])  # as workers answer
    new = writer.not_yet_in(MESSAGES, lake.spark.createDataFrame(made.cast(nullable)), MESSAGES.key)
    assert writer.publish(MESSAGES, new, {}, stage="test") == 59_995
    numbers = lake.table("messages", all_models=True).to_arrow()["seq"].to_pylist()
    assert sorted(numbers) == list(range(60_000)), "numbers are dense"


def test_two_events_that_claim_the_largest_size_there_is_do_not_end_a_run(engine: None, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / FILE_NAME).write_text("[run]\ndriver_rows = 1\n", encoding="utf-8")
    with lakes.init(tmp_path / "lake") as lake:
        for number in range(2):
            lake.put_text(f"line {number}", customer="acme", id=f"m{number}")
        pointer = {"path": "chat/acme/x", "offset": 0, "size": (1 << 63) - 1, "content_type": "", "checksum": "ab" * 32}
        about = {"customer": "acme", "modality": "audio", "pointer": pointer}
        given = [{"event_id": f"e{number}", "object_id": f"o{number}", **about} for number in range(2)]
        TableWriter(lake.spark, lake.settings).publish(
            EVENTS, rows(EVENTS, given).select(EVENTS.columns), {}, stage="test"
        )
        lake.run()
        assert {row["object_id"] for row in lake.quarantine()["rows"]} == {"o0", "o1"}
        assert lake.spark.table("lake.silver.messages").count() == 2
