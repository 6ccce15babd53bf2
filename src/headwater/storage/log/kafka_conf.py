"""How Kafka is reached: one URI and `[kafka.conf]`, told to librdkafka and to Spark's Java client alike.

The section holds librdkafka's names, because the producer reads them as they are. What Java calls otherwise (a CA, a
certificate, a user and password) is translated for Spark, so that one spelling in headwater.toml serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from headwater.errors import InvalidRequest
from headwater.settings import Settings

_LOGIN: Final = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM: Final = "scram.ScramLoginModule"
# What only one of the two clients knows, or what is translated below.
_NOT_JAVA: Final = frozenset(
    {
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "enable.ssl.certificate.verification",
    }
)


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """`kafka://host:port[,host:port]/topic`"""

    servers: str
    topic: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        servers, _, topic = uri.removeprefix("kafka://").strip("/").partition("/")
        if not servers or not topic or "/" in topic or "@" in servers:
            raise InvalidRequest(
                "log.uri must be kafka://host:port[,host:port]/topic; who may come in is said under [kafka.conf]."
            )
        return cls(servers, topic)


def is_kafka(uri: str) -> bool:
    return uri.startswith("kafka://")


def client_conf(place: KafkaPlace, settings: Settings) -> dict[str, str]:
    """What librdkafka is told; the section has the last word."""
    # Its log, such as of every knock at a broker that is still loading, goes to the terminal; what fails is raised.
    own = {"bootstrap.servers": place.servers, "client.id": "headwater", "log_level": "2"}
    return {**own, **settings.section("kafka.conf")}


def spark_options(place: KafkaPlace, settings: Settings) -> dict[str, str]:
    """What Spark's source is told."""
    conf = {"bootstrap.servers": place.servers, **java_conf(settings.section("kafka.conf"))}
    # A producer's transaction that was aborted never happened.
    return {f"kafka.{name}": value for name, value in ({"isolation.level": "read_committed"} | conf).items()}


def java_conf(section: Mapping[str, str]) -> dict[str, str]:
    """Pure but for certificates, which go by content: executors on other machines have no such files."""
    conf = {name: value for name, value in section.items() if name not in _NOT_JAVA}
    mechanism = section.get("sasl.mechanism") or section.get("sasl.mechanisms")
    if mechanism:
        conf["sasl.mechanism"] = mechanism
    if "sasl.username" in section:
        conf["sasl.jaas.config"] = _jaas(mechanism or "PLAIN", section["sasl.username"], _password(section))
    if authority := section.get("ssl.ca.location"):
        conf |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _read(authority, "ssl.ca.location")}
    if certificate := section.get("ssl.certificate.location"):
        conf |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(certificate, "ssl.certificate.location"),
            "ssl.keystore.key": _read(section.get("ssl.key.location", ""), "ssl.key.location"),
        }
    if conf.get("ssl.endpoint.identification.algorithm") == "none":
        conf["ssl.endpoint.identification.algorithm"] = ""
    return conf


def _read(file: str, name: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise InvalidRequest(
            f"[kafka.conf] {name} is {file or 'not set'}: {error.strerror}. Name a PEM file."
        ) from error


def _password(section: Mapping[str, str]) -> str:
    if "sasl.password" not in section:
        raise InvalidRequest("[kafka.conf] has sasl.username and no sasl.password. Set both, or neither.")
    return section["sasl.password"]


def _jaas(mechanism: str, user: str, password: str) -> str:
    module = f"org.apache.kafka.common.security.{_LOGIN.get(mechanism, _SCRAM)}"
    return f"{module} required username={_quoted(user)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
