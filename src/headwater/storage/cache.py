"""Cache: what a user's lakes, clones and environments share because it never changes: jars, servers, archives."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """HEADWATER_CACHE, or `headwater` in the user's cache directory."""
    if chosen := os.environ.get("HEADWATER_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"
