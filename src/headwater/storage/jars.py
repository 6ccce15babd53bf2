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
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.errors import Unavailable
from headwater.storage.java import check_java

RESOLVE_SECONDS: Final = 600


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


def cache_directory() -> Path:
    """HEADWATER_CACHE, or `headwater` in the user's cache directory."""
    if chosen := os.environ.get("HEADWATER_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


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
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as scratch:
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
