"""What others do to a topic: make it anew, compact it, write to it in transactions."""

from collections.abc import Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from waiting import wait_until

COMPACT = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


def make_topic(admin: AdminClient, topic: str, config: dict[str, str] | None = None, partitions: int = 1) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result()
    wait_until(lambda: topic in admin.list_topics().topics)


def delete_topic(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics().topics)


def set_config(admin: AdminClient, kind: ResourceType, name: str, **values: str) -> None:
    """Names are written with `__` for a dot."""
    entries = [
        ConfigEntry(key.replace("__", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    for changed in admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values():
        changed.result()


def set_policy(admin: AdminClient, topic: str, policy: str) -> None:
    set_config(admin, ResourceType.TOPIC, topic, cleanup__policy=policy)


def hasten_cleaning(admin: AdminClient) -> None:
    set_config(admin, ResourceType.BROKER, "1", log__cleaner__backoff__ms="100")


def send(servers: str, topic: str, values: Sequence[bytes], key: bytes = b"acme", partition: int = 0) -> None:
    """As a plain producer would, which asks nobody how the topic is set up."""
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value, key=key, partition=partition)
    assert producer.flush(30) == 0


class Transactions:
    """A transactional producer of one topic."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": f"t-{topic}"})
        self._producer.init_transactions()
        self._topic = topic

    def send(self, values: Sequence[bytes], *, commit: bool = True) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value, key=b"acme", partition=0)
        self._producer.flush()
        self._producer.commit_transaction() if commit else self._producer.abort_transaction()
