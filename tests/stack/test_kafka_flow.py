"""From Kafka to bronze on the real parts: poison, lost events, a topic made anew, new partitions, no checkpoint."""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from headwater.components import Components
from headwater.domain.event import Event
from headwater.flow import bronze
from headwater.flow.land import land_stream, land_text, text_event
from headwater.lake import Lake
from headwater.settings import Settings
from headwater.stack.stack import Stack
from headwater.storage.catalog import create_tables
from headwater.storage.kafka_conf import KafkaPlace
from headwater.storage.kafka_log import KafkaLog
from headwater.storage.ledger import Ledger
from headwater.storage.spark import start_spark, stop_spark
from headwater.upkeep.format import set_format
from headwater.upkeep.rescan import apply_rescan, plan_rescan

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture(scope="module")
def stack_engine(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Holds a session so that the JVM outlives each test's own."""
    stack.up(["kafka", "s3", "postgres"])
    settings = stack.settings(tmp_path_factory.mktemp("engine"), {"spark.master": ""})
    session = start_spark(settings)
    yield
    stop_spark(session)


@pytest.fixture
def lake(stack_engine: None, stack_lake: Settings) -> Iterator[Lake]:
    components = Components(stack_lake)
    create_tables(components.catalog)
    set_format(components.ledger)
    with Lake(components) as made:
        yield made


@pytest.fixture
def admin(kafka_address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_address})


def topic_of(lake: Lake) -> str:
    return str(lake.settings.text("log.uri").rpartition("/")[2])


def chat(number: int, customer: str = "acme") -> Event:
    return text_event(f"message {number}", customer, at=AT, event_id=f"m{number}")


def bronze_ids(lake: Lake) -> list[str]:
    return sorted(lake.table("events").to_arrow()["event_id"].to_pylist())


def log_of(lake: Lake) -> KafkaLog:
    log = lake._components.log
    assert isinstance(log, KafkaLog)
    return log


def test_sound_events_arrive_once_and_poison_costs_a_row_each(lake: Lake, admin: AdminClient) -> None:
    log = log_of(lake)
    log.publish([chat(n, f"c{n}") for n in range(20)])
    sound = json.loads(chat(50).to_json())
    poison = [
        b"{not json",
        b"\xff\xfe\x00 not utf-8 \x80",
        b"",
        json.dumps({**sound, "event_id": "nul\0inside"}).encode(),
        json.dumps({**sound, "event_id": "x" * 5_000}).encode(),
        json.dumps({**sound, "event_id": "big", "text": "y" * 1_000_100}).encode()[:1_003_000],
        b'{"event_id": "\\ud800 lone"}',
    ]
    log.publish_raw([("anyone", value) for value in poison])
    log.publish([chat(3, "c3")])
    done = lake.run().done
    assert done["bronze"] == 20
    assert bronze_ids(lake) == sorted(f"m{n}" for n in range(20))
    held = lake.quarantine()
    assert [(reason["reason"], reason["count"]) for reason in held["reasons"]] == [("BAD_EVENT", len(poison))]
    assert all(len(row["payload"] or "") <= 4_000 for row in held["rows"])
    status = lake.status()
    assert (status["duplicates"], status["log"]) == (1, {"lag": 0, "lost": 0})
    assert not lake.run().started
    assert lake.search("message").hits


