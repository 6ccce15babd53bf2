"""Raw objects on their way to another store: copied with their checksums, and what came meanwhile after them.

Reads   the source's raw store, bronze.events
Writes  the target's raw store
Key     the object's path; the same object twice is one.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import cast

from headwater import faults
from headwater.domain.tables import EVENTS
from headwater.errors import Conflict
from headwater.storage.object_copy import copy_objects
from headwater.storage.raw_store import ObjectStat, RawStore
from headwater.storage.reading import scan
from headwater.upkeep.migration_places import Parts


def copy_raw(source: Parts, target: Parts, report: Callable[[str], None]) -> None:
    _copy(source, source.raw_store, target, report)


def copy_late(source: Parts, target: Parts, report: Callable[[str], None]) -> None:
    """What was put since; Conflict where the target has what the lake has not. After it both have the same objects."""
    here = {found.path: found.size for found in source.raw_store.list()}
    there = {found.path: found.size for found in target.raw_store.list()}
    if foreign := [path for path, size in there.items() if here.get(path) != size]:
        raise Conflict(
            f"The target's raw store has {len(foreign)} objects that are not the lake's, such as {min(foreign)}. "
            "Empty it, or name another place."
        )
    if late := here.keys() - there.keys():
        _copy(source, cast(RawStore, _Only(source.raw_store, late)), target, report)
        report(f"{len(late)} raw objects that came meanwhile are copied")


def _copy(source: Parts, some: RawStore, target: Parts, report: Callable[[str], None]) -> None:
    for key in copy_objects(some, target.raw_store, _known(source), lambda: faults.point("migrate.object")):
        # It was so before: see its rows in quarantine.
        report(f"{key} is copied as it is, but does not match its checksum in bronze.events")


def _known(source: Parts) -> dict[str, tuple[str, str]]:
    """Checksum and content type by path, for what bronze has heard of."""
    pointers = scan(source.catalog, EVENTS.name, ["pointer"])["pointer"].to_pylist()
    return {pointer["path"]: (pointer["checksum"], pointer["content_type"]) for pointer in pointers}


@dataclass(frozen=True, slots=True)
class _Only:
    """As much of a raw store as a copy asks for, with some of its objects: not all are read again for one."""

    store: RawStore
    paths: Collection[str]

    def list(self) -> Iterator[ObjectStat]:
        return (found for found in self.store.list() if found.path in self.paths)

    def chunks(self, key: str) -> Iterator[bytes]:
        return self.store.chunks(key)
