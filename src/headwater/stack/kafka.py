"""Kafka: one node that is broker and controller (KRaft), without authentication, on loopback.

Writes  <cache>/kafka/<version>/*.jar, shared by all stacks of the user; <stack>/kafka
"""

import base64
import hashlib
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, ClassVar, Final

from headwater.errors import Unavailable
from headwater.stack.part import Part, Report
from headwater.stack.process import Command
from headwater.stack.versions import KAFKA, KAFKA_JARS, KAFKA_JARS_SHA256
from headwater.storage.cache import cache_directory
from headwater.storage.jars import spark_home
from headwater.storage.java import check_java

FETCH_SECONDS: Final = 900
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

    @property
    def url(self) -> str:
        return f"kafka://{self.address}/{TOPIC}"

    def version(self) -> str:
        return f"Kafka {KAFKA}"

    def prepare(self, report: Report) -> None:
        if not _jars_directory().is_dir():
            report(f"Fetching Kafka {KAFKA}, 46 MB (once)")
            _fetch(_jars_directory())

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


def _fetch(target: Path) -> None:
    """All jars or none: the directory appears when it is complete and its bytes are the expected ones."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as scratch:
        jars = Path(scratch, "jars")
        log = _run_ivy(Path(scratch), jars)
        found = _digest(jars)
        if found != KAFKA_JARS_SHA256:
            raise Unavailable(
                f"Kafka {KAFKA} did not arrive whole: {len(list(jars.glob('*.jar')))} jars, expected="
                f"{KAFKA_JARS_SHA256[:16]} found={found[:16]}. Check the network and try again. Ivy said: {log[-300:]}"
            )
        jars.rename(target)


def _run_ivy(scratch: Path, jars: Path) -> str:
    """Ivy comes with Spark and knows the public repository, so no host is named here."""
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise Unavailable(f"{spark_home()} has no Ivy to fetch jars with; install pyspark again: make setup")
    wanted = scratch / "ivy.xml"
    wanted.write_bytes(_ivy_file())
    options = ["-error", "-confs", "default", "-cache", str(scratch / "ivy"), "-ivy", str(wanted)]
    retrieve = ["-retrieve", f"{jars}/[artifact]-[revision].[ext]"]
    command = [str(check_java().executable), "-jar", str(ivy), *options, *retrieve]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        return f"nothing for {FETCH_SECONDS} s"
    return done.stdout + done.stderr


def _ivy_file() -> bytes:
    """`default(runtime)`: what is needed to run, not to build or to test."""
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="headwater", module="kafka")
    ET.SubElement(ET.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(module, "dependencies")
    for group, artifact, revision in KAFKA_JARS:
        wanted = {"org": group, "name": artifact, "rev": revision, "conf": "default->default(runtime)"}
        ET.SubElement(dependencies, "dependency", wanted)
    return ET.tostring(module)


def _digest(jars: Path) -> str:
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(jars.glob("*.jar")))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
