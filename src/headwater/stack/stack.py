"""The stack: start, stop, kill and restart the production parts on this machine, without containers.

Writes  <stack>/stack.json, stack.toml, headwater.toml, logs/<part>.log, and a directory for each part
Invariant: `up` twice is once; what died is started again on its own port and data; only our own processes are ended.
Nobody but the owner reads what is in it.
"""

import re
import shutil
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from headwater.errors import Conflict, InvalidRequest, NotFound, Unavailable
from headwater.setting import Value
from headwater.settings import Settings, resolve
from headwater.stack import process
from headwater.stack.kafka import Kafka
from headwater.stack.lake_file import STACK_FILE, settings_text, write_settings
from headwater.stack.part import Part, Report, Site
from headwater.stack.postgres import Postgres
from headwater.stack.s3 import S3
from headwater.stack.spark import FirstWorker, SecondWorker, SparkMaster
from headwater.stack.state import (
    State,
    claim_directory,
    is_free,
    locked,
    private_directory,
    read_state,
    write_state,
)
from headwater.storage.io.cache import cache_directory
from headwater.storage.spark.jars import resolve_jars

__all__ = ["GROUPS", "PARTS", "Stack", "settings_text"]

# In the order of starting; stopped in reverse.
PARTS: Final[tuple[type[Part], ...]] = (Kafka, S3, Postgres, SparkMaster, FirstWorker, SecondWorker)
GROUPS: Final = tuple(dict.fromkeys(part.group for part in PARTS))
KEYS: Final = ("s3", "postgres")
DEFAULT_DIRECTORY: Final = "stack"
# What was killed may hold its files or its memory for a moment longer: a start that fails is tried again.
START_ATTEMPTS: Final = 3
_RETRY_SECONDS: Final = 1.0
_PORT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1


def _silent(_: str) -> None:
    """For callers that show no progress."""


