"""Init: a directory becomes a lake, by its settings file first, then its tables, then its format.

Twice is once: what is there is kept. Killed in between, the same call makes the rest.
"""

from pathlib import Path
from typing import Final

from headwater.settings import FILE_NAME
from headwater.upkeep.parts import Parts

NEW_LAKE: Final = """\
# The settings of this lake. Every value has a default: `headwater settings` shows them all.
# Change a URI to move a part: raw.uri = "s3://bucket/prefix", for example, under [raw].
"""


def write_settings(directory: Path) -> None:
    from headwater.storage.io.whole_file import write_whole

    directory.mkdir(parents=True, exist_ok=True)
    file = directory / FILE_NAME
    if not file.exists():
        # Keys and passwords will stand there; the rest of a lake is as open as the user's umask has it.
        write_whole(file, NEW_LAKE.encode(), 0o600)


def make_lake(parts: Parts) -> None:
    """Starts no JVM. Conflict where a lake was that has lost a part."""
    from headwater.storage.tables.catalog import create_tables
    from headwater.upkeep.format import has_format, set_format
    from headwater.upkeep.lost import check_not_lost

    check_not_lost(parts, known=has_format(parts.ledger))
    create_tables(parts.catalog)
    set_format(parts.ledger)
