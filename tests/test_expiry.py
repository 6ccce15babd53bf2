"""A stream commits for a year and its metadata stays small; what is kept stays whole, whoever named it."""

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lakes import parts_of
from pyspark.sql import functions as F
from sample_rows import rows

from headwater import lake as lakes
from headwater.domain.tables import EVENTS, MESSAGES
from headwater.errors import SnapshotExpired
from headwater.lake import Lake
from headwater.storage.io.local_path import local_path
from headwater.storage.spark.errors import translated_spark
from headwater.storage.tables import expire_snapshots as expiry
from headwater.storage.tables import writer as table_writer
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import HOUR_MS, Keep, expirable
from headwater.storage.tables.metadata import snapshot_ids
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.rewrite_files import remove_rows
from headwater.storage.tables.writer import TableWriter

NOW = 2_000_000 * HOUR_MS


def table(ages: list[float], *, tags: tuple[int, ...] = (), took: tuple[int, ...] = ()) -> dict[str, Any]:
    """Snapshots 1, 2, … by their age in hours, the oldest first; the last is current."""
    snapshots = [
        {
            "snapshot-id": number,
            "parent-snapshot-id": number - 1 or None,
            "sequence-number": number,
            "timestamp-ms": NOW - int(age * HOUR_MS),
            "summary": {"deleted-data-files": "1"} if number in took else {},
        }
        for number, age in enumerate(ages, 1)
    ]
    refs = {f"t{number}": {"type": "tag", "snapshot-id": number} for number in tags}
    main = {"main": {"type": "branch", "snapshot-id": len(ages)}}
    return {"snapshots": snapshots, "current-snapshot-id": len(ages), "refs": {**refs, **main}}


def test_the_newest_stay_and_one_for_each_hour_before() -> None:
    ages = [hour + minute / 60 for hour in (5, 4, 3) for minute in (40, 20, 10)] + [0.02, 0.01, 0]
    kept = set(range(1, 13)) - expirable(table(ages), Keep(hours=168, newest=3), NOW)
    assert kept == {3, 6, 9, 10, 11, 12}


def test_what_is_past_the_horizon_goes_unless_it_is_among_the_newest_or_named() -> None:
    ages = [400.0, 300, 200, 180, 170]
    assert expirable(table(ages), Keep(hours=168, newest=2), NOW) == {1, 2, 3}
    assert expirable(table(ages, tags=(2,)), Keep(hours=168, newest=2), NOW) == {1, 3}
    assert expirable(table(ages, tags=(2,)), Keep(hours=168, newest=2, age=True), NOW) == {1, 3, 4}


def test_what_a_snapshot_replaced_stays_readable_for_an_hour_however_old_it_was() -> None:
    for newest_only in (Keep(hours=1, newest=1), Keep(hours=1, newest=1, age=True)):
        assert expirable(table([500.0, 0.99, 0.5, 0.0], took=(2,)), newest_only, NOW) == frozenset()
        assert {1, 2} <= expirable(table([500.0, 1.01, 0.5, 0.0], took=(2,)), newest_only, NOW)


