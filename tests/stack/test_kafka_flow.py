"""From Kafka to bronze on the real parts: poison, lost events, a topic made anew, new partitions, no checkpoint."""

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, ResourceType
from driving import read_log, streaming
from lakes import parts_of
from topics import (
    COMPACT,
    Transactions,
    delete_topic,
    hasten_cleaning,
    make_topic,
    send,
    set_config,
    set_policy,
)
from waiting import wait_until

from headwater.components import Components
from headwater.domain.event import Event
from headwater.domain.producers import HEADER, hashed
from headwater.domain.tables import EVENTS
from headwater.errors import InvalidRequest
from headwater.flow import bronze
from headwater.flow.land import land_stream
from headwater.flow.land_text import land_text, text_event
from headwater.lake import Lake
from headwater.setting import Chosen
from headwater.settings import Settings
from headwater.stack.stack import Stack
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.losses import LOST
from headwater.storage.log.kafka_conf import KafkaPlace
from headwater.storage.log.kafka_log import KafkaLog
from headwater.storage.spark.session import start_spark, stop_spark
from headwater.storage.tables.catalog import create_tables
from headwater.upkeep.format import set_format
from headwater.upkeep.rescan import plan_rescan

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
    log = parts_of(lake).log
    assert isinstance(log, KafkaLog)
    return log


def losses(lake: Lake) -> list[tuple[int, int | None, str]]:
    open_losses = (run.detail for run in parts_of(lake).ledger.unfinished(LOST))
    return sorted((loss["first"], loss["until"], loss["cause"]) for loss in open_losses)


