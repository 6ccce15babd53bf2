"""Doctor: whether what a lake needs is there and answers, told before anybody waits for it.

Reads   the machine (Java, jars, class archive, disk, loopback), the settings, and every part of the lake, a little
Writes  one small file into the lake's directory, synced and removed
Invariant: starts no JVM, changes nothing that a lake keeps, and raises nothing: what is wrong is a line, with the next
move.
"""

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from headwater.domain.producers import Rules, hashed
from headwater.domain.steps import CHOICES
from headwater.domain.tables import EVENTS
from headwater.errors import HeadwaterError, describe
from headwater.flow.drive.register_models import check_cards
from headwater.producer_section import ANYBODY
from headwater.settings import Settings, masked
from headwater.storage.io.java import check_java
from headwater.storage.log.kafka_conf import is_kafka
from headwater.storage.spark.jars import jars_directory, jars_for
from headwater.storage.spark.jvm import archive_file
from headwater.storage.tables.catalog import load as load_table
from headwater.upkeep.format import check_format
from headwater.upkeep.parts import Parts

State = Literal["ok", "warn", "bad"]

FREE_BYTES_MIN: Final = 1 << 30  # a run's shuffles and a commit's files have no room in less
FREE_BYTES_FEW: Final = 10 << 30
SYNC_SECONDS_SLOW: Final = 0.2  # a commit syncs a dozen files
ANSWER_SECONDS_SLOW: Final = 2.0
CLOCK_SECONDS_OFF: Final = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and the next move where there is one."""

    about: str
    state: State
    detail: str
    next_move: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(parts: Parts, environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Every finding, the machine's first."""
    looks: dict[str, Callable[[], Iterator[Finding]]] = {
        "java": lambda: _java(parts),
        "disk": lambda: _disk(parts.settings.lake),
        "temporary files": lambda: _room("temporary files", Path(tempfile.gettempdir())),
        "loopback": _loopback,
        "variables": lambda: _variables(parts, environment),
        "producers": lambda: _producers(parts.settings),
        "ledger": lambda: _answers("ledger", "ledger.uri", parts, lambda: check_format(parts.ledger)),
        "catalog": lambda: _answers("catalog", "catalog.uri", parts, lambda: load_table(parts.reader, EVENTS.name)),
        "raw": lambda: _answers("raw", "raw.uri", parts, lambda: next(iter(parts.raw_store.list()), None)),
        "log": lambda: _answers("log", "log.uri", parts, parts.log.end),
        "index": lambda: _answers("index", "index.uri", parts, parts.index.count),
        "models": lambda: _models(parts),
    }
    return [finding for about, look in looks.items() for finding in _caught(about, look)]


def _caught(about: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except HeadwaterError as error:
        yield Finding(about, "bad", str(error))
    except Exception as error:
        yield Finding(about, "bad", describe(error))


def _java(parts: Parts) -> Iterator[Finding]:
    java = check_java()
    yield Finding("java", "ok", f"{java.version} at {java.executable}")
    jars = [jars_directory() / jar.file_name for jar in jars_for(parts.settings)]
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        yield Finding("jars", "warn", f"{len(missing)} of {len(jars)} are not here yet", "The first run fetches them.")
        return
    yield Finding("jars", "ok", f"{len(jars)} in {jars_directory()}")
    archive = archive_file(java, jars)
    if archive.is_file():
        yield Finding("class archive", "ok", str(archive))
    else:
        way = "Runs start at half the speed without it: python -m headwater.storage.spark.class_archive"
        yield Finding("class archive", "warn", f"{archive} is not there", way)


def _disk(lake: Path) -> Iterator[Finding]:
    yield from _room("disk", lake)
    begun = time.monotonic()
    try:
        with tempfile.NamedTemporaryFile(dir=lake, prefix=".doctor-") as file:
            file.write(b"well")
            file.flush()
            os.fsync(file.fileno())
            seconds, off = time.monotonic() - begun, os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        way = "It can be read; to put and to run, make it writable."
        yield Finding("disk", "warn", f"{lake} cannot be written: {error.strerror}", way)
        return
    slow = seconds > SYNC_SECONDS_SLOW
    yield Finding("sync", "warn" if slow else "ok", f"{seconds * 1000:.0f} ms", "Commits wait for it." if slow else "")
    state: State = "bad" if abs(off) > CLOCK_SECONDS_OFF else "ok"
    yield Finding("clock", state, f"the disk's is {off:+.1f} s off", "Set both by NTP." if state == "bad" else "")


def _room(about: str, directory: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(directory).free
    state: State = "bad" if free < FREE_BYTES_MIN else "warn" if free < FREE_BYTES_FEW else "ok"
    way = "" if state == "ok" else f"Make room: below {FREE_BYTES_MIN >> 30} GB runs fail."
    yield Finding(about, state, f"{free / (1 << 30):,.1f} GB free at {directory}", way)


def _loopback() -> Iterator[Finding]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        with socket.create_connection(found.getsockname(), timeout=5):
            yield Finding("loopback", "ok", "Spark and Python can talk to one another")


def _variables(parts: Parts, environment: Mapping[str, str]) -> Iterator[Finding]:
    for sentence in parts.settings.unheeded_variables(environment):
        yield Finding("variables", "warn", sentence)


def _producers(settings: Settings) -> Iterator[Finding]:
    rules, on_kafka = Rules.of(settings), is_kafka(settings.text("log.uri"))
    for producer in rules.producers.values():
        told = f"{producer.name} may write for {', '.join(producer.customers) or 'nobody'}"
        if producer.tokens and not on_kafka:
            way = "Leave its token_sha256 out: whoever may write to the log's directory is trusted."
            yield Finding(
                "producers", "warn", f"{told}; this log has no headers, and so nobody is known by a token", way
            )
        elif on_kafka and not producer.tokens and producer.name != ANYBODY:
            way = f"Give it a token: [producers.{producer.name}] token_sha256."
            yield Finding("producers", "warn", f"{told}; it is known by a word that anybody may write", way)
        else:
            yield Finding("producers", "ok", told)
    own, token = settings.text("put.producer"), settings.text("put.token")
    given = json.dumps({"producer": own}).encode()
    if rules and rules.producer_of(given, hashed(token) if on_kafka and token else None) == ANYBODY:
        way = "Set put.producer to a name of [producers], and on Kafka put.token where that has one."
        yield Finding("producers", "warn", "what is put from here is known by no producer's name", way)


def _answers(about: str, setting: str, parts: Parts, ask: Callable[[], object]) -> Iterator[Finding]:
    begun = time.monotonic()
    ask()
    seconds = time.monotonic() - begun
    state: State = "warn" if seconds > ANSWER_SECONDS_SLOW else "ok"
    yield Finding(about, state, f"{masked(parts.settings.text(setting))} answers in {seconds * 1000:.0f} ms")


def _models(parts: Parts) -> Iterator[Finding]:
    for sentence in parts.settings.fallbacks():
        yield Finding("models", "warn", sentence)
    for step in CHOICES:
        yield from _caught(f"model of {step}", partial(_model, parts, step))


def _model(parts: Parts, step: str) -> Iterator[Finding]:
    for card in check_cards(parts.settings, parts.book(), step):
        yield Finding(f"model of {step}", "ok", f"{card.label} ({card.fingerprint})")
