"""Unreachable: the files that nothing needs any more once some snapshots have expired.

Along one line of snapshots a manifest is there from the one that wrote it to the one that replaced it, without a gap.
So a manifest of an expired snapshot is needed by another one only if a nearest kept neighbour on either side has it;
snapshots beside the line are asked as well. A data file that a snapshot took out is needed by those before it alone.
What cannot be told for sure is left: an orphan costs money, a missing file costs a table.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from headwater.settings import Settings
from headwater.storage.tables.expire_snapshots import ancestors, took_files
from headwater.storage.tables.metadata import Metadata

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile

_AT_ONCE: Final = 8


def unreachable_files(before: Metadata, expired_ids: Collection[int], io: "FileIO") -> list[str]:
    """Manifest lists, manifests and data files of a table that only these of its snapshots needed."""
    gone = set(expired_ids)
    lineage = list(reversed(list(ancestors(before))))  # the oldest first
    on_line = {snapshot["snapshot-id"] for snapshot in lineage}
    expired = [one for one in before["snapshots"] if one["snapshot-id"] in gone]
    beside = [one for one in before["snapshots"] if one["snapshot-id"] not in on_line | gone]
    asked = _neighbours(lineage, gone) + beside
    emptied = _emptied(lineage, gone)
    manifests = _read_lists([*expired, *asked, *emptied], io)
    held = {path for one in asked for path in manifests[one["snapshot-id"]]}
    # Of snapshots beside the line only the list goes: where else their manifests are is not looked into.
    expired_on_line = [one for one in expired if one["snapshot-id"] in on_line]
    left = {path for one in expired_on_line for path in manifests[one["snapshot-id"]]} - held
    data = _taken_out(emptied, manifests, [one for one in before["snapshots"] if one["snapshot-id"] not in gone], io)
    return [*(one["manifest-list"] for one in expired), *sorted(left), *sorted(data)]


def _neighbours(lineage: Sequence[Metadata], gone: set[int]) -> list[Metadata]:
    """Kept snapshots next to an expired one, whose manifests they may share."""
    sides = [None, *lineage, None]
    found: dict[int, Metadata] = {}
    for one, other in pairwise(sides):
        if one and other and (one["snapshot-id"] in gone) != (other["snapshot-id"] in gone):
            kept = other if one["snapshot-id"] in gone else one
            found[kept["snapshot-id"]] = kept
    return list(found.values())


def _emptied(lineage: Sequence[Metadata], gone: set[int]) -> list[Metadata]:
    """Those that took files out and before which, on the line, nothing is kept any more."""
    found = []
    for snapshot in lineage:
        if took_files(snapshot):
            found.append(snapshot)
        if snapshot["snapshot-id"] not in gone:
            break
    return found


def _read_lists(snapshots: Iterable[Metadata], io: "FileIO") -> "dict[int, dict[str, ManifestFile]]":
    from pyiceberg.manifest import read_manifest_list

    distinct = {one["snapshot-id"]: one for one in snapshots}

    def read(one: Metadata) -> "dict[str, ManifestFile]":
        return {found.manifest_path: found for found in read_manifest_list(io.new_input(one["manifest-list"]))}

    with ThreadPoolExecutor(_AT_ONCE, "expiry") as pool:
        return dict(zip(distinct, pool.map(read, distinct.values()), strict=True))


def _taken_out(
    emptied: Sequence[Metadata],
    manifests: "Mapping[int, Mapping[str, ManifestFile]]",
    kept: Sequence[Metadata],
    io: "FileIO",
) -> set[str]:
    from pyiceberg.manifest import ManifestEntryStatus

    found: set[str] = set()
    for snapshot in emptied:
        own = [each for each in manifests[snapshot["snapshot-id"]].values() if _deletes_in(each, snapshot)]
        numbers = [one["sequence-number"] for one in kept if one["sequence-number"] < snapshot["sequence-number"]]
        for entry in (entry for each in own for entry in each.fetch_manifest_entry(io, discard_deleted=False)):
            since = entry.sequence_number
            taken = entry.status == ManifestEntryStatus.DELETED and since is not None
            if taken and not any(number >= since for number in numbers):
                found.add(entry.data_file.file_path)
    return found


def _deletes_in(manifest: "ManifestFile", snapshot: Metadata) -> bool:
    return manifest.added_snapshot_id == snapshot["snapshot-id"] and bool(manifest.deleted_files_count)


def warehouse_io(settings: Settings) -> "FileIO":
    """PyIceberg's way to the warehouse's files, for reading."""
    from headwater.storage.io.s3 import S3Target, is_s3
    from headwater.storage.tables.catalog import warehouse_uri

    warehouse = warehouse_uri(settings)
    if not is_s3(warehouse):
        from headwater.storage.tables.local_file_io import LocalFiles

        return LocalFiles()
    from pyiceberg.io import load_file_io

    return load_file_io(S3Target.from_settings(warehouse, settings, "catalog.warehouse").iceberg(), warehouse)
