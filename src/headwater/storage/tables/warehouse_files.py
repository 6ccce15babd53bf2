"""The warehouse's files as they are: read, written and deleted whole, and made to last before a catalog names them.

A file system keeps only what it was told to sync: after a power cut a catalog would name empty files. An object store
keeps what it has answered for. `catalog.sync = false` leaves it to the system's cache.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.errors import Unavailable
from headwater.settings import Settings
from headwater.storage.io.local_path import local_path
from headwater.storage.io.s3 import S3Target, is_s3
from headwater.storage.io.whole_file import removed_where_it_fails

if TYPE_CHECKING:
    from obstore.store import S3Store

_AT_ONCE: Final = 8  # a disk syncs several files at once, and an object store answers to many


class WarehouseFiles:
    """By whole location, in any spelling: `file:///a`, `file:/a`, `/a`, `s3://b/a`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._syncs = bool(settings["catalog.sync"])
        self._lasting: set[str] = set()  # directories whose own entry is known to be synced

    def read(self, location: str) -> bytes:
        """FileNotFoundError where there is none."""
        with _translated(location):
            if is_s3(location):
                store, key = self._store(location)
                return bytes(store.get(key).bytes())
            with open(local_path(location), "rb") as file:
                return file.read()

    def write(self, location: str, data: bytes) -> None:
        """A new file, which lasts when this returns."""
        with _translated(location):
            if is_s3(location):
                store, key = self._store(location)
                store.put(key, data)
                return
            path = local_path(location)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with removed_where_it_fails(Path(path)), open(path, "wb") as file:
                file.write(data)
        self.sync([location])

    def missing(self, locations: Iterable[str]) -> set[str]:
        """Those that are not there; asked several at a time."""
        wanted = sorted(set(locations))
        with ThreadPoolExecutor(_AT_ONCE, "files") as pool:
            return {
                location for location, there in zip(wanted, pool.map(self._is_there, wanted), strict=True) if not there
            }

    def list(self, folder: str) -> Iterator[str]:
        """Every file under a location, at any depth; none where there is no such place."""
        with _translated(folder):
            if is_s3(folder):
                store, prefix = self._store(folder)
                bucket = folder.partition("://")[2].partition("/")[0]
                for page in store.list(f"{prefix.rstrip('/')}/"):
                    yield from (f"s3://{bucket}/{found['path']}" for found in page)
                return
            for directory, _, names in os.walk(local_path(folder)):
                yield from (f"file://{os.path.join(directory, name)}" for name in names)

    def sync(self, locations: Iterable[str]) -> None:
        """Files that others wrote on this machine, Spark's tasks among them, and the directories they are in."""
        paths = [local_path(location) for location in locations if not is_s3(location)] if self._syncs else []
        if not paths:
            return
        with _translated(paths[0]):
            _each(_fsync, [*paths, *filter(os.path.exists, map(_checksums, paths))])
            for directory in {os.path.dirname(path) for path in paths}:
                self._sync_directory(directory)

    def delete(self, locations: Iterable[str]) -> None:
        """Twice is once; what cannot be deleted is left."""
        _each(self._delete, list(locations))

    def _is_there(self, location: str) -> bool:
        with _translated(location):
            if not is_s3(location):
                return os.path.isfile(local_path(location))
            store, key = self._store(location)
            with suppress(FileNotFoundError):
                store.head(key)
                return True
            return False

    def _delete(self, location: str) -> None:
        with suppress(OSError, Unavailable), _translated(location):
            if is_s3(location):
                store, key = self._store(location)
                store.delete(key)
            else:
                os.unlink(local_path(location))

    def _sync_directory(self, directory: str) -> None:
        """Its entries; and the entry of each directory above that may be as new as itself."""
        _fsync(directory)
        while directory not in self._lasting and directory != os.path.dirname(directory):
            self._lasting.add(directory)
            directory = os.path.dirname(directory)
            _fsync(directory)

    def _store(self, location: str) -> "tuple[S3Store, str]":
        bucket, _, key = location.partition("://")[2].partition("/")
        return _bucket(S3Target.from_settings(f"s3://{bucket}", self._settings, "catalog.warehouse")), key


@lru_cache(maxsize=32)
def _bucket(target: S3Target) -> "S3Store":
    """Kept: a session takes longer to begin than a request."""
    return target.store()


def _each(work: Callable[[str], object], items: list[str]) -> None:
    if len(items) <= 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "files") as pool:
        list(pool.map(work, items))


def _checksums(path: str) -> str:
    """Where Hadoop keeps those of a file, if it does: a file that does not fit them cannot be read."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.crc")


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(location: str) -> Iterator[None]:
    """The one place where a file system's or S3's errors about the warehouse become ours."""
    failures: tuple[type[Exception], ...] = (OSError,)
    if is_s3(location):
        from obstore.exceptions import BaseError

        failures = (OSError, BaseError)
    try:
        yield
    except FileNotFoundError:
        raise
    except failures as error:
        words = str(error).partition("\n")[0][:200]
        raise Unavailable(f"{location} cannot be reached: {words}. Check the warehouse, then try again.") from error
