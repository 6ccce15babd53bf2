"""How much is read: what is tried again or made once more reads what it is about, not all that there is."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import rounds
from counted import *  # noqa: F403
from lakes import parts_of
from sample_rows import rows
from scanned import rows_scanned
from test_rollback import roll_back, snapshot_of

from headwater.domain.quarantine import STRAGGLERS
from headwater.domain.tables import EMBEDDINGS, EVENTS, MESSAGES, QUARANTINE, TRANSCRIPTS, Table
from headwater.flow.derive.plan import only_by, plan_work
from headwater.flow.derive.stage import replay_next
from headwater.flow.drive.register_models import register_model
from headwater.flow.embed.stage import embed_again, replay_embed_next
from headwater.flow.rows import BatchLimit
from headwater.lake import Lake
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.writer import TableWriter

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def say(lake: Lake, *names: str, days: int = 0) -> None:
    for name in names:
        lake.put_text(f"line {name} of the story", customer="acme", id=name, at=AT + timedelta(days=days))
    lake.run()


def set_aside(lake: Lake, reason: str, names: list[str]) -> None:
    """Rows of quarantine for messages that are there."""
    events = {row["event_id"]: row for row in lake.table("events").to_arrow().to_pylist()}
    step = lake.table("messages").to_arrow().to_pylist()[0]
    told = {"step": step["step"], "fingerprint": step["fingerprint"], "reason": reason, "attempts": 1}
    about = ("event_id", "object_id", "customer", "modality", "occurred_at", "pointer")
    given = [{**{key: events[name][key] for key in about}, "event_seq": events[name]["seq"], **told} for name in names]
    TableWriter(lake.spark, lake.settings).publish(
        QUARANTINE, rows(QUARANTINE, given).select(QUARANTINE.columns), {}, stage="test"
    )


def snapshots(lake: Lake, table: Table) -> int:
    return len(parts_of(lake).catalog.load_table(table.name).metadata.snapshots)


def test_a_retry_reads_the_events_that_it_is_about_once(lake: Lake) -> None:
    names = [f"m{number}" for number in range(20)]
    say(lake, *names)
    say(lake, "later", days=9)
    set_aside(lake, "CRASHED", names)
    before = rows_scanned(lake.spark, EVENTS.name)
    assert lake.retry().recovered == 20
    assert rows_scanned(lake.spark, EVENTS.name) - before == 20


def test_an_embedder_that_was_retried_once_reads_no_vectors_of_other_times(lake: Lake) -> None:
    say(lake, "today")
    for day in range(1, 4):
        say(lake, f"day {day}", days=day)
    parts = parts_of(lake)
    writer = TableWriter(lake.spark, lake.settings)
    near = register_model(lake.settings, parts.ledger, parts.clock, "near")
    (text,) = [row for row in lake.table("messages").to_arrow().to_pylist() if row["event_id"] == "today"]
    assert embed_again(writer, [near], {text["object_id"]: text["occurred_at"]}, parts.clock).vectors == 1
    before = rows_scanned(lake.spark, EMBEDDINGS.name)
    made = replay_embed_next(writer, near, batch_rows=1, clock=parts.clock)
    assert made is not None and (made.texts, made.vectors) == (1, 0), "it has that one from the retry"
    assert rows_scanned(lake.spark, EMBEDDINGS.name) - before <= 2


def test_a_replay_over_what_a_rollback_took_away_reads_no_rows_of_other_times(lake: Lake, tmp_path: Path) -> None:
    ends = []
    for number in range(2):
        lake.put(rounds.make_media(tmp_path, number), customer="acme", at=AT + timedelta(days=number))
        lake.run()
        ends.append((snapshot_of(lake, EVENTS), read_progress(lake.settings, EVENTS).next_seq))
    snapshot, first = ends[0]
    roll_back(lake, EVENTS, snapshot)
    lake.run()
    told = read_progress(lake.settings, EVENTS)
    assert told.redone and not told.redo
    parts, writer = parts_of(lake), TableWriter(lake.spark, lake.settings)
    louder = register_model(lake.settings, parts.ledger, parts.clock, "louder")
    work = plan_work(lake.settings, only_by(parts.book(), louder), now=parts.clock(), share=2)
    heard = len(lake.table("transcripts").to_arrow())
    before = rows_scanned(lake.spark, TRANSCRIPTS.name)
    tag = f"transcribe/{louder.fingerprint}"
    made = replay_next(writer, work, tag, BatchLimit(first, 1 << 40), 2, 1 << 62, lambda passing, slow: None)
    assert made is not None and made.rows[TRANSCRIPTS.name] == heard / 2, "of the first day alone"
    assert rows_scanned(lake.spark, TRANSCRIPTS.name) - before <= heard / 2


def test_objects_that_were_slow_leave_quarantine_by_the_portion(lake: Lake) -> None:
    names = [f"m{number:02}" for number in range(12)]
    say(lake, *names)
    set_aside(lake, "SLOW", names)
    parts_of(lake).ledger.set_fact(STRAGGLERS, "yes")
    before = snapshots(lake, QUARANTINE)
    lake.run()
    assert lake.quarantine()["rows"] == [] and not lake.pending()
    assert snapshots(lake, QUARANTINE) - before <= 6, "a file is written anew for each of them, over and over"
    assert len(lake.table(MESSAGES.name).to_arrow()) == 12
