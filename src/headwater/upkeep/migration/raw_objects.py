"""Raw objects on their way to another store: copied with their checksums, and what came meanwhile after them.

Reads   the source's raw store, bronze.events
Writes  the target's raw store
Key     the object's path; the same object twice is one.
"""

from collections.abc import Callable, Iterable, Iterator

from headwater import faults
from headwater.domain.tables import EVENTS
from headwater.errors import Conflict
from headwater.storage.io.key_file import KeyFile
from headwater.storage.query.row_stream import stream_rows
from headwater.upkeep.migration.object_copy import copy_objects
from headwater.upkeep.parts import Parts

Report = Callable[[str], None]


def copy_raw(source: Parts, target: Parts, report: Report) -> None:
    _copy((found.path for found in source.raw_store.list()), source, target, report)


def copy_late(source: Parts, target: Parts, report: Report) -> None:
    """What was put since; Conflict where the target has what the lake has not. After it both have the same objects."""
    with KeyFile() as there, KeyFile() as late:
        there.add((found.path, str(found.size)) for found in target.raw_store.list())
        late.add((path, "") for path in _take_out(source, there))
        if foreign := len(there):
            raise Conflict(
                f"The target's raw store has {foreign} objects that are not the lake's, such as {next(iter(there))}. "
                "Empty it, or name another place."
            )
        if count := len(late):
            _copy(late, source, target, report)
            report(f"{count} raw objects that came meanwhile are copied")


def _take_out(source: Parts, there: KeyFile) -> Iterator[str]:
    """Leave in `there` what the lake has not, or has with another size; yields what is missing there."""
    for found in source.raw_store.list():
        size = there.get(found.path)
        if size is None:
            yield found.path
        elif size == str(found.size):
            there.discard(found.path)


def _copy(keys: Iterable[str], source: Parts, target: Parts, report: Report) -> None:
    with KeyFile() as known:
        known.add(_in_bronze(source))
        copied = copy_objects(
            keys,
            source.raw_store,
            target.raw_store,
            lambda key: _known_of(known, key),
            lambda: faults.point("migrate.object"),
        )
        for key in copied:
            # It was so before: see its rows in quarantine.
            report(f"{key} is copied as it is, but does not match its checksum in bronze.events")


def _in_bronze(source: Parts) -> Iterator[tuple[str, str]]:
    """By path, checksum and content type in one word, for what bronze has heard of."""
    for batch in stream_rows(source.catalog, EVENTS.name, ("pointer",)):
        for pointer in batch["pointer"].to_pylist():
            yield pointer["path"], f"{pointer['checksum']} {pointer['content_type']}"


def _known_of(known: KeyFile, key: str) -> tuple[str, str] | None:
    """A checksum has no blank in it; a content type may."""
    found = known.get(key)
    if found is None:
        return None
    checksum, _, content_type = found.partition(" ")
    return checksum, content_type
