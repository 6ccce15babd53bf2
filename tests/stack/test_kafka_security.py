"""Kafka with TLS, client certificates and SASL: what stands under `[kafka.conf]` lets every client of ours in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from behaviour_pointer_log import event
from own_parts import SecureKafka, make_identity, running, site

from headwater.errors import InvalidRequest
from headwater.settings import Settings, resolve
from headwater.storage.log import kafka_log
from headwater.storage.log.kafka_log import KafkaLog
from headwater.storage.log.stream import stream_log
from headwater.storage.spark.session import start_spark, stop_spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    directory = tmp_path_factory.mktemp("secure")
    with running(SecureKafka(site(SecureKafka, directory), make_identity(directory))) as part:
        assert isinstance(part, SecureKafka)
        yield part


def settings_of(broker: SecureKafka, lake: Path, mechanism: str, **changed: str) -> Settings:
    conf = broker.kafka_conf(mechanism) | {name.replace("_", "."): value for name, value in changed.items()}
    uri = f"kafka://{broker.address}/{mechanism.lower()}"
    return resolve(lake, {"kafka": {"conf": conf}}, {"log.uri": uri, "log.partitions": 2}, {})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_producer_the_reader_and_sparks_stream_are_let_in_by_one_spelling(
    broker: SecureKafka, tmp_path: Path, mechanism: str
) -> None:
    settings = settings_of(broker, tmp_path, mechanism)
    log = KafkaLog(settings.text("log.uri"), settings)
    log.publish([event(number, customer=f"c{number}") for number in range(10)])
    assert sum(log.end().values()) == 10
    assert log.identity()
    assert len(log.read(0, 0, 10)) == log.end()[0]
    assert _streamed(settings, log) == 10


def _streamed(settings: Settings, log: KafkaLog) -> int:
    spark = start_spark(settings)
    try:
        lines = stream_log(spark, settings, log, {}).writeStream.format("memory").queryName("lines")
        lines.option("checkpointLocation", str(settings.lake / "checkpoint")).trigger(availableNow=True).start()
        assert spark.streams.active[0].awaitTermination(120)
        return spark.table("lines").count()
    finally:
        stop_spark(spark)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_with_the_section_to_look_at(
    broker: SecureKafka, tmp_path: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log, "ANSWER_SECONDS", 3.0)
    settings = settings_of(broker, tmp_path, mechanism, sasl_password="wrong")
    with pytest.raises(InvalidRequest, match=r"\[kafka\.conf\]"):
        KafkaLog(settings.text("log.uri"), settings).publish([event(0)])


def test_a_broker_that_nobody_vouches_for_gets_no_password(
    broker: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log, "ANSWER_SECONDS", 3.0)
    (tmp_path / "other").mkdir()
    stranger = make_identity(tmp_path / "other").authority
    settings = settings_of(broker, tmp_path, "PLAIN", ssl_ca_location=str(stranger))
    with pytest.raises(InvalidRequest, match=r"certificate.*\[kafka\.conf\]"):
        KafkaLog(settings.text("log.uri"), settings).publish([event(0)])
