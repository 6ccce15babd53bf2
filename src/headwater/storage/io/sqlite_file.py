"""SQLite's files, also where nothing may be written: on a mount that only reads, or in somebody else's directory.

A reader of a write-ahead file shares a small map of it with those who write, and makes that where it is missing. Where
it cannot be made, nobody can be writing from here, and the file is read as it stands.
"""

import os
import sqlite3
from pathlib import Path


def is_read_only(file: Path) -> bool:
    """Whether it is there, and this process may write neither it nor beside it."""
    return file.is_file() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def connect(file: Path, timeout_seconds: float, mode: str = "rwc", *, own_thread: bool = True) -> sqlite3.Connection:
    """Each statement is its own transaction until one is begun. `mode` is SQLite's; what cannot be written is read."""
    more = ""
    if is_read_only(file):
        shared = all(file.with_name(f"{file.name}{end}").is_file() for end in ("-wal", "-shm"))
        mode, more = "ro", "" if shared else "&immutable=1"
    uri = f"{file.absolute().as_uri()}?mode={mode}{more}"
    return sqlite3.connect(uri, timeout_seconds, isolation_level=None, check_same_thread=own_thread, uri=True)