def test_removals_without_end_keep_a_bounded_number_and_what_they_took_out_can_be_read_for_an_hour() -> None:
    """Every two seconds, in turns with appends; a removal takes the file that was added 40 commits before."""
    step_ms, life, count = 2_000, 40, 8_000
    made = table(
        [(count - number) * step_ms / HOUR_MS for number in range(1, count + 1)], took=tuple(range(2, count, 2))
    )
    kept: list[dict[str, Any]] = []
    for number, snapshot in enumerate(made["snapshots"], 1):
        kept.append(snapshot)
        if number % expiry.LEAST:
            continue
        refs = {"main": {"type": "branch", "snapshot-id": number}}
        state = {"snapshots": kept, "current-snapshot-id": number, "refs": refs}
        gone = expirable(state, Keep(hours=168), snapshot["timestamp-ms"])
        kept = [one for one in kept if one["snapshot-id"] not in gone]
        assert len(kept) <= expiry.NEWEST + 2 * 62 + 5
        left = sorted(one["snapshot-id"] for one in kept)
        for took in range(max(life + 2, number - HOUR_MS // step_ms + 2), number + 1, 2):
            assert left[bisect_left(left, took) - 1] >= took - life, f"what {took} took out is in no snapshot"


def test_what_was_rolled_back_stays_though_the_table_went_on_for_hours() -> None:
    """Number 3 is the head that was rolled back; 4 goes on from 2."""
    made = table([5.0, 4.9, 4.8, *(4.7 - number / 10 for number in range(48))])
    made["snapshots"][3]["parent-snapshot-id"] = 2
    keep = Keep(hours=168, newest=5)
    for _ in range(2):
        gone = expirable(made, keep, NOW)
        made["snapshots"] = [one for one in made["snapshots"] if one["snapshot-id"] not in gone]
    assert 3 in snapshot_ids(made)
    assert len(made["snapshots"]) <= 5 + 6 + 1


def test_a_year_of_commits_every_two_seconds_keeps_a_few_hundred() -> None:
    ages = [number / 1_800 for number in reversed(range(40_000))]
    assert len(ages) - len(expirable(table(ages), Keep(hours=168), NOW)) <= expiry.NEWEST + 24
    day_by_day = [float(age) for age in reversed(range(24 * 365))]
    assert len(day_by_day) - len(expirable(table(day_by_day), Keep(hours=168), NOW)) <= expiry.NEWEST + expiry.SPANS + 1
    assert len(day_by_day) - len(expirable(table(day_by_day), Keep(hours=24 * 90), NOW)) <= expiry.NEWEST + 170


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        yield made


def files(lake: Lake) -> set[str]:
    folder = lake.settings.lake / "warehouse" / "silver" / "messages"
    return {str(path) for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"}


def needed(lake: Lake) -> set[str]:
    """By every snapshot that is kept: reading them all must work, and nothing else need be there."""
    table = parts_of(lake).catalog.load_table(MESSAGES.name)
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
        found |= {task.file.file_path for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()}
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows >= 0
    return {local_path(path) for path in found}


def add(writer: TableWriter, number: int) -> None:
    row = {"object_id": f"o{number}", "event_id": f"e{number}", "customer": "acme", "text": f"line {number}"}
    writer.publish(MESSAGES, rows(MESSAGES, [row]).select(MESSAGES.columns), {EVENTS.name: number + 1}, stage="derive")


def test_commits_let_go_of_old_snapshots_and_of_no_file_that_is_needed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writer, "LEAST", 4)
    hour = [0]
    writer = TableWriter(lake.spark, lake.settings)
    writer._committer = Committer(lake.settings, lambda: NOW + hour[0] * HOUR_MS // 4)
    writer._keep = Keep(hours=3, newest=3)
    tagged = 0
    for number in range(40):
        hour[0] = number
        add(writer, number)
        if number in {12, 25}:
            remove_rows(writer, MESSAGES, F.col("object_id") == f"o{number - 3}")
        if number == 14:
            loaded = parts_of(lake).catalog.load_table(MESSAGES.name)
            tagged = loaded.current_snapshot().snapshot_id  # type: ignore[union-attr]
            loaded.manage_snapshots().create_tag(tagged, "keep-me").commit()
    base = writer._committer.tables.base(MESSAGES.name)
    assert tagged in snapshot_ids(base.metadata)
    assert len(snapshot_ids(base.metadata)) <= 3 + 12 + 1 + 2 + 4
    # What a rewrite of the tagged files took out is needed by the tag; all else that was let go of is gone.
    assert files(lake) == needed(lake)
    assert lake.spark.table("lake.silver.messages").count() == 38
    assert lake.spark.sql("select * from lake.silver.messages version as of 'keep-me'").count() == 14
    assert read_progress(writer.tables, MESSAGES).seq_of(EVENTS.name) == 40


def test_files_that_a_compaction_replaced_go_with_the_last_snapshot_that_had_them(lake: Lake) -> None:
    writer = TableWriter(lake.spark, lake.settings)
    for number in range(6):
        add(writer, number)
    before = {path for path in files(lake) if path.endswith(".parquet")}
    lake.maintain()
    writer._committer.expire(MESSAGES.name, Keep(hours=1, newest=1, age=True))
    assert before < files(lake), "who planned before the compaction reads them for an hour"
    later = Committer(lake.settings, lambda: NOW)
    assert later.expire(MESSAGES.name, Keep(hours=1, age=True)) == 6 - 5
    assert not before & files(lake)
    assert needed(lake) == files(lake)
    assert lake.spark.table("lake.silver.messages").count() == 6


def test_a_commit_that_landed_is_no_failure_where_old_files_cannot_be_looked_into(lake: Lake) -> None:
    writer = TableWriter(lake.spark, lake.settings)
    for number in range(3):
        add(writer, number)
    first = writer._committer.tables.base(MESSAGES.name).metadata["snapshots"][0]
    Path(local_path(first["manifest-list"])).write_bytes(b"no Avro")
    expire = Committer(lake.settings, lambda: NOW)
    assert expire.expire(MESSAGES.name, Keep(hours=1, age=True)) == 2
    assert len(snapshot_ids(expire.tables.base(MESSAGES.name).metadata)) == 1
    assert lake.spark.table("lake.silver.messages").count() == 3


def test_spark_says_that_files_expired_under_a_read_and_that_it_can_be_asked_again(lake: Lake) -> None:
    add(TableWriter(lake.spark, lake.settings), 0)
    planned = lake.spark.table("lake.silver.messages")
    assert planned.count() == 1
    (file,) = (Path(path) for path in files(lake) if path.endswith(".parquet"))
    file.unlink()
    with pytest.raises(SnapshotExpired, match=rf"{file.name} is gone.*Run again") as expired, translated_spark():
        planned.toArrow()
    assert expired.value.retryable and expired.value.exit_code == 5
    assert expired.value.file.endswith(file.name)


@given(
    st.lists(st.floats(0, 500, allow_nan=False), min_size=1, max_size=80),
    st.sets(st.integers(1, 80)),
    st.sets(st.integers(1, 80)),
)
def test_whatever_the_history_the_current_and_the_named_stay(ages: list[float], tags: set[int], took: set[int]) -> None:
    ages = sorted(ages, reverse=True)
    named = tuple(number for number in tags if number <= len(ages))
    made = table(ages, tags=named, took=tuple(took))
    gone = expirable(made, Keep(hours=168, newest=5), NOW)
    assert not gone & {*named, len(ages)}
