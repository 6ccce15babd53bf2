"""Unpacker: between what was found and what is stored, a container is opened and its files are put in its place.

An archive is no object: its files are, below its name as a folder. An e-mail is one, and its attachments are others, in
a folder beside it. What cannot be had of one is a failure of its own, by its name. Containers are opened in a child.
"""

import os
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from headwater.domain.modality import classify
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.flow.child.process import ChildProcess
from headwater.flow.sources import Skipped, Source
from headwater.flow.unpack.child import ARCHIVE, MAIL, parts_folder
from headwater.settings import Settings

CONTAINERS: Final = (ARCHIVE, MAIL)
OBJECTS_MAX: Final = 4  # of the largest size that an object may have: so much is unpacked of one container
HELD_BACK: Final = 16  # sources after which a file that was given out has been stored: more than are stored at a time


@dataclass(frozen=True, slots=True)
class Member(Source):
    """A file out of a container. `file` is where its bytes are for the moment."""

    file: Path = Path()
    of_mail: bool = False

    def open(self) -> BinaryIO:
        if self.error is not None:
            raise self.error
        if self.of_mail and classify(self.path.name) is None:
            raise Skipped(f"{self.path} is not a kind of file that is taken: it stays in its e-mail.")
        return self.file.open("rb")


@dataclass(frozen=True, slots=True)
class Unpacker:
    """Limits of what is unpacked of one container, as the settings say them of an object."""

    child_mb: int
    object_mb: int
    seconds: float
    variables: str = ""

    @classmethod
    def from_settings(cls, settings: Settings) -> "Unpacker":
        limits = (settings.whole("limits.child_mb"), settings.whole("limits.object_mb"))
        return cls(*limits, settings.number("limits.object_seconds"))

    def unpacked(self, sources: Iterable[Source], held: ExitStack, *, alone: bool) -> Iterator[Source]:
        """The same, with what is in containers. `held` keeps files until it is closed at the latest: not before all of
        them are stored. `alone`: there is one id for all that is put."""
        given: deque[tuple[int, tempfile.TemporaryDirectory[str]]] = deque()
        child: ChildProcess | None = None
        for count, (source, kind) in enumerate((source, _container_of(source)) for source in sources):
            if kind != ARCHIVE:
                yield source
            elif alone:
                yield _refused(source, "--id names one file; an archive holds many. Leave --id out.")
                continue
            if kind:
                if child is None or not child.is_alive:
                    child = self._started(held)
                folder = tempfile.TemporaryDirectory(prefix="headwater-unpack-")
                held.callback(folder.cleanup)
                yield from self._members(child, source, kind, Path(folder.name))
                given.append((count, folder))
            while given and count - given[0][0] > HELD_BACK:
                given.popleft()[1].cleanup()

    def _started(self, held: ExitStack) -> ChildProcess:
        config = {"child_mb": self.child_mb, "bytes_max": (self.object_mb << 20) * OBJECTS_MAX}
        child = ChildProcess("headwater.flow.unpack.child", config, self.variables)
        held.callback(child.end)
        return child

    def _members(self, child: ChildProcess, source: Source, kind: str, folder: Path) -> Iterator[Source]:
        try:
            stream = source.open()
        except (HeadwaterError, Skipped):
            if kind == ARCHIVE:
                yield source  # who stores it is told the same
            return
        with stream:
            modified = os.fstat(stream.fileno()).st_mtime
            child.send({"file": f"/proc/{os.getpid()}/fd/{stream.fileno()}", "folder": str(folder), "kind": kind})
            for told in self._told(child):
                if not told.get("names") and kind == MAIL:
                    continue  # of an e-mail that cannot be read the run will tell, as of any other object
                yield _member(source, kind, told, folder, modified)

    def _told(self, child: ChildProcess) -> Iterator[dict[str, Any]]:
        """Only what is waited for counts as unpacking: between two of them the first is stored, however slowly."""
        left = self.seconds
        while True:
            begun = time.monotonic()
            data = child.receive(begun + left)
            left -= time.monotonic() - begun
            try:
                messages = child.unpack(data) if data else None
            except (ValueError, RecursionError):
                messages = None
            if messages is None:
                slow = f"It takes longer than limits.object_seconds, {self.seconds:g} s." if data is None else ""
                child.process.kill()
                child.process.wait()  # else it would seem alive to the next container, and take it along
                yield {"names": [], "failed": slow or f"Unpacking it failed: {child.how_it_died()}."}
                return
            for told in messages:
                if told.get("done"):
                    return
                yield told


def _container_of(source: Source) -> str | None:
    suffix = source.path.suffix.lower()
    return suffix if suffix in CONTAINERS and source.error is None else None


def _member(source: Source, kind: str, told: dict[str, Any], folder: Path, modified: float) -> Source:
    """Named as if the container were a folder."""
    root, above = (source.root, source.parts) if source.parts else (str(source.path.parent), (source.path.name,))
    within = (*above[:-1], parts_folder(above[-1])) if kind == MAIL else above
    parts = (*within, *told["names"])
    if reason := told.get("failed"):
        path = Path(root, *parts)
        return Member(root, parts, error=InvalidRequest(f"{path} cannot be put. {reason}"), part_of="/".join(above))
    file = folder / told["file"]
    os.utime(file, (modified, modified))  # what was in it is of its day
    return Member(root, parts, part_of="/".join(above), file=file, of_mail=bool(told.get("of_mail")))


def _refused(source: Source, why: str) -> Source:
    return Source(source.root, source.parts, source.follow_links, InvalidRequest(why))
