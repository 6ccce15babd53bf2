"""A directory that several processes write to, one at a time, under a lock in it.

It is held open, and names are looked up in it and not by its path: who moves it away, or puts another in its place
while somebody writes, does not get half of the files here and half of them there.
Invariant: what `write_durably` wrote is whole under its name, or not there; it lasts once `sync` has returned.
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from headwater import faults

_LOCK: Final = ".lock"
_TEMPORARY: Final = ".segment.tmp"
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LockedDirectory:
    """Valid inside `locked` only."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def place(self) -> str:
        """Another for a copy of the directory, and after a reboot: what was not synced may be older there than the
        rest."""
        return f"{_boot()}/{os.fstat(self._descriptor).st_ino}"

    def is_in_place(self) -> bool:
        """Whether the path still leads here."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        return False

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self._descriptor)
        return None

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""
        with suppress(FileNotFoundError), open(name, "rb", opener=self._open) as file:
            return file.read()
        return None

    def write(self, name: str, data: bytes) -> None:
        """In place and not synced: for hints. Not emptied first: file systems write out a file that is."""
        descriptor = self._open(name, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)

    def write_durably(self, name: str, data: bytes, *, point: str) -> None:
        """The lock makes one temporary name enough, and the next writer overwrites what a dead one left."""
        try:
            with open(_TEMPORARY, "wb", opener=self._open) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            self.remove(_TEMPORARY)
            raise
        faults.point(point)
        os.rename(_TEMPORARY, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def sync_parent(self) -> None:
        """So that the directory itself lasts; as far as we may look into the one that it is in."""
        with suppress(PermissionError):
            parent = os.open(self._path.parent, _OPEN_DIRECTORY)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, 0o666, dir_fd=self._descriptor)


@contextmanager
def locked(path: Path, kind: int) -> Iterator[LockedDirectory]:
    """Makes the directory where there is none. `kind` is `fcntl.LOCK_SH` or `fcntl.LOCK_EX`."""
    while (held := _lock(path, kind)) is None:
        path.mkdir(parents=True, exist_ok=True)
    directory, lock = held
    try:
        yield LockedDirectory(path, directory)
    finally:
        os.close(lock)
        os.close(directory)


def is_read_only(path: Path) -> bool:
    """Whether it is there, and this process may not write to it."""
    return path.is_dir() and not os.access(path, os.W_OK)


def _lock(path: Path, kind: int) -> tuple[int, int] | None:
    """The directory and its lock; None where others no longer take the one that was waited for, as it was replaced."""
    with ExitStack() as opened:
        try:
            directory = os.open(path, _OPEN_DIRECTORY)
            opened.callback(os.close, directory)
            # Where nothing may be written, readers hold the lock that writers elsewhere made.
            flags = os.O_RDONLY if kind == fcntl.LOCK_SH and is_read_only(path) else os.O_RDWR | os.O_CREAT
            lock = os.open(_LOCK, flags | os.O_CLOEXEC, 0o666, dir_fd=directory)
            opened.callback(os.close, lock)
            fcntl.flock(lock, kind)
            if not os.path.samestat(os.fstat(lock), os.stat(_LOCK, dir_fd=directory)):
                return None
        except FileNotFoundError:
            return None
        if not LockedDirectory(path, directory).is_in_place():
            return None
        opened.pop_all()
        return directory, lock


@cache
def _boot() -> str:
    """Tells one run of the kernel from the next: what was written but not synced may be lost between them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid.uuid4().hex  # such a hint is believed by no other process