def test_a_run_that_is_stopped_in_a_batch_ends_without_a_word(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    log_of(lake).publish([chat(n) for n in range(5)])
    stop = threading.Event()

    def busy(spark: Any, *_: Any, **__: Any) -> Any:
        stop.set()
        return spark.range(1 << 40).selectExpr("sum(id % 7)").collect()

    with monkeypatch.context() as patched:
        patched.setattr(bronze, "take", busy)
        lake.run(stop=stop)
    assert bronze_ids(lake) == []
    assert lake.run().done["bronze"] == 5


def test_marks_of_transactions_are_no_lag(lake: Lake) -> None:
    """Another's producer may be transactional: its commits have offsets, and nobody will ever read a line there."""
    log_of(lake).publish([chat(5)])
    place = KafkaPlace.parse(lake.settings.text("log.uri"))
    producer = Producer({"bootstrap.servers": place.servers, "transactional.id": f"t-{place.topic}"})
    producer.init_transactions()
    for number in range(2):
        producer.begin_transaction()
        producer.produce(place.topic, chat(number).to_json().encode(), key=b"acme")
        producer.commit_transaction()
    assert lake.run().done["bronze"] == 3
    assert lake.status()["log"] == {"lag": 0, "lost": 0}
    assert not lake.run().started
    log_of(lake).publish([chat(9)])
    assert lake.run().done["bronze"] == 1
    assert bronze_ids(lake) == ["m0", "m1", "m5", "m9"]


def test_without_a_checkpoint_reading_goes_on_where_the_table_says(lake: Lake) -> None:
    log_of(lake).publish([chat(n, f"c{n}") for n in range(10)])
    lake.run()
    shutil.rmtree(lake.settings.text("checkpoints.uri"))
    log_of(lake).publish([chat(n, f"c{n}") for n in range(10, 15)])
    assert lake.run().done["bronze"] == 5
    assert len(bronze_ids(lake)) == 15
    assert lake.status()["duplicates"] == 0


def test_what_expired_unread_is_reported_and_a_rescan_brings_back_what_was_stored(
    lake: Lake, admin: AdminClient
) -> None:
    import io

    parts = lake._components
    land_text(parts.log, "hello", "acme", at=AT, event_id="kept")
    lake.run()
    land_stream(parts.raw_store, parts.log, io.BytesIO(b"%PDF-1.4 broken"), "a.pdf", "acme", at=AT)
    ends = log_of(lake).end()
    for gone in admin.delete_records([TopicPartition(topic_of(lake), p, end) for p, end in ends.items()]).values():
        gone.result()
    assert lake.pending().bronze == 1
    assert lake.run().done["lost"] == 1
    assert lake.status()["log"] == {"lag": 0, "lost": 1}
    plan = plan_rescan(parts.raw_store, parts.reader, now=LATER)
    assert [found.path for found in plan.orphans] == ["documents/acme/2026-03-01/a.pdf"]
    for _ in range(2):
        apply_rescan(plan, parts.raw_store, parts.log, parts.ledger, now=LATER, report=lambda _: None)
    lake.run()
    assert bronze_ids(lake) == ["documents/acme/2026-03-01/a.pdf", "kept"]
    assert lake.status()["log"] == {"lag": 0, "lost": 0}
    assert lake.status()["duplicates"] == 1


def test_what_expires_under_a_running_stream_is_written_down_counted_and_passed(
    lake: Lake, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    done: dict[str, int] = {}
    log_of(lake).publish([chat(n) for n in range(3)])
    claim_first = Ledger.claim_first

    def while_others_expire(ledger: Ledger, kind: str, rows: Any) -> Any:
        # What is published while a batch is under way is gone before the next one comes to it.
        if kind == "event" and not done:
            log_of(lake).publish([chat(n) for n in range(3, 8)])
            ends = [TopicPartition(topic_of(lake), partition, end) for partition, end in log_of(lake).end().items()]
            for gone in admin.delete_records(ends).values():
                gone.result()
            log_of(lake).publish([chat(n) for n in range(8, 10)])
        return claim_first(ledger, kind, rows)

    monkeypatch.setattr(Ledger, "claim_first", while_others_expire)

    def report(stage: str, count: int) -> None:
        done[stage] = done.get(stage, 0) + count

    streaming = threading.Thread(target=lambda: lake.run(once=False, report=report, stop=stop))
    streaming.start()
    deadline = time.monotonic() + 120
    while done.get("bronze", 0) < 5 and streaming.is_alive() and time.monotonic() < deadline:
        time.sleep(0.2)
    stop.set()
    streaming.join()
    assert bronze_ids(lake) == ["m0", "m1", "m2", "m8", "m9"]
    assert done["lost"] == 5
    assert lake.status()["log"] == {"lag": 0, "lost": 5}


def test_a_topic_made_anew_is_noticed_and_nothing_is_taken_twice(lake: Lake, admin: AdminClient) -> None:
    log_of(lake).publish([chat(n) for n in range(5)])
    lake.run()
    admin.delete_topics([topic_of(lake)])[topic_of(lake)].result()
    time.sleep(1)
    again = KafkaLog(lake.settings.text("log.uri"), lake.settings)
    # More than before, so that offsets alone do not show it.
    again.publish([chat(n) for n in range(9)])
    lake._components.__dict__["log"] = again
    lake.run()
    assert bronze_ids(lake) == [f"m{n}" for n in range(9)]
    assert lake.status()["duplicates"] == 5
    assert lake.status()["log"]["lost"] > 0


def test_partitions_that_were_added_are_read_from_their_beginning(lake: Lake, admin: AdminClient) -> None:
    log_of(lake).publish([chat(n, f"c{n}") for n in range(10)])
    lake.run()
    admin.create_partitions([NewPartitions(topic_of(lake), 8)])[topic_of(lake)].result()
    while len(log_of(lake).end()) < 8:
        time.sleep(0.1)
    fresh = KafkaLog(lake.settings.text("log.uri"), lake.settings)
    fresh.publish([chat(n, f"c{n}") for n in range(10, 60)])
    assert any(end for partition, end in fresh.end().items() if partition >= 4)
    assert lake.run().done["bronze"] == 50
    assert len(bronze_ids(lake)) == 60
    assert lake.status()["log"] == {"lag": 0, "lost": 0}
