"""The pointer log on Kafka: `kafka://host:port[,host:port]/topic`, keyed by customer.

The producer is idempotent and waits for every replica that is in sync, so an event that was acknowledged is there once
and stays. How long events are kept is the topic's own affair: it is made with `log.retention_hours`, and a topic that
is there already is left as it is, and refused if it is compacted: events are keyed by customer, and all but the last of
each would go. Offsets only grow but may have gaps, where transactions left their marks.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater import telemetry
from headwater.domain.event import EVENT_BYTES_MAX, Event, by_producer
from headwater.domain.producers import HEADER
from headwater.errors import HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.settings import Settings
from headwater.storage.log.kafka_conf import KafkaPlace, client_conf
from headwater.storage.log.pointer_log import Expired, LogLine

T = TypeVar("T")
ANSWER_SECONDS: Final = 30.0  # a broker that restarts is back in ten
LOOK_SECONDS: Final = 0.05
_HOUR_MS: Final = 3_600_000
_TOO_LARGE: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_UNSETTLED: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}
_NOT_FOR_US: Final = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_REFUSED: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


class KafkaLog:
    """A `PointerLog` with as many partitions as the topic has."""

    def __init__(self, uri: str, settings: Settings) -> None:
        self._place = KafkaPlace.parse(uri)
        self._conf: dict[str, Any] = {**client_conf(self._place, settings), "error_cb": self._note_refusal}
        self._refusal: KafkaError | None = None
        self._partitions = settings.whole("log.partitions")
        self._retention_hours = settings.whole("log.retention_hours")
        self._producer_name, token = settings.text("put.producer"), settings.text("put.token")
        self._headers = [(HEADER, token.encode())] if token else []
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._made = False
        self._checked = False

    def publish(self, events: Sequence[Event]) -> None:
        own = by_producer(events, self._producer_name)
        self.publish_raw([(event.customer, _encoded(event)) for event in own], self._headers)

    def publish_raw(self, pairs: Sequence[tuple[str, bytes]], headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Keys and values as any producer might send them. For tests; the port has no such door."""
        if not pairs:
            return
        if not self._checked:
            self.check_policy()
        # One at a time: an answer belongs to the call that waits for it.
        with self._lock, self._translated():
            self._make_topic()
            failures: list[KafkaError] = []
            producer = self._producer = self._producer or Producer(self._conf | _PRODUCER)
            for key, value in pairs:
                self._send(producer, key, value, headers, failures)
            unanswered = producer.flush(ANSWER_SECONDS)
            if unanswered or failures:
                # What is still on its way must not arrive after its sender was told that it failed.
                producer.purge()
                self._producer = None
                raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT))

    def begin(self) -> dict[int, int]:
        return self._offsets(OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end(self) -> dict[int, int]:
        return self._offsets(OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def identity(self) -> str:
        with self._translated():
            self._make_topic()
            return str(_once_settled(self._describe).topic_id)

    def check_policy(self) -> bool:
        policy = self._topic_setting("cleanup.policy")
        if "compact" in policy:
            raise InvalidRequest(
                f"{self._topic_name} has cleanup.policy={policy}: it drops the events of a customer as newer ones come,"
                " read or not. Set it to delete (kafka-configs --alter --entity-type topics --entity-name "
                f"{self._place.topic} --add-config cleanup.policy=delete), then try again."
            )
        self._checked = True
        return bool(policy)

    def fingerprint(self, partition: int, offset: int) -> str | None:
        """Always None: a topic is not set back to an older copy without getting another id."""
        return None

    def read(self, partition: int, offset: int, limit: int) -> list[LogLine]:
        begin, end = self.begin(), self.end()
        if offset < begin.get(partition, 0):
            raise NotFound(f"Offset {offset} has expired; the log begins at {begin[partition]}. Read from there.")
        if limit <= 0 or offset >= end.get(partition, 0):
            return []
        with self._translated(), closing(Consumer(self._conf | _CONSUMER)) as consumer:
            consumer.assign([TopicPartition(self._place.topic, partition, offset)])
            return [_line(message) for message in _messages(consumer, limit)]

    def uncommitted(self, partition: int, first: int, until: int) -> set[int]:
        found: set[int] = set()
        conf = self._conf | _CONSUMER | {"isolation.level": "read_uncommitted"}
        with self._translated(), closing(Consumer(conf)) as consumer:
            consumer.assign([TopicPartition(self._place.topic, partition, first)])
            for message in _messages(consumer, until - first):
                if (offset := message.offset() or 0) >= until:
                    break
                found.add(offset)
        return found

    def expire(self, now: datetime, consumed: Mapping[int, int], *, force: bool = False) -> Expired:
        """The broker does that by the topic's own retention, read or unread; nothing is left to do here."""
        return Expired(removed_events=0, overdue_events=0)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({**self._conf})

    def _send(
        self,
        producer: Producer,
        key: str,
        value: bytes,
        headers: Sequence[tuple[str, bytes]],
        failures: list[KafkaError],
    ) -> None:
        def answered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        while True:
            try:
                producer.produce(self._place.topic, value, key.encode(), headers=list(headers), on_delivery=answered)
                producer.poll(0)
                return
            except BufferError:
                # The queue is full: hear some answers first.
                producer.poll(0.1)

    def _make_topic(self) -> None:
        """Twice is once; only a topic that is not there is made."""
        if self._made:
            return
        topic = self._place.topic
        if topic not in self._admin.list_topics(timeout=ANSWER_SECONDS).topics:
            config = {
                "retention.ms": str(self._retention_hours * _HOUR_MS),
                "cleanup.policy": "delete",
                # Retention then goes by the broker's clock, not by those of many producers.
                "message.timestamp.type": "LogAppendTime",
            }
            new = NewTopic(topic, num_partitions=self._partitions, replication_factor=-1, config=config)
            try:
                self._admin.create_topics([new], request_timeout=ANSWER_SECONDS)[topic].result(ANSWER_SECONDS)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        self._made = True

    def _topic_setting(self, name: str) -> str:
        """Empty where we may not ask."""
        asked = ConfigResource(ResourceType.TOPIC, self._place.topic)
        try:
            with self._translated():
                self._make_topic()
                return str(_once_settled(lambda: self._ask_settings(asked))[name].value)
        except InvalidRequest as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() not in _NOT_FOR_US:
                raise
            telemetry.note("log.policy_unknown", level="warning", error=str(error))
            return ""

    def _ask_settings(self, asked: ConfigResource) -> Any:
        (answer,) = self._admin.describe_configs([asked], request_timeout=ANSWER_SECONDS).values()
        return answer.result(ANSWER_SECONDS)

    def _describe(self) -> Any:
        from confluent_kafka import TopicCollection

        asked = self._admin.describe_topics(TopicCollection([self._place.topic]), request_timeout=ANSWER_SECONDS)
        return asked[self._place.topic].result(ANSWER_SECONDS)

    def _ask_offsets(self, which: OffsetSpec) -> dict[int, int]:
        topic = self._place.topic
        partitions = self._admin.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions
        asked = {TopicPartition(topic, partition): which for partition in partitions}
        found = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
        )
        return {key.partition: answer.result(ANSWER_SECONDS).offset for key, answer in sorted(found.items())}

    def _offsets(self, which: OffsetSpec) -> dict[int, int]:
        with self._translated():
            self._make_topic()
            return _once_settled(lambda: self._ask_offsets(which))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The one place where Kafka's errors become ours."""
        self._refusal = None
        try:
            yield
        except KafkaException as error:
            if "_admin" in vars(self):
                self._admin.poll(0)
            raise self._translation(self._refusal or error.args[0]) from error
        except TimeoutError as error:
            raise Unavailable(f"Kafka at {self._place.servers} did not answer. Try again.") from error

    def _note_refusal(self, error: KafkaError) -> None:
        """The client goes on knocking at a closed door until its time is up; why it is closed is told only here."""
        if error.code() == KafkaError._AUTHENTICATION or "certificate" in error.str():
            self._refusal = error

    @property
    def _topic_name(self) -> str:
        return f"Kafka at {self._place.servers}, topic {self._place.topic}"

    def _translation(self, error: KafkaError) -> HeadwaterError:
        topic = self._topic_name
        if error.code() in _TOO_LARGE:
            return InvalidRequest(f"{topic}: an event is too large for the topic. Send a text that long as a PDF.")
        if error is self._refusal or error.code() in _REFUSED or error.code() == KafkaError._INVALID_ARG:
            return InvalidRequest(f"{topic} refused us: {error.str()}. Check [kafka.conf] in headwater.toml.")
        return Unavailable(f"{topic} failed: {error.str()}. Check that it runs, then try again.")


_PRODUCER: Final = {
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": "5",
    "compression.type": "lz4",
    "delivery.timeout.ms": str(int(ANSWER_SECONDS * 1000)),
    "message.max.bytes": str(EVENT_BYTES_MAX + 4096),
}
_CONSUMER: Final = {
    "group.id": "headwater-peek",
    "enable.auto.commit": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
}


def _once_settled(call: Callable[[], T]) -> T:
    """A topic or partition that was just made is not known to every broker for a moment."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in _UNSETTLED or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)


def _encoded(event: Event) -> bytes:
    try:
        value = event.to_json().encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"An event holds text that is not valid Unicode: {error.reason}.") from error
    if len(value) > EVENT_BYTES_MAX:
        raise InvalidRequest(
            f"The event {event.event_id[:80]} has {len(value)} bytes; at most {EVENT_BYTES_MAX} travel in a log."
        )
    return value


def _messages(consumer: Consumer, limit: int) -> Iterator[Message]:
    """Up to the limit or the partition's end, whichever is first."""
    given = 0
    while given < limit:
        message = consumer.poll(ANSWER_SECONDS)
        if message is None:
            raise TimeoutError
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return
            raise KafkaException(error)
        given += 1
        yield message


def _line(message: Message) -> LogLine:
    _, milliseconds = message.timestamp()
    published_at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    value = (message.value() or b"").decode(errors="replace")
    return LogLine(message.partition() or 0, message.offset() or 0, published_at, value)
