"""A file written whole: a reader sees the old one or the new one, never a part, also after a power cut."""

import os
from pathlib import Path


def write_whole(file: Path, data: bytes, mode: int = 0o644) -> None:
    """Through a temporary name, synced before it takes the file's own; `#` keeps it out of an object store's lists."""
    temporary = file.with_name(f"{file.name}#{os.getpid()}")
    with temporary.open("wb") as writing:
        os.fchmod(writing.fileno(), mode & 0o777)
        writing.write(data)
        writing.flush()
        os.fsync(writing.fileno())
    temporary.replace(file)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