def told(lake: Lake, event: str) -> list[dict[str, Any]]:
    lines = (lake.settings.lake / "logs" / "headwater.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == event]


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

    parts = parts_of(lake)
    land_text(parts.log, "hello", "acme", at=AT, event_id="kept")
    lake.run()
    land_stream(parts.raw_store, parts.log, io.BytesIO(b"%PDF-1.4 broken"), "a.pdf", "acme", at=AT)
    ends = log_of(lake).end()
    for gone in admin.delete_records([TopicPartition(topic_of(lake), p, end) for p, end in ends.items()]).values():
        gone.result()
    assert lake.pending().bronze == 1
    assert lake.run().done["lost"] == 1
    assert lake.status()["log"] == {"lag": 0, "lost": 1}
    plan = plan_rescan(parts.raw_store, parts.reader, parts.log, now=LATER)
    assert [found.path for found in plan.orphans] == ["documents/acme/2026-03-01/a.pdf"]
    for _ in range(2):
        lake.rescan(plan)
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
    wait_until(lambda: done.get("bronze", 0) == 5 or not streaming.is_alive())
    stop.set()
    streaming.join()
    assert bronze_ids(lake) == ["m0", "m1", "m2", "m8", "m9"]
    assert done["lost"] == 5
    assert lake.status()["log"] == {"lag": 0, "lost": 5}


def test_a_topic_made_anew_is_noticed_and_nothing_is_taken_twice(lake: Lake, admin: AdminClient) -> None:
    log_of(lake).publish([chat(n) for n in range(5)])
    lake.run()
    delete_topic(admin, topic_of(lake))
    again = KafkaLog(lake.settings.text("log.uri"), lake.settings)
    # More than before, so that offsets alone do not show it.
    again.publish([chat(n) for n in range(9)])
    parts = Components(lake.settings)
    parts.__dict__["log"] = again
    with Lake(parts) as opened:
        opened.run()
        assert bronze_ids(opened) == [f"m{n}" for n in range(9)]
        assert opened.status()["duplicates"] == 5
        assert opened.status()["log"]["lost"] > 0


def test_partitions_that_were_added_are_read_from_their_beginning(lake: Lake, admin: AdminClient) -> None:
    log_of(lake).publish([chat(n, f"c{n}") for n in range(10)])
    lake.run()
    admin.create_partitions([NewPartitions(topic_of(lake), 8)])[topic_of(lake)].result()
    wait_until(lambda: len(log_of(lake).end()) == 8)
    fresh = KafkaLog(lake.settings.text("log.uri"), lake.settings)
    fresh.publish([chat(n, f"c{n}") for n in range(10, 60)])
    assert any(end for partition, end in fresh.end().items() if partition >= 4)
    assert lake.run().done["bronze"] == 50
    assert len(bronze_ids(lake)) == 60
    assert lake.status()["log"] == {"lag": 0, "lost": 0}


@pytest.mark.parametrize("more", [0, 6])
def test_a_topic_made_anew_under_a_running_stream_is_told_and_read_from_its_beginning(
    lake: Lake, admin: AdminClient, kafka_address: str, more: int
) -> None:
    """Also where it ends before the place where the stream was, which Spark waits for without a word."""
    topic = topic_of(lake)
    make_topic(admin, topic)
    send(kafka_address, topic, [chat(n).to_json().encode() for n in range(5)])
    with streaming(lake) as wait:
        wait(lambda: len(bronze_ids(lake)) == 5)
        delete_topic(admin, topic)
        make_topic(admin, topic)
        send(kafka_address, topic, [chat(n).to_json().encode() for n in range(4, 7 + more)])
        wait(lambda: len(bronze_ids(lake)) == 7 + more)
        send(kafka_address, topic, [chat(50).to_json().encode()])
        wait(lambda: "m50" in bronze_ids(lake))
    assert losses(lake) == [(5, None, "the log was made anew")]
    assert len(told(lake, "log.lost")) == 1
    assert lake.status()["duplicates"] == 1


def test_events_that_a_rollback_takes_away_under_a_running_stream_are_read_again(lake: Lake) -> None:
    """Spark's stream knows by heart how far it has read; the table says that it has less."""
    log = log_of(lake)
    assert lake.spark
    with streaming(lake) as wait:
        log.publish([chat(0)])
        wait(lambda: bronze_ids(lake) == ["m0"])
        then = parts_of(lake).catalog.load_table(EVENTS.name).current_snapshot()
        log.publish([chat(1), chat(2)])
        wait(lambda: bronze_ids(lake) == ["m0", "m1", "m2"] and not lake.pending())
        assert then is not None
        lake.spark.sql(f"CALL lake.system.rollback_to_snapshot('{EVENTS.name}', {then.snapshot_id})").collect()
        log.publish([chat(3)])
        wait(lambda: bronze_ids(lake) == ["m0", "m1", "m2", "m3"])
        wait(lambda: not lake.pending())
    assert (lake.status()["duplicates"], losses(lake)) == (0, [])


def test_one_partition_that_was_made_anew_does_not_hide_what_another_holds(
    lake: Lake, admin: AdminClient, kafka_address: str
) -> None:
    topic = topic_of(lake)
    make_topic(admin, topic, partitions=2)
    send(kafka_address, topic, [chat(n).to_json().encode() for n in range(9)], partition=0)
    read_log(lake)
    delete_topic(admin, topic)
    make_topic(admin, topic, partitions=2)
    send(kafka_address, topic, [chat(n).to_json().encode() for n in range(20, 24)], partition=1)
    assert (lake.pending().bronze, lake.status()["log"]["lag"]) == (4, 4)
    read_log(lake)
    assert len(bronze_ids(lake)) == 13


def test_a_compacted_topic_is_refused_and_what_it_dropped_unread_is_told_when_it_is_mended(
    lake: Lake, admin: AdminClient, kafka_address: str
) -> None:
    topic = topic_of(lake)
    make_topic(admin, topic)
    read_log(lake)
    send(kafka_address, topic, [chat(0).to_json().encode()])
    read_log(lake)
    hasten_cleaning(admin)
    compact(lake, admin, kafka_address, first=1)
    with pytest.raises(InvalidRequest, match=r"cleanup\.policy=delete"):
        read_log(lake)
    set_policy(admin, topic, "delete")
    there = {line.offset for line in log_of(lake).read(0, 0, 1_000)}
    gone = {*range(1, max(there))} - there
    assert read_log(lake)["lost"] == len(gone) > 0
    assert {offset for first, until, _ in losses(lake) for offset in range(first, until or 0)} == gone
    assert {cause for _, _, cause in losses(lake)} == {"compacted away"}
    producer = Transactions(kafka_address, topic)
    producer.send([chat(100).to_json().encode()])
    producer.send([chat(n).to_json().encode() for n in range(200, 210)], commit=False)
    producer.send([chat(101).to_json().encode()])
    assert "lost" not in read_log(lake), "marks of transactions that came later are none"
    assert {"m100", "m101"} <= {*bronze_ids(lake)}


def test_a_topic_that_was_compacted_while_nobody_looked_is_told_by_its_gaps(
    lake: Lake, admin: AdminClient, kafka_address: str
) -> None:
    make_topic(admin, topic_of(lake))
    hasten_cleaning(admin)
    compact(lake, admin, kafka_address, first=0)
    set_policy(admin, topic_of(lake), "delete")
    there = {line.offset for line in log_of(lake).read(0, 0, 1_000)}
    assert read_log(lake)["lost"] == len({*range(max(there))} - there)


def test_gaps_that_transactions_leave_are_no_loss(lake: Lake, admin: AdminClient, kafka_address: str) -> None:
    make_topic(admin, topic_of(lake))
    producer = Transactions(kafka_address, topic_of(lake))
    producer.send([chat(0).to_json().encode()])
    producer.send([chat(n).to_json().encode() for n in range(100, 130)], commit=False)
    for number in range(1, 4):
        producer.send([chat(number).to_json().encode()])
    assert "lost" not in read_log(lake)
    assert (bronze_ids(lake), lake.status()["log"]) == (["m0", "m1", "m2", "m3"], {"lag": 0, "lost": 0})


def test_a_topic_that_is_set_to_compact_under_a_running_stream_is_told(
    lake: Lake, admin: AdminClient, kafka_address: str
) -> None:
    make_topic(admin, topic_of(lake))
    with streaming(lake) as wait:
        send(kafka_address, topic_of(lake), [chat(0).to_json().encode()])
        wait(lambda: bronze_ids(lake) == ["m0"])
        set_policy(admin, topic_of(lake), "compact,delete")
        wait(lambda: told(lake, "log.compacted"))
        send(kafka_address, topic_of(lake), [chat(1).to_json().encode()])
        wait(lambda: bronze_ids(lake) == ["m0", "m1"])
    assert "cleanup.policy=delete" in told(lake, "log.compacted")[0]["error"]
    with pytest.raises(InvalidRequest, match="compact"):
        read_log(lake)


def compact(lake: Lake, admin: AdminClient, servers: str, *, first: int) -> None:
    """Have the broker drop most of what it is sent: all but the last event of a key, in segments that are closed."""
    topic = topic_of(lake)
    set_config(admin, ResourceType.TOPIC, topic, **{name.replace(".", "__"): value for name, value in COMPACT.items()})
    wait_until(lambda: "compact" in log_of(lake)._topic_setting("cleanup.policy"))
    send(servers, topic, [chat(n).to_json().encode() for n in range(first, first + 30)])
    numbers = count(first + 30)

    def is_compacted() -> bool:
        send(servers, topic, [chat(next(numbers)).to_json().encode()])  # closes a segment that has got old enough
        return len(log_of(lake).read(0, first, 1_000)) < log_of(lake).end()[0] - first - 20

    wait_until(is_compacted)


def test_a_producer_is_known_by_the_token_in_its_header_and_no_table_has_it(
    stack_engine: None, stack_lake: Settings, kafka_address: str
) -> None:
    token = "token-that-nobody-shall-see"
    rules = {
        "calls": {"customers": ("acme", "beta-*"), "token_sha256": (hashed(token),)},
        "portal": {"customers": ("globex",), "token_sha256": ()},
    }
    components = Components(replace(stack_lake, producers=rules))
    create_tables(components.catalog)
    set_format(components.ledger)
    with Lake(components) as lake:
        topic = topic_of(lake)
        log_of(lake).check_policy()  # makes the topic
        producer = Producer({"bootstrap.servers": kafka_address})
        long = {"thread": "long", "text": "word " * 4_000}
        sent: list[tuple[dict[str, Any], list[tuple[str, str | bytes | None]]]] = [
            ({"event_id": "by token", "customer": "acme"}, [(HEADER, token)]),
            ({"event_id": "long, by token", "customer": "beta-1", **long}, [("other", "x"), (HEADER, token)]),
            ({"event_id": "another's customer", "customer": "globex"}, [(HEADER, token)]),
            ({"event_id": "by its word", "customer": "globex", "producer": "portal"}, []),
            ({"event_id": "a word for a token", "customer": "acme", "producer": "calls"}, []),
            ({"event_id": "a wrong token", "customer": "acme"}, [(HEADER, "guess")]),
            ({"event_id": "no token", "customer": "acme", **long}, [(HEADER, None)]),
        ]
        for fields, headers in sent:
            line = {"occurred_at": "2026-03-01T12:00:00Z", "text": "hello there", **fields}
            producer.produce(topic, json.dumps(line).encode(), key=b"any", partition=0, headers=headers)
        assert producer.flush(30) == 0
        assert lake.run().done["bronze"] == 3
        assert bronze_ids(lake) == ["by its word", "by token", "long, by token"]
        held = {row["event_id"]: row for row in lake.quarantine("FORBIDDEN")["rows"]}
        assert sorted(held) == ["a word for a token", "a wrong token", "another's customer", "no token"]
        assert "calls may not write for" in held["another's customer"]["detail"]
        assert held["no token"]["payload"].count("word ") == 4_000, "all of it is there for a retry"
        rows = (lake.table(name).to_arrow().to_pylist() for name in ("events", "quarantine"))
        assert token not in repr(list(rows))
    own = replace(components.settings, producers={**rules, "calls": {**rules["calls"], "customers": ("*",)}})
    with Lake(Components(own)) as lake:
        assert lake.retry("FORBIDDEN").recovered == 1
        assert "another's customer" in bronze_ids(lake)
    chosen = {**own.chosen, "put.token": Chosen(token, "test")}
    with Lake(Components(replace(own, chosen=chosen))) as lake:
        lake.put_text("hello", customer="whoever", id="put with a token")
        assert lake.run().done["bronze"] == 1
