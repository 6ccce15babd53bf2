"""The pointer log on Kafka: the same promises, and what only a broker has: partitions, retention, a topic made anew."""

import json
from pathlib import Path

import pytest
from behaviour_pointer_log import *  # noqa: F403
from behaviour_pointer_log import event, ids_in, open_log
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from topics import Transactions, delete_topic, make_topic, set_policy
from waiting import wait_until

from headwater.errors import InvalidRequest, NotFound, Unavailable
from headwater.settings import resolve
from headwater.storage.log import kafka_log
from headwater.storage.log.kafka_conf import java_conf
from headwater.storage.log.kafka_log import KafkaLog


@pytest.fixture
def log_uri(kafka_uri: str) -> str:
    return kafka_uri


@pytest.fixture
def admin(kafka_address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_address})


def _topic(uri: str) -> str:
    return uri.rpartition("/")[2]


def _open(uri: str, conf: dict[str, str] | None = None, **options: int) -> KafkaLog:
    named = {f"log.{name}": value for name, value in options.items()}
    return KafkaLog(uri, resolve(Path("lake"), {"kafka": {"conf": conf or {}}}, named, {}))


def test_a_topic_is_made_with_the_settings_of_the_lake_and_one_that_is_there_is_left(
    kafka_uri: str, admin: AdminClient
) -> None:
    for hours in (5, 9):
        _open(kafka_uri, partitions=3, retention_hours=hours).publish([event(hours)])
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, _topic(kafka_uri))]).values()
    assert described.result()["retention.ms"].value == str(5 * 3_600_000)
    assert sorted(_open(kafka_uri).end()) == [0, 1, 2]


def test_events_of_a_customer_stay_in_order_and_customers_spread(kafka_uri: str) -> None:
    log = _open(kafka_uri, partitions=4)
    log.publish([event(number, customer=f"c{number % 8}") for number in range(80)])
    lines = [line for partition in range(4) for line in log.read(partition, 0, 100)]
    assert len(lines) == 80 == sum(log.end().values())
    customers: dict[str, list[int]] = {}
    for line in lines:
        fields = json.loads(line.value)
        customers.setdefault(fields["customer"], []).append(int(fields["event_id"]))
    assert all(numbers == sorted(numbers) and len(numbers) == 10 for numbers in customers.values())
    assert len({line.partition for line in lines}) > 1


def test_an_event_too_large_for_a_log_is_refused_and_nothing_is_published(kafka_uri: str, admin: AdminClient) -> None:
    log = _open(kafka_uri, partitions=1)
    with pytest.raises(InvalidRequest, match="1000000"):
        log.publish([event(0), event(1, "x" * 1_100_000)])
    assert log.end() == {0: 0}
    small = kafka_uri + "-small"
    topic = NewTopic(_topic(small), num_partitions=1, replication_factor=1, config={"max.message.bytes": "10000"})
    admin.create_topics([topic])[_topic(small)].result()
    with pytest.raises(InvalidRequest, match="too large"):
        # What compresses well would fit.
        _open(small).publish([event(0, json.dumps([hash(str(n)) for n in range(4_000)]))])


def test_what_has_expired_is_not_found_and_the_log_says_where_it_begins(kafka_uri: str, admin: AdminClient) -> None:
    from confluent_kafka import TopicPartition

    log = _open(kafka_uri, partitions=1)
    log.publish([event(number) for number in range(5)])
    (gone,) = admin.delete_records([TopicPartition(_topic(kafka_uri), 0, 3)]).values()
    gone.result()
    assert (log.begin(), log.end()) == ({0: 3}, {0: 5})
    with pytest.raises(NotFound, match="begins at 3"):
        log.read(0, 2, 1)
    assert ids_in(log, 3) == ["3", "4"]


def test_partitions_that_were_added_later_are_seen(kafka_uri: str, admin: AdminClient) -> None:
    log = _open(kafka_uri, partitions=1)
    log.publish([event(0)])
    admin.create_partitions([NewPartitions(_topic(kafka_uri), 3)])[_topic(kafka_uri)].result()
    wait_until(lambda: len(log.end()) == 3)
    assert log.end() == {0: 1, 1: 0, 2: 0}


def test_a_topic_made_anew_has_another_identity(kafka_uri: str, admin: AdminClient) -> None:
    log = open_log(kafka_uri)
    log.publish([event(0)])
    before = log.identity()
    delete_topic(admin, _topic(kafka_uri))
    again = open_log(kafka_uri)
    again.publish([event(1)])
    assert again.identity() != before
    assert ids_in(again) == ["1"]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_refused_with_the_way_out_and_taken_once_it_is_mended(
    kafka_uri: str, admin: AdminClient, policy: str
) -> None:
    make_topic(admin, _topic(kafka_uri), {"cleanup.policy": policy})
    log = _open(kafka_uri)
    for call in (lambda: log.publish([event(0)]), log.check_policy):
        with pytest.raises(InvalidRequest, match=r"cleanup\.policy=delete"):
            call()
    assert log.end() == {0: 0}
    set_policy(admin, _topic(kafka_uri), "delete")
    log.publish([event(0)])
    log.check_policy()
    assert ids_in(log) == ["0"]


def test_lines_of_aborted_transactions_are_told_from_what_is_not_there(
    kafka_uri: str, kafka_address: str, admin: AdminClient
) -> None:
    make_topic(admin, _topic(kafka_uri))
    producer = Transactions(kafka_address, _topic(kafka_uri))
    producer.send([b"0", b"1"])
    producer.send([b"3", b"4", b"5"], commit=False)
    producer.send([b"7"])
    log = _open(kafka_uri)
    assert [line.offset for line in log.read(0, 0, 100)] == [0, 1, 7]
    assert log.uncommitted(0, 2, 7) == {3, 4, 5}
    assert log.uncommitted(0, 8, 9) == set()


def test_a_broker_that_does_not_answer_is_unavailable_and_what_failed_never_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_log, "ANSWER_SECONDS", 0.5)
    log = _open("kafka://127.0.0.1:9/events")
    for call in (lambda: log.publish([event(0)]), log.end, log.identity):
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
            call()


def test_a_setting_that_the_client_does_not_know_is_refused(kafka_uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r"kafka\.conf"):
        _open(kafka_uri, {"no.such.setting": "x"}).end()


def test_one_spelling_of_tls_and_sasl_serves_both_clients(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("AUTHORITY")
    (tmp_path / "c.pem").write_text("CERTIFICATE")
    (tmp_path / "k.pem").write_text("KEY")
    section = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'p"w',
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "c.pem"),
        "ssl.key.location": str(tmp_path / "k.pem"),
    }
    assert java_conf(section) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="p\\"w";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "AUTHORITY",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
    }
    with pytest.raises(InvalidRequest, match=r"ssl\.ca\.location"):
        java_conf({"ssl.ca.location": str(tmp_path / "gone.pem")})
    with pytest.raises(InvalidRequest, match=r"no sasl\.password"):
        java_conf({"sasl.username": "me"})