class Stack:
    """The servers whose data are in one directory. Wherever a name is asked for, a group such as `spark` will do."""

    def __init__(self, directory: Path | str = DEFAULT_DIRECTORY) -> None:
        self.directory = Path(directory).absolute()

    def prepare(self, report: Report = _silent) -> None:
        """Have all software in the user's cache, in minutes the first time, and start nothing. Twice is once."""
        _prepare([part(Site(self.directory, {}, {})) for part in PARTS], report)

    def up(self, only: Iterable[str] = (), report: Report = _silent) -> dict[str, dict[str, Any]]:
        """Start what is not running, wait until all of it is ready, and tell what runs where.

        Raises Unavailable where a part cannot be had or does not get ready, with the end of its log.
        """
        wanted = _chosen(only or GROUPS)
        claim_directory(self.directory)
        with self._changing() as state:
            state.allot((port for part in PARTS for port in part.ports), KEYS)
            self._start([part(self._site(state)) for part in wanted], state, report)
        return self.parts()

    def down(self, *, purge: bool = False) -> list[str]:
        """Stop what runs, and with `purge` delete the directory; the names of what was stopped. Twice is once."""
        if not self._exists():
            return []
        with self._changing() as state:
            stopped = [part.name for part in reversed(PARTS) if self._stop(part, state)]
        if purge:
            shutil.rmtree(self.directory)
        return stopped

    def restart(self, name: str, report: Report = _silent) -> None:
        """Stop it if it runs, then start it on the same port and data, and wait until it is ready."""
        with self._existing() as state:
            wanted = _chosen([name])
            for part in reversed(wanted):
                self._stop(part, state)
            self._start([part(self._site(state)) for part in wanted], state, report)

    def kill(self, name: str) -> None:
        """SIGKILL, as a crash would; its data stay as they are. Twice is once."""
        with self._existing() as state:
            for part in _chosen([name]):
                if known := state.processes.get(part.name):
                    process.kill(known)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Every part that was ever started: its URL with credentials, its pid (None where it does not run), its log."""
        state = read_state(self.directory)
        return {
            part.name: {
                "url": part(self._site(state)).url,
                "version": part(self._site(state)).version(),
                "pid": known.pid if known and process.is_running(known) else None,
                "log": str(self._log(part)),
            }
            for part, known in _begun(state)
        }

    def shown(self) -> dict[str, dict[str, Any]]:
        """The parts as anybody may see them: without passwords."""
        return {name: {**part, "url": re.sub(r":[^:/@]+@", "@", part["url"])} for name, part in self.parts().items()}

    def settings(self, lake: Path, options: Mapping[str, Value] | None = None) -> Settings:
        """The settings of a lake that uses the parts; the stack's directory can be that lake itself."""
        return resolve(lake, tomllib.loads(self.settings_file.read_text(encoding="utf-8")), options or {}, {})

    @property
    def settings_file(self) -> Path:
        """Of the stack; that of the lake in its directory is the user's."""
        return self.directory / STACK_FILE

    def _start(self, parts: list[Part], state: State, report: Report) -> None:
        """Those of a wave at once, because each takes seconds; then wait for each."""
        missing = {part.name for part in parts if not _runs(state, part)}
        _prepare([part for part in parts if part.name in missing], report)
        for wave in sorted({part.wave for part in parts}):
            together = [part for part in parts if part.wave == wave]
            begun = {part.name: self._launch(part, state) for part in together if part.name in missing}
            for part in together:
                self._wait(part, state, begun.get(part.name, 0), report)
        self._write_settings(state, report)

    def _launch(self, part: Part, state: State) -> int:
        """Start the process; where its log begins."""
        self._await_ports(part, state)
        private_directory(part.directory)
        part.initialise()
        log = self._log(type(part))
        private_directory(log.parent)
        process.roll(log)
        begin = log.stat().st_size if log.exists() else 0
        state.processes[part.name] = process.start(part.command(), part.directory, log)
        # At once, so that a process is never forgotten, whatever happens next.
        write_state(self.directory, state)
        return begin

    def _await_ports(self, part: Part, state: State) -> None:
        """The threads of a killed process outlive it by a moment, and hold its ports."""
        deadline = time.monotonic() + _PORT_SECONDS
        while taken := [state.ports[port] for port in part.ports if not is_free(state.ports[port])]:
            if time.monotonic() > deadline:
                raise Conflict(
                    f"Port {taken[0]} of {part.name} is taken by another program; stop that, or make the stack"
                    f" anew: headwater down --dir {self.directory} --purge"
                )
            time.sleep(_POLL_SECONDS)

    def _wait(self, part: Part, state: State, begin: int, report: Report) -> None:
        deadline = time.monotonic() + part.ready_seconds
        attempts = 1
        while not part.is_ready():
            if not _runs(state, part) and attempts < START_ATTEMPTS:
                attempts += 1
                time.sleep(_RETRY_SECONDS)
                self._launch(part, state)
            elif not _runs(state, part) or time.monotonic() > deadline:
                late = f"is not ready after {part.ready_seconds:.0f} s" if _runs(state, part) else "did not stay up"
                log = self._log(type(part))
                raise Unavailable(f"{part.name} {late}. The end of {log}:\n{process.tail(log, begin)}")
            time.sleep(_POLL_SECONDS)
        report(f"{part.name} is ready at {part.address}")

    def _stop(self, part: type[Part], state: State) -> bool:
        """Whether it was running."""
        known = state.processes.get(part.name)
        if known is None:
            return False
        running = process.is_running(known)
        process.stop(known, part.stop_signal, part.stop_seconds)
        state.processes[part.name] = None
        return running

    def _write_settings(self, state: State, report: Report) -> None:
        known = {name: value for part, _ in _begun(state) for name, value in part(self._site(state)).settings().items()}
        write_settings(self.directory, known, report)

    def _site(self, state: State) -> Site:
        return Site(self.directory, state.ports, state.keys)

    def _log(self, part: type[Part]) -> Path:
        return self.directory / "logs" / f"{part.name}.log"

    def _exists(self) -> bool:
        return bool(read_state(self.directory).ports)

    @contextmanager
    def _existing(self) -> Iterator[State]:
        if not self._exists():
            raise NotFound(f"There is no stack in {self.directory}. Start one: headwater up --dir {self.directory}")
        with self._changing() as state:
            yield state

    @contextmanager
    def _changing(self) -> Iterator[State]:
        """The state, kept also when something fails half-way."""
        with locked(self.directory):
            state = read_state(self.directory)
            try:
                yield state
            finally:
                write_state(self.directory, state)


def _prepare(parts: Iterable[Part], report: Report) -> None:
    """One at a time for all stacks of the user, which share the cache."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with locked(cache_directory()):
        for part in parts:
            part.prepare(report)
            resolve_jars(part.connector, report=report)


def _chosen(names: Iterable[str]) -> list[type[Part]]:
    asked = list(names)
    known = {part.name for part in PARTS} | {*GROUPS}
    if unknown := [name for name in asked if name not in known]:
        raise InvalidRequest(f"There is no part {unknown[0]}. The parts: {', '.join(GROUPS)}")
    return [part for part in PARTS if {part.name, part.group} & {*asked}]


def _begun(state: State) -> list[tuple[type[Part], process.Process | None]]:
    return [(part, state.processes[part.name]) for part in PARTS if part.name in state.processes]


def _runs(state: State, part: Part) -> bool:
    known = state.processes.get(part.name)
    return known is not None and process.is_running(known)
