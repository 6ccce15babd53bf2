"""Kafka: one node that is broker and controller (KRaft), without authentication, on loopback.

Writes  <cache>/kafka/<version>/*.jar, shared by all stacks of the user; <stack>/kafka
"""

import base64
import os
import subprocess
from pathlib import Path
from typing import Any, ClassVar, Final

from headwater.errors import Unavailable
from headwater.stack.ivy import fetch
from headwater.stack.part import Part, Report
from headwater.stack.process import Command
from headwater.stack.versions import KAFKA, KAFKA_JARS_SHA256, KAFKA_MODULES
from headwater.storage.io.cache import cache_directory
from headwater.storage.io.java import check_java
from headwater.storage.spark import jars

HEAP: Final = ("-Xmx256m", "-XX:+UseSerialGC")
TOPIC: Final = "headwater.events"
# A short session lets a broker that was killed come back within seconds; the small buffers fit the small heap.
PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{broker},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=8388608
"""
LOGGING: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


class Kafka(Part):
    name = "kafka"
    group = "kafka"
    ports: ClassVar = ("kafka", "kafka-controller")
    connector = jars.KAFKA

    @property
    def url(self) -> str:
        return f"kafka://{self.address}/{TOPIC}"

    def version(self) -> str:
        return f"Kafka {KAFKA}"

    def prepare(self, report: Report) -> None:
        if not _jars_directory().is_dir():
            report(f"Fetching Kafka {KAFKA}, 46 MB (once)")
            fetch(_jars_directory(), KAFKA_MODULES, KAFKA_JARS_SHA256)

    def initialise(self) -> None:
        self.directory.mkdir(exist_ok=True)
        self._properties.write_text(self.properties())
        self._logging.write_text(LOGGING)
        if not (self._data / "meta.properties").is_file():
            self._format()

    def properties(self) -> str:
        """The broker's own settings; of two lines with one name the later counts."""
        return PROPERTIES.format(broker=self.address, controller=self.site.address("kafka-controller"), data=self._data)

    def client_conf(self) -> dict[str, str]:
        """What librdkafka needs to be let in."""
        return {"bootstrap.servers": self.address}

    def command(self) -> Command:
        return Command([*self._java(), "kafka.Kafka", str(self._properties)])

    def is_ready(self) -> bool:
        """The broker is unfenced and every partition has its leader again."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
        client = AdminClient({**self.client_conf(), **quiet})
        try:
            known = client.list_topics(timeout=2)
        except KafkaException:
            return False
        partitions = [part for topic in known.topics.values() for part in topic.partitions.values()]
        return bool(known.brokers) and all(part.leader >= 0 for part in partitions)

    def settings(self) -> dict[str, str]:
        return {"log.uri": self.url}

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _logging(self) -> Path:
        return self.directory / "log4j.properties"

    def _java(self) -> list[str]:
        logging = f"-Dlog4j.configuration=file:{self._logging}"
        return [str(check_java().executable), *HEAP, logging, "-cp", f"{_jars_directory()}/*"]

    def _format(self, *options: str) -> None:
        # A constant first byte, because an id that begins with a dash would be read as an option.
        cluster = base64.urlsafe_b64encode(b"h" + os.urandom(15)).decode().rstrip("=")
        line = [*self._java(), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)]
        done = subprocess.run([*line, *options], check=False, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"Kafka's data directory could not be made: {(done.stdout + done.stderr)[-500:]}")


def _jars_directory() -> Path:
    return cache_directory() / "kafka" / KAFKA
