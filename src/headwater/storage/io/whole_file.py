"""A file written whole: a reader sees the old one or the new one, never a part, also after a power cut."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(file: Path, data: bytes, mode: int = 0o644) -> None:
    """Through a temporary name, synced before it takes the file's own; `#` keeps it out of an object store's lists."""
    temporary = file.with_name(f"{file.name}#{os.getpid()}")
    with removed_where_it_fails(temporary):
        with temporary.open("wb") as writing:
            os.fchmod(writing.fileno(), mode & 0o777)
            writing.write(data)
            writing.flush()
            os.fsync(writing.fileno())
        temporary.replace(file)
    sync_directory(file.parent)


@contextmanager
def removed_where_it_fails(file: Path) -> Iterator[None]:
    """A full disk is not made fuller by what did not fit."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            file.unlink()
        raise


def sync_directory(directory: Path) -> None:
    """So that its entries last."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
