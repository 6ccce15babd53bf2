"""What the flow promises, on real parts: one Spark engine for all of these, a lake for each."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rounds
from lakes import parts_of
from waiting import wait_until

from headwater import lake as lakes
from headwater.components import Components
from headwater.domain.tables import EVENTS, MESSAGES
from headwater.errors import Conflict
from headwater.flow.land_text import land_text
from headwater.lake import Lake
from headwater.settings import load
from headwater.storage.tables import writer as table_writer
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.writer import TableWriter
from headwater.upkeep.maintenance.maintain import Maintain, summarise
from headwater.upkeep.task import apply

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


def _remembered(lake: Lake) -> int:
    """Answers in the memo, of whatever step, as the names of its files tell."""
    files = (lake.settings.lake / "memo").rglob("*.answers")
    return sum(int(file.name.split("-")[3][1:]) for file in files)


def test_the_same_event_a_thousand_times_is_one_row_a_step_and_one_call(lake: Lake, tmp_path: Path) -> None:
    folder = rounds.make_media(tmp_path, 1)
    (landed,) = lake.put(folder / "call-1-0.wav", customer="acme", at=AT)
    assert landed.event is not None
    for _ in range(9):
        parts_of(lake).log.publish([landed.event] * 111)
    lake.run()

    assert lake.status()["duplicates"] == 999
    for table in ("events", "metadata", "transcripts", "embeddings"):
        assert lake.table(table).to_arrow().num_rows == 1, table
    assert _remembered(lake) == 1
    lake.run()
    assert lake.status()["duplicates"] == 999
    rounds.check_raw_is_counted(lake)


def test_equal_bytes_of_two_customers_are_two_objects_and_one_model_result(lake: Lake, tmp_path: Path) -> None:
    folder = rounds.make_media(tmp_path, 1)
    for customer in ("acme", "globex"):
        lake.put(folder / "call-1-0.wav", customer=customer, at=AT)
    lake.run()
    assert lake.table("transcripts").to_arrow()["customer"].to_pylist() == ["acme", "globex"]
    assert _remembered(lake) == 1


def test_an_id_used_again_with_other_content_is_quarantined_and_the_first_stays(lake: Lake) -> None:
    lake.put_text("my invoice is wrong", customer="acme", id="x", at=AT)
    land_text(parts_of(lake).log, "my invoice is right", "acme", event_id="x", at=AT)  # by who does not look first
    lake.run()
    assert lake.table("messages").to_arrow()["text"].to_pylist() == ["my invoice is wrong"]
    assert [row["reason"] for row in lake.quarantine()["rows"]] == ["CONFLICT"]


def test_a_line_that_is_no_event_costs_one_quarantined_row_and_the_rest_goes_on(lake: Lake) -> None:
    parts_of(lake).log.publish_raw(["{", "[]", '{"event_id": 5}'])  # type: ignore[attr-defined]
    lake.put_text("hello, is anybody there", customer="acme", at=AT)
    lake.run()
    rows = lake.quarantine()["rows"]
    assert [row["reason"] for row in rows] == ["BAD_EVENT"] * 3
    details = [row["detail"] for row in rows]
    assert all(f"(log partition 0, offset {offset})" in "".join(details) for offset in range(3))
    assert any(detail.startswith("customer: missing, needs a text; modality: missing") for detail in details)
    assert lake.table("messages").to_arrow().num_rows == 1


def test_a_text_too_long_to_travel_through_the_driver_arrives_whole_beside_short_ones(lake: Lake) -> None:
    long = "parcel " * 3_000
    lake.put_text(long, customer="acme", id="long", at=AT)
    lake.put_text("short", customer="acme", id="short", at=AT)
    lake.put_text(long, customer="acme", id="long", at=AT)
    parts_of(lake).log.publish_raw(["not an event"])  # type: ignore[attr-defined]
    assert lake.run().done["bronze"] == 2
    rows = {row["event_id"]: row for row in lake.table("events").to_arrow().to_pylist()}
    assert {name: row["text"] for name, row in rows.items()} == {"long": long, "short": "short"}
    assert sorted(row["seq"] for row in rows.values()) == [0, 1]
    assert lake.status()["duplicates"] == 1
    rounds.check_raw_is_counted(lake)


def test_runs_and_streams_go_on_where_the_other_ended(lake: Lake, tmp_path: Path) -> None:
    rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
    lake.run()
    before, duplicates = rounds.contents(lake), lake.status()["duplicates"]
    lake.put_text("one more line", customer="acme", id="more", at=AT)
    stream_until_all_is_done(lake)
    assert not Path(lake.settings.text("checkpoints.uri")).exists(), "the table says how far the log was read"
    lake.put_text("another line", customer="acme", id="another", at=AT)
    stream_until_all_is_done(lake)
    after = rounds.contents(lake)
    assert lake.status()["duplicates"] == duplicates
    assert len(after["bronze.events"]) == len(before["bronze.events"]) + 2
    assert after["silver.transcripts"] == before["silver.transcripts"]


def test_an_event_before_its_bytes_waits_in_quarantine_and_is_recovered_once_they_are_there(
    lake: Lake, tmp_path: Path
) -> None:
    folder = rounds.make_media(tmp_path, 1)
    (landed,) = lake.put(folder / "call-1-0.wav", customer="acme", at=AT)
    stored = lake.settings.lake / "raw" / landed.event.object_id  # type: ignore[union-attr]
    data = stored.read_bytes()
    stored.unlink()
    lake.run()
    assert [(row["reason"], row["attempts"]) for row in lake.quarantine()["rows"]] == [("MISSING_OBJECT", 1)]

    again = lake.retry("MISSING_OBJECT")
    assert (again.tried, again.recovered) == (1, 0)
    assert [(row["reason"], row["attempts"]) for row in lake.quarantine()["rows"]] == [("MISSING_OBJECT", 2)]

    stored.write_bytes(data)
    again = lake.retry()
    assert (again.tried, again.recovered, again.still_quarantined) == (1, 1, 0)
    assert lake.quarantine()["rows"] == []
    for table in ("metadata", "transcripts", "embeddings"):
        assert lake.table(table).to_arrow().num_rows == 1, table


def test_a_retried_object_has_the_very_rows_of_a_live_one(lake: Lake, engine: None, tmp_path: Path) -> None:
    folder = rounds.make_media(tmp_path, 1)
    rounds.use_cheap_models(tmp_path / "live")
    with lakes.init(tmp_path / "live") as live:
        for one in (lake, live):
            one.put(folder / "shot-1.png", folder / "call-1-0.wav", customer="acme", at=AT)
        stored = lake.settings.lake / "raw" / "audio/acme/2026-03-01/call-1-0.wav"
        stored.rename(tmp_path / "aside")
        lake.run()
        (tmp_path / "aside").rename(stored)
        lake.retry()
        live.run()
        assert rounds.contents(lake) == rounds.contents(live)


def test_a_wiped_index_is_rebuilt_to_the_same_answers(lake: Lake, tmp_path: Path) -> None:
    rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
    lake.run()
    before = lake.search("invoice is wrong").to_dict()
    assert before["hits"] and before["stale_by"] == 0
    parts_of(lake).index.delete(None)
    assert lake.search("invoice is wrong").to_dict() == {"hits": [], "stale_by": lake.status()["tables"][5]["rows"]}
    lake.run()
    assert lake.search("invoice is wrong").to_dict() == before


def test_maintenance_keeps_every_row_and_a_run_after_it_repeats_nothing(lake: Lake, tmp_path: Path) -> None:
    for number in range(6):
        rounds.put_round(lake, rounds.make_media(tmp_path, number), number)
        lake.run()
    before = rounds.contents(lake)
    files = {table["name"]: table["files"] for table in lake.status()["tables"]}
    parts = parts_of(lake)
    later = datetime.now(UTC) + timedelta(days=30)
    task = Maintain(parts, now=later)
    plan = task.plan()
    done = summarise(apply(task, parts, plan))

    assert {care.table for care in plan.tables if not care.idle} == {result.table for result in done} - {"memo"}
    assert files["bronze.events"] >= 6
    assert {table["name"]: table["files"] for table in lake.status()["tables"]}["bronze.events"] == 1
    assert {table["name"]: table["snapshots"] for table in lake.status()["tables"]}["bronze.events"] == 1
    assert rounds.contents(lake) == before
    assert not lake.pending()
    lake.put_text("still here after the cleaning", customer="acme", id="after", at=AT)
    lake.run()
    assert len(rounds.contents(lake)["bronze.events"]) == len(before["bronze.events"]) + 1


def test_a_second_writer_of_a_stage_is_refused_and_leaves_no_row(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TableWriter(lake.spark, lake.settings)
    names = ("object_id", "customer", "modality", "step", "model", "fingerprint", "event_id")
    row = dict.fromkeys(names, "x") | {"occurred_at": AT, "derived_at": AT, "pointer": {"path": "x"}}
    rows = lake.spark.createDataFrame(
        pa.Table.from_pylist([row], pa.schema([f for f in MESSAGES.schema if f.name != "seq"]))
    )
    stage = table_writer.write_staged

    def stage_while_another_publishes(*arguments: Any, **options: Any) -> Any:
        staged = stage(*arguments, **options)
        monkeypatch.undo()  # from here on, whoever publishes does so undisturbed
        another = TableWriter(lake.spark, lake.settings)  # with locks of its own, as another process has
        another.publish(MESSAGES, rows, {EVENTS.name: 1}, stage="derive")
        return staged

    monkeypatch.setattr(table_writer, "write_staged", stage_while_another_publishes)
    with pytest.raises(Conflict, match="Another writer"):
        writer.publish(MESSAGES, rows, {EVENTS.name: 1}, stage="derive")
    assert lake.table("messages").to_arrow().num_rows == 1
    assert read_progress(writer.tables, MESSAGES).next_seq == 1


def test_batches_are_cut_by_bytes_as_well_as_by_rows(engine: None, tmp_path: Path) -> None:
    directory = tmp_path / "lake"
    rounds.use_cheap_models(directory)
    with lakes.init(directory):
        pass
    components = Components(load(directory, {"run.batch_bytes": 20_000, "run.batch_rows": 3}))
    with Lake(components) as lake:
        folder = rounds.make_media(tmp_path, 1)
        lake.put(folder, customer="acme", at=AT)  # two calls of 16 kB each
        for line in range(4):
            lake.put_text(f"line {line} of many", customer="acme", id=f"l{line}", at=AT)
        batches: list[int] = []
        lake.run(report=lambda stage, done: batches.append(done) if stage == "derive" else None)
        workers = lake.spark.sparkContext.defaultParallelism
    rows = 3 * max(4, workers) // 4
    # The broken file and the first call, since two calls would be 32 kB, but one object for each worker. Then by rows.
    first = min(rows, max(2, workers)) if workers <= 4 else rows
    assert batches == [first, *([rows] * ((8 - first) // rows)), *([left] if (left := (8 - first) % rows) else [])]


def stream_until_all_is_done(lake: Lake) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=lambda: lake.run(once=False, stop=stop))
    thread.start()
    try:
        wait_until(lambda: not lake.pending())
    finally:
        stop.set()
        thread.join(30)


def test_streaming_takes_events_as_they_come_and_stops_when_asked(lake: Lake) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=lambda: lake.run(once=False, stop=stop))
    thread.start()
    try:
        lake.put_text("where is my parcel", customer="acme", id="s1", at=AT)
        wait_until(lambda: lake.table("embeddings").to_arrow().num_rows == 1)
        lake.put_text("it never came", customer="acme", id="s2", at=AT)
        wait_until(lambda: parts_of(lake).index.position() == 2)
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()
    assert len(lake.search("parcel").hits) >= 1


def test_sigterm_ends_a_stream_cleanly_and_leaves_the_lake_free(lake: Lake) -> None:
    command = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), "run"]
    lake.put_text("please call me back", customer="acme", id="t1", at=AT)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: parts_of(lake).index.position() == 1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    lake.run()
