"""Expired plans: what happens to a reader whose files go while it reads.

Compaction puts rows into other files, and expiry removes the old ones, after `maintain.keep_hours` as a rule. Who
planned before and reads after finds no file, never fewer rows. The rows are in a newer snapshot, so the question is
planned once more there. A snapshot with a tag keeps its files.
"""

from collections.abc import Callable
from typing import TypeVar

from headwater.errors import NotFound, SnapshotExpired

T = TypeVar("T")


def expired(what: str, error: FileNotFoundError) -> SnapshotExpired:
    file = str(error.filename or error)
    return SnapshotExpired(
        f"{file} is gone: most likely {what} was rewritten and its old files expired while it was read. Ask again; if "
        "that happens often, keep files longer: maintain.keep_hours.",
        file,
    )


def plan_again(read: Callable[[], T]) -> T:
    """What `read` gives, which plans and reads to the end; once more, where files of its plan were gone."""
    try:
        return read()
    except SnapshotExpired as first:
        try:
            return read()
        except SnapshotExpired as second:
            raise _missing(second) if second.file == first.file else second from None


def _missing(again: SnapshotExpired) -> NotFound:
    return NotFound(
        f"{again.file} is missing, and the table still names it: it was not expired. Bring it back, from a copy of the "
        "warehouse or as an earlier version of the object."
    )
