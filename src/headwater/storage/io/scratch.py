"""Scratch: a process's temporary files in one directory, gone with it; what killed processes left, the next removes.

Writes  <parent>/headwater-scratch-<random>, readable by its owner only
Spark keeps shuffles, spilled rows and what models answered there: a run that is killed leaves gigabytes. The directory
is locked as long as its process lives, so that whoever comes next knows whether somebody still needs it.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

PREFIX: Final = "headwater-scratch-"
# A directory this young may not be locked yet.
_YOUNG_SECONDS: Final = 60


def scratch_directory() -> Path:
    """This process's own, below the system's temporary directory."""
    return scratch_in(tempfile.gettempdir())


@cache
def scratch_in(parent: str) -> Path:
    """The same below another directory, which a user has named; made when it is first asked for."""
    os.makedirs(parent, exist_ok=True)
    remove_abandoned(parent)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    # Held open until this process ends, however it ends. Programs that it starts do not inherit it.
    fcntl.flock(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_EX)
    atexit.register(_remove, directory, os.getpid())
    return directory


def remove_abandoned(parent: str) -> None:
    """What is ours, old enough and locked by nobody."""
    for directory in Path(parent).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or another process was first
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                known = os.fstat(descriptor)
                if known.st_uid == os.getuid() and time.time() - known.st_mtime > _YOUNG_SECONDS:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # a fork leaves it to the process that made it
        shutil.rmtree(directory, ignore_errors=True)
