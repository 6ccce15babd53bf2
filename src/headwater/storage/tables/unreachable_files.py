"""Unreachable: the files that nothing needs any more once some snapshots have expired.

By reachability alone, wherever a snapshot stands: on the line of the current one, on a branch, or beside both. A
manifest goes when an expired snapshot has it and no kept one does. A file that it names goes too, unless a manifest of
a kept snapshot has it live: merging carries files over from manifest to manifest.
What cannot be read is left, with all that it names: an orphan costs money, a missing file costs a table.

A list is read once and a manifest at most twice: when it goes, and once while it is kept, if a file that may go could
be in it. So the work for a commit follows what commits write, however much the table has.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from headwater.settings import Settings
from headwater.storage.io.local_path import local_path
from headwater.storage.io.s3 import one_spelling
from headwater.storage.tables.metadata import Metadata

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile

T = TypeVar("T")
Manifests: TypeAlias = "Mapping[str, ManifestFile]"  # by their location, in one spelling
_AT_ONCE: Final = 8
_REMEMBERED: Final = 4_000_000  # live files in kept manifests of one table: 32 MB


@dataclass(frozen=True, slots=True)
class Unreachable:
    """`unread` are lists and manifests of expired snapshots that could not be read, so they are left."""

    files: Sequence[str]
    unread: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Entry:
    """`since` is the sequence number of the commit that added the file; 0 where it is not told."""

    location: str
    live: bool
    since: int


class ReachableFiles:
    """What the kept snapshots of one table reach; remembers what it read of them. Threads may share it."""

    def __init__(self, io: "FileIO") -> None:
        self._io = io
        self._lock = threading.Lock()
        self._lists: dict[str, Manifests] = {}
        # Files by their hash, for room: two that share one only leave an orphan.
        self._live: dict[str, npt.NDArray[np.int64]] = {}

    def unreachable(self, kept: Sequence[Metadata], expired: Sequence[Metadata]) -> Unreachable:
        """Manifest lists, manifests, data files and delete files that the expired snapshots alone needed.

        Raises where a list or a manifest of a kept one cannot be read: then nothing can be told.
        """
        with self._lock:
            held = self._read_kept(kept)
            lists, unread_lists = _outcomes(self._read_list, _lists_of(expired) - _lists_of(kept))
            dead = {key: one for named in lists.values() for key, one in named.items() if key not in held}
            entries, unread = _outcomes(lambda key: self._read_entries(dead[key]), dead)
            candidates = {_normalized(entry.location): entry for found in entries.values() for entry in found}
            data = self._not_live(candidates, held, self._lists[kept[-1]["manifest-list"]] if kept else {})
        manifests = [dead[key].manifest_path for key in entries]
        return Unreachable([*data, *manifests, *lists], [*unread_lists, *(dead[key].manifest_path for key in unread)])

    def _read_kept(self, kept: Sequence[Metadata]) -> "dict[str, ManifestFile]":
        """All manifests of these snapshots; what was read of others is forgotten."""
        names = _lists_of(kept)
        unknown = sorted(names - self._lists.keys())
        known = {name: named for name, named in self._lists.items() if name in names}
        held = {key: one for named in known.values() for key, one in named.items()}
        for name, named in zip(unknown, _in_parallel(self._read_list, unknown), strict=True):
            # Lists name the same manifests again and again; each is kept in memory once.
            known[name] = {key: held.setdefault(key, one) for key, one in named.items()}
        self._lists = known
        self._live = {key: files for key, files in self._live.items() if key in held}
        return held

    def _read_list(self, location: str) -> Manifests:
        from pyiceberg.manifest import read_manifest_list

        found = read_manifest_list(self._io.new_input(location))
        return {_normalized(one.manifest_path): one for one in found}

    def _not_live(self, candidates: Mapping[str, _Entry], held: Manifests, newest: Manifests) -> list[str]:
        """Those that no kept manifest has live."""
        left = {hash(key): entry.location for key, entry in candidates.items()}
        oldest = min((entry.since for entry in candidates.values()), default=0)
        # A manifest that was written before a file cannot name it.
        possible = [one for one in held.values() if _live_count(one) != 0 and (one.sequence_number or 0) >= oldest]
        # What was merged is, as a rule, in the newest snapshot, in a manifest that names many.
        possible.sort(key=lambda one: (_normalized(one.manifest_path) not in newest, -(_live_count(one) or 0)))
        for start in range(0, len(possible), _AT_ONCE):
            if not left:
                break
            for live in _in_parallel(self._live_files, possible[start : start + _AT_ONCE]):
                for found in live[np.isin(live, np.fromiter(left, np.int64, len(left)))].tolist():
                    left.pop(found, None)
        return sorted(left.values())

    def _live_files(self, manifest: "ManifestFile") -> npt.NDArray[np.int64]:
        key = _normalized(manifest.manifest_path)
        if (known := self._live.get(key)) is not None:
            return known
        live = [hash(_normalized(entry.location)) for entry in self._read_entries(manifest) if entry.live]
        found = np.array(live, np.int64)
        if len(found) + sum(map(len, list(self._live.values()))) <= _REMEMBERED:
            self._live[key] = found
        return found

    def _read_entries(self, manifest: "ManifestFile") -> list[_Entry]:
        """All that it names, those too that its snapshot took out."""
        from pyiceberg.manifest import ManifestEntryStatus

        found = [
            _Entry(one.data_file.file_path, one.status != ManifestEntryStatus.DELETED, one.file_sequence_number or 0)
            for one in manifest.fetch_manifest_entry(self._io, discard_deleted=False)
        ]
        listed = _live_count(manifest)
        # A file that was cut off between two blocks reads well, and hides what is needed.
        if listed is not None and listed != sum(entry.live for entry in found):
            raise ValueError(f"{manifest.manifest_path} has other files than its manifest list says.")
        return found


def _lists_of(snapshots: Iterable[Metadata]) -> set[str]:
    return {one["manifest-list"] for one in snapshots}


def _live_count(manifest: "ManifestFile") -> int | None:
    """None in lists from before it was counted."""
    added, existing = manifest.added_files_count, manifest.existing_files_count
    return None if added is None or existing is None else added + existing


def _outcomes(read: Callable[[str], T], names: Iterable[str]) -> tuple[dict[str, T], list[str]]:
    """What was read, and the names of what could not be."""

    def attempt(name: str) -> tuple[str, list[T]]:
        try:
            return name, [read(name)]
        except Exception:  # of a disk, an object store or Avro
            return name, []

    done = _in_parallel(attempt, sorted(names))
    return {name: found[0] for name, found in done if found}, [name for name, found in done if not found]


def _in_parallel(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    with ThreadPoolExecutor(_AT_ONCE, "expiry") as pool:
        return list(pool.map(work, items))


def _normalized(location: str) -> str:
    """One spelling for one file, whoever wrote it down."""
    return one_spelling(local_path(location))


def warehouse_io(settings: Settings) -> "FileIO":
    """PyIceberg's way to the warehouse's files, for reading."""
    from headwater.storage.io.s3 import S3Target, is_s3
    from headwater.storage.tables.catalog import warehouse_uri

    warehouse = warehouse_uri(settings)
    if not is_s3(warehouse):
        from headwater.storage.tables.local_file_io import LocalFiles

        return LocalFiles()
    from pyiceberg.io import load_file_io

    return load_file_io(S3Target.from_settings(warehouse, settings, "catalog.warehouse").iceberg(), warehouse)
