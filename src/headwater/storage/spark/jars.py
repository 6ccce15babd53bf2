"""Jars: the Java libraries that Spark needs beside its own, resolved once per user.

Writes  <cache>/jars/<artifact>-<revision>.jar, shared by every clone and environment of the user
Key     file name; the SHA-256 is checked when a jar arrives, so a file that is there is the right one.

The cache stands outside the clone because the jars are 60 MB that never change: a second clone, or an environment made
with pip, starts without the network.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.errors import HeadwaterError, Unavailable
from headwater.settings import Settings
from headwater.storage.io.cache import cache_directory, remove_unfinished
from headwater.storage.io.java import check_java
from headwater.storage.io.s3 import is_s3

RESOLVE_SECONDS: Final = 600
FETCHING: Final = ".fetching-"


@dataclass(frozen=True, slots=True)
class Jar:
    """One file, without what it depends on: each dependency is named here or shipped by Spark."""

    group: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.revision}.jar"


EMBEDDED: Final = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.0_2.13",
        "1.11.0",
        "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.50.3.0",
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    ),
)

KAFKA: Final = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.0.0",
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.0",
        "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.0",
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    ),
)
POSTGRES: Final = (
    Jar(
        "org.postgresql",
        "postgresql",
        "42.7.8",
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    ),
)
S3: Final = (
    Jar(
        "org.apache.iceberg",
        "iceberg-aws-bundle",
        "1.11.0",
        "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
    ),
)


CONNECTORS: Final = (*KAFKA, *POSTGRES, *S3)


def jars_directory() -> Path:
    return cache_directory() / "jars"


def spark_home() -> Path:
    """Where Spark is, found without importing pyspark, which takes half a second."""
    if chosen := os.environ.get("SPARK_HOME"):
        return Path(chosen)
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("pyspark is not installed in this environment; install Headwater again: make setup")
    return Path(found.origin).parent


def jars_for(settings: Settings) -> tuple[Jar, ...]:
    """Those of the embedded lake, and those that the URIs in the settings call for."""
    chosen = [*EMBEDDED]
    if settings.text("log.uri").startswith("kafka://"):
        chosen += KAFKA
    if settings.text("catalog.uri").startswith(("postgresql://", "postgres://")):
        chosen += POSTGRES
    if is_s3(settings.text("catalog.warehouse")):
        chosen += S3
    return tuple(chosen)


def packages_of(jars: Iterable[Jar]) -> str:
    """As `spark.jars.packages` names them."""
    return ",".join(f"{jar.group}:{jar.artifact}:{jar.revision}" for jar in jars)


def resolve_jars(jars: Iterable[Jar] = EMBEDDED, *, report: Callable[[str], None] = lambda _: None) -> list[Path]:
    """The jars' files in the order given, fetching what is missing; raises Unavailable where it cannot be had."""
    files = {jar: jars_directory() / jar.file_name for jar in jars}
    missing = [jar for jar, file in files.items() if not file.is_file()]
    if missing:
        report(f"Fetching {', '.join(jar.file_name for jar in missing)} (once)")
    for jar in missing:
        _fetch(jar, files[jar])
    return list(files.values())


def _fetch(jar: Jar, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(target.parent, FETCHING)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=FETCHING) as scratch:
        log = _run_ivy(jar, Path(scratch))
        arrived = Path(scratch) / jar.file_name
        if not arrived.is_file():
            raise Unavailable(
                f"{jar.file_name} could not be fetched; check the network and try again, or copy it to {target.parent}."
                f" Ivy said: {_last_line(log)}"
            )
        with arrived.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != jar.sha256:
            raise Unavailable(
                f"{jar.file_name} arrived with other bytes than expected. expected={jar.sha256} found={found}."
                " Try again, or ask who runs the mirror."
            )
        arrived.replace(target)


def _run_ivy(jar: Jar, scratch: Path) -> str:
    """Ivy comes with Spark and knows the public repository, so no host is named here."""
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise Unavailable(f"{spark_home()} has no Ivy to fetch jars with; install pyspark again: make setup")
    options = ["-warn", "-notransitive", "-confs", "default", "-cache", str(scratch / "ivy")]
    wanted = ["-dependency", jar.group, jar.artifact, jar.revision]
    retrieve = ["-retrieve", f"{scratch}/[artifact]-[revision].[ext]"]
    command = [str(check_java().executable), "-jar", str(ivy), *options, *wanted, *retrieve]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=RESOLVE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"nothing for {RESOLVE_SECONDS} s"
    return done.stdout + done.stderr


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip(" .\t")]
    telling = [line for line in lines if "Exception" in line or "not found" in line or "error" in line.lower()]
    return (telling or lines or ["nothing"])[-1][:200]


if __name__ == "__main__":  # set-up's: a lake may then change over to servers without a network
    try:
        resolve_jars(CONNECTORS)
    except HeadwaterError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
