"""Where the memo's files are: a directory or a bucket. Files are written whole, never changed, and read by ranges.

A listing misses nothing that was there when it began. Packing writes the new file before it deletes the old ones, so a
listing that is half-way when both happen could see neither. In a bucket names come in their order, page after page, and
a packed file's name is behind those of its parts. In a directory names come in no order: whoever deletes waits until
nobody lists.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from headwater.errors import Unavailable
from headwater.storage.io.whole_file import sync_directory, write_whole

READS_AT_ONCE: Final = 16
_LOCK_NAME: Final = "lock#0"  # `#` and a number keep it out of an object store's lists
_LEFTOVER_SECONDS: Final = 3_600
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredFile:
    name: str
    size: int


class MemoStore:
    """`root` is the directory behind a local store. A file that is gone raises FileNotFoundError: it was packed."""

    def __init__(self, store: ObjectStore, root: Path | None = None) -> None:
        self.objects = store
        self.root = root
        self.bytes_read = 0
        self._lasting: set[Path] = set()  # directories whose own entry is known to be synced

    def files(self, place: str) -> list[StoredFile]:
        """Every file of a place, none missed that was there at the beginning."""
        while True:
            with translated(), self._lock(place, fcntl.LOCK_SH) as locked:
                found = self._listed(f"{place}/")
            # Without a lock nobody has deleted anything yet; who does makes one first.
            if locked or not self._lock_path(place).exists():
                return found

    def all_files(self) -> list[StoredFile]:
        """Of all places, for an overview: what is packed meanwhile may be missed."""
        with translated():
            return self._listed(None)

    def _listed(self, prefix: str | None) -> list[StoredFile]:
        return [StoredFile(str(item["path"]), int(item["size"])) for page in self.objects.list(prefix) for item in page]

    def read(self, name: str) -> bytes:
        with translated():
            data = bytes(self.objects.get(name).bytes())
        self.bytes_read += len(data)
        return data

    def read_many(self, names: Sequence[str]) -> list[bytes]:
        """Of small files; several at once where each is a request."""
        if self.root is not None or len(names) < 2:
            return [self.read(name) for name in names]
        with ThreadPoolExecutor(READS_AT_ONCE) as readers:
            return list(readers.map(self.read, names))

    def read_ranges(self, name: str, ranges: Sequence[Range], gap: int) -> list[bytes]:
        """Ranges that are less than `gap` bytes apart are read in one go."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with translated():
            found: Any = self.objects.get_ranges(name, starts=starts, ends=ends, coalesce=gap)
        # Copies: what was read in one go would be held as a whole by each of its parts.
        self.bytes_read += _span(ranges, gap)
        return [bytes(part) for part in found]

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all, and synced: what was answered survives a power cut."""
        if self.root is None:
            with translated():
                self.objects.put(name, data)
            return
        try:  # obstore's local store would leave the data to the system's cache
            path = self.root / name
            self._make_lasting(path.parent)
            write_whole(path, data)
        except OSError as error:
            raise Unavailable(f"The memo cannot be written: {error}. Make room, then try again.") from error

    def _make_lasting(self, directory: Path) -> None:
        """A new shelf's directory, and those above it: without its entry a file in it is gone, synced or not."""
        assert self.root is not None
        if directory in self._lasting:
            return
        directory.mkdir(parents=True, exist_ok=True)
        for above in directory.parents:
            sync_directory(above)
            if above == self.root.parent:
                break
        self._lasting.add(directory)

    def delete(self, place: str, names: Sequence[str]) -> None:
        """Those of one place; one that is gone already is no matter."""
        if self.root is None:
            with translated(), suppress(FileNotFoundError):
                self.objects.delete(list(names))
            return
        with translated(), self._lock(place, fcntl.LOCK_EX):
            for name in names:
                (self.root / name).unlink(missing_ok=True)

    def remove_leftovers(self, place: str, now: datetime) -> None:
        """What killed writers left half-written, which no listing shows; a write takes seconds, not an hour."""
        if self.root is None:
            return
        for path in (self.root / place).glob("*.answers#*"):
            with translated(), suppress(FileNotFoundError):
                if now.timestamp() - path.stat().st_mtime > _LEFTOVER_SECONDS:
                    path.unlink()

    @contextmanager
    def _lock(self, place: str, how: int) -> Iterator[bool]:
        """Of a directory. Who lists takes the lock where there is one, and tells whether; a bucket needs none."""
        if self.root is None:
            yield True
            return
        mode = os.O_RDWR | os.O_CREAT if how == fcntl.LOCK_EX else os.O_RDONLY
        try:
            descriptor = os.open(self._lock_path(place), mode, 0o666)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(descriptor, how)
            yield True
        finally:
            os.close(descriptor)

    def _lock_path(self, place: str) -> Path:
        return Path(f"{self.root}/{place}/{_LOCK_NAME}")


def _span(ranges: Sequence[Range], gap: int) -> int:
    """How many bytes are read for these, with what lies between those that are read in one go."""
    total, reached = 0, -gap - 1
    for start, end in sorted(ranges):
        total += max(0, end - (max(reached, start) if start > reached + gap else reached))
        reached = max(reached, end)
    return total


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, OSError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise Unavailable(f"The memo does not answer: {reason}. Try again.") from error
