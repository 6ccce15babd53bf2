"""Lake places: what belongs to a lake itself, and is never put into one.

A lake's parts lie in its directory or wherever its settings say. Raw objects that were put once more, as another
customer's perhaps, would be taken for new; so the parts of every lake in sight are left out: of the lake that is put
into, of those above what was named, and of those below it. Reads nothing but `headwater.toml` files.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from headwater.errors import HeadwaterError
from headwater.settings import FILE_NAME, Settings, load, resolve
from headwater.storage.io.local_path import local_path

_PARTS: Final = (
    "raw.uri", "log.uri", "catalog.uri", "catalog.warehouse", "ledger.uri", "index.uri", "memo.uri", "checkpoints.uri",
)  # fmt: skip
_LOGS: Final = "logs"
_BESIDE: Final = ("-wal", "-shm", "-journal")  # what SQLite keeps beside its file


class LakePlaces:
    """Grows as lakes are found. Paths are compared without links, so that none leads around it."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._lakes: set[str] = set()
        self._parts: dict[str, str] = {}  # of a lake
        self._asked: dict[str, str | None] = {}
        if settings is not None:
            self._learn(settings)

    def look_above(self, path: str) -> None:
        """Find the lakes that a path lies in."""
        real = Path(os.path.realpath(path))
        for directory in (real, *real.parents):
            self._look_in(directory)

    def look_below(self, folder: str, *, follow_links: bool) -> None:
        """Find the lakes in a folder before anything in it is taken: the parts of one may lie beside it."""
        for directory in _folders(folder, follow_links=follow_links):
            self._look_in(directory)

    def lake_of(self, path: str | Path) -> str | None:
        """The lake that the file or folder is a part of."""
        if not self._parts:
            return None
        folder, name = os.path.split(path)
        real = os.path.join(os.path.realpath(folder or "."), name)
        return (
            self._parts.get(real) or self._parts.get(os.path.realpath(path)) or self._of_folder(os.path.dirname(real))
        )

    def _of_folder(self, folder: str) -> str | None:
        if folder not in self._asked:
            above = os.path.dirname(folder)
            self._asked[folder] = self._parts.get(folder) or (self._of_folder(above) if above != folder else None)
        return self._asked[folder]

    def _look_in(self, directory: Path) -> None:
        if os.path.realpath(directory) in self._lakes or not os.path.isfile(directory / FILE_NAME):
            return
        try:
            settings = load(directory, environment={})
        except (HeadwaterError, OSError):  # whatever it says, its own directory is no place for recordings
            settings = resolve(directory, {}, {}, {})
        self._learn(settings)

    def _learn(self, settings: Settings) -> None:
        lake = os.path.realpath(settings.lake)
        self._lakes.add(lake)
        self._asked.clear()
        for place in (*_local(settings), f"{lake}/{FILE_NAME}", f"{lake}/{_LOGS}"):
            for part in (place, *(place + ending for ending in _BESIDE)):
                self._parts.setdefault(os.path.realpath(part), lake)


def _local(settings: Settings) -> Iterable[str]:
    """The parts that are files and directories of this machine."""
    for name in _PARTS:
        scheme, separator, rest = settings.text(name).partition("://")
        if not separator or scheme == "file":
            yield local_path(settings.text(name))
        elif scheme == "sqlite":
            yield "/" + rest.partition("?")[0].lstrip("/")


def _folders(folder: str, *, follow_links: bool) -> Iterator[Path]:
    """The folder and those below it, but hidden ones, which are not taken anyway; one that cannot be read has none."""
    waiting, seen = [folder], set[str]()
    while waiting:
        path = waiting.pop()
        if follow_links:
            if (real := os.path.realpath(path)) in seen:
                continue
            seen.add(real)
        yield Path(path)
        try:
            with os.scandir(path) as entries:
                waiting += [
                    one.path for one in entries if one.name[0] != "." and one.is_dir(follow_symlinks=follow_links)
                ]
        except (OSError, ValueError):
            continue
