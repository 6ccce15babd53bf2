"""Lake files: the data files of tables, under names of our own, as the only files that a query engine can open.

DuckDB is given this as its file system `lake://` and no other, so it can read the data files that a query is about, on
a disk and on an object store alike, and cannot write anywhere: not because it was told so, but because there is nothing
here that writes. A name such as `lake://silver.messages/7.parquet` leads to one file; where that is nobody is told.
"""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Never, Protocol

from fsspec import AbstractFileSystem

from headwater.storage.io.local_path import local_path
from headwater.storage.query.read_ahead import ReadAhead

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile

PROTOCOL: Final = "lake"
_RECENT: Final = 64  # remote files that were closed and whose footer is kept
# Files never change, so any time will do.
_UNCHANGED: Final = datetime(2000, 1, 1, tzinfo=UTC)


class _Bytes(Protocol):
    def read(self, offset: int, count: int) -> bytes: ...

    def close(self) -> None: ...


class LakeFiles(AbstractFileSystem):  # type: ignore[misc]  # without types of its own
    """fsspec's shape, because DuckDB takes that. What it does not name here fails or does nothing in fsspec's base."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, tuple[DataFile, FileIO]] = {}
        self._remote: OrderedDict[str, ReadAhead] = OrderedDict()
        self._lock = threading.Lock()
        self.trouble: Exception | None = None  # what the store did last instead of giving us a piece of a file

    def add(self, folder: str, files: "Sequence[DataFile]", io: "FileIO") -> str:
        """The pattern by which these files are read, all of them and in their order."""
        self._files |= {f"{folder}/{number:06}.parquet": (file, io) for number, file in enumerate(files)}
        return f"{PROTOCOL}://{folder}/*"

    def names(self, folder: str) -> Mapping[str, str]:
        """The name of each file in a folder, by where it is."""
        return {self._files[name][0].file_path: f"{PROTOCOL}://{name}" for name in self._in(folder)}

    def open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> "OpenFile":
        if mode != "rb":
            self._refuse(path)
        name = self._strip_protocol(path)
        if name not in self._files:
            raise FileNotFoundError(path)
        return OpenFile(self._source(name), self._note)

    def glob(self, path: str, **_: Any) -> list[str]:
        name = self._strip_protocol(path)
        return self._in(name[:-2]) if name.endswith("/*") else [name] if name in self._files else []

    def exists(self, path: str, **_: Any) -> bool:
        return self._strip_protocol(path) in self._files

    isfile = exists

    def isdir(self, path: str) -> bool:
        return False

    def size(self, path: str) -> int:
        return self._files[self._strip_protocol(path)][0].file_size_in_bytes

    def modified(self, path: str) -> datetime:
        return _UNCHANGED

    def _in(self, folder: str) -> list[str]:
        return [name for name in self._files if name.rpartition("/")[0] == folder]

    def _source(self, name: str) -> "_Bytes":
        file, io = self._files[name]
        if "://" in file.file_path and not file.file_path.startswith("file:"):
            return self._read_ahead(name, file, io).open()
        try:
            return _LocalBytes(local_path(file.file_path))
        except OSError as error:
            self._note(error)
            raise

    def _note(self, trouble: Exception) -> None:
        self.trouble = trouble

    def _read_ahead(self, name: str, file: "DataFile", io: "FileIO") -> ReadAhead:
        """One for all who have the file open."""
        with self._lock:
            if name not in self._remote:
                self._remote[name] = ReadAhead(file.file_size_in_bytes, _Remote(io, file.file_path).fetch)
            self._remote.move_to_end(name)
            if len(self._remote) > _RECENT:
                self._remote.popitem(last=False)
            return self._remote[name]

    def _refuse(self, path: str, *_: Any, **__: Any) -> Never:
        raise PermissionError(f"{path} cannot be written: a query only reads")

    mkdir = makedirs = rmdir = rm = rm_file = _rm = mv = cp_file = pipe_file = put_file = touch = created = _refuse


class OpenFile:
    """As DuckDB uses one: it seeks, then it reads, and in the end it lets go without a word."""

    def __init__(self, source: _Bytes, note: Callable[[Exception], None]) -> None:
        self._source: _Bytes | None = source
        self._note = note
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise ValueError("only from the beginning")
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def read(self, count: int) -> bytes:
        if self._source is None:
            raise ValueError("the file is closed")
        try:
            data = self._source.read(self._position, count)
        except Exception as error:  # DuckDB keeps no more of it than its words
            self._note(error)
            raise
        self._position += len(data)
        return data

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing is ever held back."""

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    __del__ = close


class _LocalBytes:
    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, offset)

    def close(self) -> None:
        os.close(self._descriptor)


class _Remote:
    """A file on an object store, opened when it is first read."""

    def __init__(self, io: "FileIO", location: str) -> None:
        self._io = io
        self._location = location
        self._opened: Any = None

    def fetch(self, offset: int, count: int) -> bytes:
        try:
            return self._fetch(offset, count)
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self._location) from error

    def _fetch(self, offset: int, count: int) -> bytes:
        if (read_range := getattr(self._io, "read_range", None)) is not None:
            return bytes(read_range(self._location, offset, count))
        if self._opened is None:
            self._opened = self._io.new_input(self._location).open()
        return bytes(self._opened.read_at(count, offset))
