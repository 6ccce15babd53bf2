"""Cache: what a user's lakes, clones and environments share because it never changes: jars, servers, archives."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_STALE_SECONDS: Final = 86_400  # longer than anything that is made there takes


def cache_directory() -> Path:
    """HEADWATER_CACHE, or `headwater` in the user's cache directory."""
    if chosen := os.environ.get("HEADWATER_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


def remove_unfinished(parent: Path, prefix: str) -> None:
    """What somebody left who was killed while he made it, under a name that begins so."""
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # another was first
            if time.time() - left.lstat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
