"""A part of the stack: one server process, how it is had, set up, started and known to be ready."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headwater.stack.process import Command
from headwater.stack.state import LOOPBACK
from headwater.storage.spark.jars import Jar

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Site:
    """What a part is given: the stack's directory, every part's ports, the stack's keys."""

    directory: Path
    ports: Mapping[str, int]
    keys: Mapping[str, str]

    def address(self, port: str) -> str:
        return f"{LOOPBACK}:{self.ports[port]}"


class Part(ABC):
    """One server. `group` is what a user asks for by name: the Spark cluster is one group of three parts."""

    name: ClassVar[str]
    group: ClassVar[str]
    ports: ClassVar[tuple[str, ...]]  # the first is the one clients use
    wave: ClassVar[int] = 0  # started when all earlier waves are ready
    connector: ClassVar[tuple[Jar, ...]] = ()  # what Spark reaches it with, had beforehand like the server itself
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_seconds: ClassVar[float] = 30
    ready_seconds: ClassVar[float] = 120

    def __init__(self, site: Site) -> None:
        self.site = site

    @property
    def directory(self) -> Path:
        return self.site.directory / self.name

    @property
    def address(self) -> str:
        return self.site.address(self.ports[0])

    @property
    @abstractmethod
    def url(self) -> str:
        """What a client is told, credentials included."""

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def prepare(self, report: Report) -> None:
        """Have the software in the user's cache; slow the first time. Raises Unavailable where it cannot be had."""

    @abstractmethod
    def initialise(self) -> None:
        """Make the data directory and the configuration; what is there is kept."""

    @abstractmethod
    def command(self) -> Command: ...

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it does a client's work, not only whether its port is open."""

    def settings(self) -> dict[str, str]:
        """The settings that use it, by name; `spark.conf.<key>` stands for a key of that open section."""
        return {}
