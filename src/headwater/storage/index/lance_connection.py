"""A connection to LanceDB, as every index of ours has it: light to load, quiet, and frugal with memory."""

import os
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from headwater.storage.index.allocator import share_arenas
from headwater.storage.index.lancedb_import import import_lancedb

if TYPE_CHECKING:
    from lancedb.db import DBConnection

# What LanceDB knows of every version of a stream is never asked for again.
_METADATA_CACHE_BYTES: Final = 16 << 20


def connect_lance(uri: str, options: Mapping[str, str] | None, cache_bytes: int) -> "DBConnection":
    # Its warnings about clusters are for its developers.
    os.environ.setdefault("LANCEDB_LOG", "error")
    # Who is forked off here becomes another program at once: Java, or a child that decodes.
    warnings.filterwarnings("ignore", message="lancedb fork support", category=RuntimeWarning)
    share_arenas()  # before LanceDB starts its threads
    lancedb = import_lancedb()
    session = lancedb.Session(cache_bytes, _METADATA_CACHE_BYTES)
    # Another process writes while this one answers: look for a newer version at every read.
    always = timedelta(0)
    database: DBConnection = lancedb.connect(
        uri, read_consistency_interval=always, storage_options=options, session=session
    )
    return database
