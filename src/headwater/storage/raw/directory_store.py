"""Raw objects in a directory, one file each.

Writes go to a hidden temporary file, are synced, and appear under their name by a hard link that never replaces. The
I/O is our own rather than obstore's, whose local store neither syncs nor refuses symbolic links: here every part of a
path is opened relative to its parent and no link is followed, so nothing is read or written outside the root.
"""

import errno
import fcntl
import hashlib
import io
import os
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from headwater.domain.pointer import Pointer
from headwater.errors import Conflict, DataFault, HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.storage.raw.store import (
    CHUNK_BYTES,
    ObjectStat,
    checked_key,
    digest,
    read_chunks,
    require_same,
    verified,
)

INCOMING: Final = ".incoming"
ABANDONED_SECONDS: Final = 60  # a temporary file this old and not locked was left by a writer that died
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Links, and files where directories should be: never followed, so to a reader they are not there.
_NOT_AN_OBJECT: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR})


class DirectoryRawStore:
    """A `RawStore` in a directory. The root itself may be a link; nothing below it may."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._synced: set[tuple[str, ...]] = set()
        self._swept = False

    def put_bytes(self, key: str, data: bytes, content_type: str) -> Pointer:
        return self.put_stream(key, io.BytesIO(data), content_type)

    def put_stream(self, key: str, stream: BinaryIO, content_type: str) -> Pointer:
        *parents, name = checked_key(key).split("/")
        with _translated(key, self.root), self._directory(parents, create=True) as directory:
            if (stored := self._stored(directory, name)) is not None:
                offered = digest(read_chunks(stream))
                require_same(key, stored=stored, offered=offered)
            else:
                offered = self._store(directory, name, key, stream)
            # Also when another writer stored it: its link may not have reached the disk yet.
            os.fsync(directory)
        return Pointer(path=key, size=offered[1], content_type=content_type, checksum=offered[0])

    def get(self, pointer: Pointer) -> bytes:
        try:
            with self._open(pointer.path) as file:
                # A foreign event may claim any size; ask the file before memory is set aside for it.
                if os.fstat(file.fileno()).st_size < pointer.offset + pointer.size:
                    raise DataFault("CORRUPT", f"{pointer.path} is shorter than its {pointer.size} bytes.")
                file.seek(pointer.offset)
                return verified(pointer, file.read(pointer.size))
        except NotFound:
            raise DataFault("MISSING_OBJECT", f"{pointer.path} is not in {self.root}.") from None

    def chunks(self, key: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        with self._open(key) as file:
            file.seek(offset)
            left = os.fstat(file.fileno()).st_size if size is None else size
            while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
                left -= len(chunk)
                yield chunk

    def kept_chunks(self, pointer: Pointer) -> Iterator[bytes] | None:
        return None

    def head(self, key: str) -> ObjectStat | None:
        try:
            with self._open(key) as file:
                return _stat_of(key, os.fstat(file.fileno()))
        except NotFound:
            return None

    def list(self, prefix: str = "") -> Iterator[ObjectStat]:
        start = self.root.joinpath(*checked_key(prefix).split("/")) if prefix else self.root
        with _translated(prefix or "raw", self.root):
            yield from self._walk(start)

    def delete(self, key: str) -> None:
        *parents, name = checked_key(key).split("/")
        with (
            _translated(key, self.root),
            suppress(FileNotFoundError),
            self._directory(parents, create=False) as directory,
        ):
            os.unlink(name, dir_fd=directory)
            os.fsync(directory)

    def is_answering(self) -> bool:
        try:
            return self.head(f"audio/{uuid.uuid4().hex}") is None
        except HeadwaterError:
            return False

    def open_local(self, key: str) -> BinaryIO | None:
        with self._open(key) as file:
            return os.fdopen(os.dup(file.fileno()), "rb")

    def _store(self, directory: int, name: str, key: str, stream: BinaryIO) -> tuple[str, int]:
        with self._temporary() as (incoming, temporary, file):
            offered = _copy(stream, file)
            os.fchmod(file.fileno(), 0o444)
            os.fsync(file.fileno())
            try:
                os.link(temporary, name, src_dir_fd=incoming, dst_dir_fd=directory, follow_symlinks=False)
            except FileExistsError:
                stored = self._stored(directory, name)
                require_same(key, stored=stored or ("", 0), offered=offered)
        return offered

    def _stored(self, directory: int, name: str) -> tuple[str, int] | None:
        try:
            with _open_file(directory, name) as file:
                return digest(read_chunks(file))
        except FileNotFoundError:
            return None

    @contextmanager
    def _temporary(self) -> Iterator[tuple[int, str, io.FileIO]]:
        """A new file that only its writer sees; it is gone afterwards, whatever happens."""
        with self._directory([INCOMING], create=True) as incoming:
            self._sweep(incoming)
            name = uuid.uuid4().hex
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with io.FileIO(os.open(name, flags, 0o644, dir_fd=incoming), "wb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    yield incoming, name, file
                finally:
                    os.unlink(name, dir_fd=incoming)

    def _sweep(self, incoming: int) -> None:
        """Once a process: remove what writers left that were killed."""
        if self._swept:
            return
        self._swept = True
        for name in os.listdir(incoming):
            with (
                suppress(OSError),
                os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=incoming), "rb") as file,
            ):
                if time.time() - os.fstat(file.fileno()).st_mtime > ABANDONED_SECONDS:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=incoming)

    @contextmanager
    def _open(self, key: str) -> Iterator[BinaryIO]:
        *parents, name = checked_key(key).split("/")
        try:
            with self._directory(parents, create=False) as directory:
                file = _open_file(directory, name)
        except OSError as error:
            if error.errno in _NOT_AN_OBJECT or error.errno == errno.ENOENT:
                raise NotFound(f"{key} is not in {self.root}.") from None
            raise _translation(error, key, self.root) from error
        with file, _translated(key, self.root):
            yield file

    @contextmanager
    def _directory(self, parts: Sequence[str], *, create: bool) -> Iterator[int]:
        """A descriptor of the directory below the root, reached without following a link."""
        if create and () not in self._synced:
            self._make_root()
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for depth, part in enumerate(parts, start=1):
                if create:
                    self._make(descriptor, tuple(parts[:depth]))
                child = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = child
            yield descriptor
        finally:
            os.close(descriptor)

    def _make_root(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        parent = os.open(self.root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
        self._synced.add(())

    def _make(self, parent: int, parts: tuple[str, ...]) -> None:
        if parts in self._synced:
            return
        with suppress(FileExistsError):
            os.mkdir(parts[-1], dir_fd=parent)
        os.fsync(parent)
        self._synced.add(parts)

    def _walk(self, directory: Path) -> Iterator[ObjectStat]:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != INCOMING or directory != self.root:
                    yield from self._walk(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                key = Path(entry.path).relative_to(self.root).as_posix()
                yield _stat_of(key, entry.stat(follow_symlinks=False))


def _copy(stream: BinaryIO, file: io.FileIO) -> tuple[str, int]:
    hashed, size = hashlib.sha256(), 0
    while chunk := stream.read(CHUNK_BYTES):
        hashed.update(chunk)
        size += len(chunk)
        view = memoryview(chunk)
        while view:
            view = view[file.write(view) :]
    return hashed.hexdigest(), size


def _open_file(directory: int, name: str) -> BinaryIO:
    # Non-blocking: opening a FIFO somebody put in the way must not wait for its writer.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, "not a regular file", name)
    return os.fdopen(descriptor, "rb")


def _stat_of(key: str, found: os.stat_result) -> ObjectStat:
    return ObjectStat(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


@contextmanager
def _translated(key: str, root: Path) -> Iterator[None]:
    """The one place where the file system's errors become ours."""
    try:
        yield
    except OSError as error:
        raise _translation(error, key, root) from error


def _translation(error: OSError, key: str, root: Path) -> HeadwaterError:
    if error.errno in _FULL:
        return Unavailable(
            f"No space left for {key} in {root}. Nothing of it was kept; free some space and put it again."
        )
    if error.errno in _NOT_AN_OBJECT:
        return Conflict(f"{key} leads through a link or a file in {root}; neither is followed. Use --id, or remove it.")
    if error.errno == errno.ENAMETOOLONG:
        return InvalidRequest(f"{key[:80]}… is too long for the file system of {root}. Use a shorter --id.")
    return Unavailable(f"The raw store {root} failed at {key}: {error.strerror}. Check the disk and its permissions.")
