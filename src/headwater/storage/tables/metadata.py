"""A table's metadata document, as Iceberg's specification has it: what it says of progress, what a commit makes of it.

Pure. Documents are never changed, only copied. A new one is never older than the one it follows, whatever the clock of
this machine says: Iceberg refuses metadata that goes back in time by more than a minute, and a fail-over may well.
"""

import gzip
import json
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.domain.progress import STAMP, Progress, SnapshotNote, snapshot_property

Metadata = Mapping[str, Any]
MAIN: Final = "main"
_GZIP: Final = b"\x1f\x8b"
_VERSIONS_MAX: Final = "write.metadata.previous-versions-max"
_DELETE_DROPPED: Final = "write.metadata.delete-after-commit.enabled"
# What every engine writes into each summary, for every snapshot again: the version of Iceberg alone is 80 bytes.
_NOISE: Final = ("iceberg-version", "engine-version", "app-id", "app-name", "spark.app.id")


@dataclass(frozen=True, slots=True)
class Edit:
    """What a commit changes. A `snapshot` becomes the current one; `expired` ones go, and what names them; `cleared`
    properties go; `refs` are tags and branches to be set, `dropped_refs` those to go.

    `document` is another's work: what PyIceberg made of the whole.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    cleared: Collection[str] = ()
    snapshot: Metadata | None = None
    expired: Collection[int] = ()
    refs: Mapping[str, Metadata] = field(default_factory=dict)
    dropped_refs: Collection[str] = ()
    document: Metadata | None = None


def read_metadata(data: bytes) -> Metadata:
    found: Metadata = json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    return found


def write_metadata(metadata: Metadata) -> bytes:
    return json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()


def current_snapshot_id(metadata: Metadata) -> int | None:
    """Before the specification said null, -1 was the word for none."""
    found = metadata.get("current-snapshot-id")
    return None if found in {None, -1} else int(found)


def snapshot_ids(metadata: Metadata) -> set[int]:
    return {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", ())}


def find_snapshot(metadata: Metadata, snapshot_id: int | None) -> Metadata | None:
    found = (snapshot for snapshot in metadata.get("snapshots", ()) if snapshot["snapshot-id"] == snapshot_id)
    return next(found, None)


def progress_in(metadata: Metadata) -> Progress:
    notes = {
        snapshot["snapshot-id"]: SnapshotNote(
            snapshot.get("parent-snapshot-id"), (snapshot.get("summary") or {}).get(STAMP)
        )
        for snapshot in metadata.get("snapshots", ())
    }
    return Progress.of_table(metadata.get("properties", {}), current_snapshot_id(metadata), notes)


def progress_at(metadata: Metadata, snapshot_id: int) -> Progress | None:
    """How far the table had come with that snapshot, by its stamp or that of the nearest before it; None without one.

    What moved a position later and added no rows is not in it: only the properties say so, and only those of now.
    """
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
    found = by_id.get(snapshot_id)
    while found is not None:
        if (stamp := (found.get("summary") or {}).get(STAMP)) is not None:
            return Progress.from_properties(json.loads(stamp))
        found = by_id.get(found.get("parent-snapshot-id"))
    return None


def edit_for(before: Metadata, progress: Progress, snapshot: Metadata | None, expired: Collection[int] = ()) -> Edit:
    """The change that notes how far the table has come, in its properties and, where there is one, in the snapshot."""
    if snapshot is None:
        current = current_snapshot_id(before)
        return Edit({**progress.to_properties(), **snapshot_property(current)}, progress.cleared(), None, expired)
    summary = {name: value for name, value in snapshot["summary"].items() if name not in _NOISE}
    stamped = {**snapshot, "summary": {**summary, STAMP: progress.stamp()}}
    noted = {**progress.to_properties(), **snapshot_property(snapshot["snapshot-id"])}
    return Edit(noted, progress.cleared(), stamped, expired)


def next_location(metadata: Metadata, location: str) -> str:
    """Where the metadata after the one at `location` goes; no two ever have the same name."""
    number = re.match(r"\d+", location.rpartition("/")[2])
    version = int(number[0]) + 1 if number else 0
    return f"{str(metadata['location']).rstrip('/')}/metadata/{version:05d}-{uuid.uuid4()}.metadata.json"


def next_metadata(base: Metadata, location: str, edit: Edit, now_ms: int) -> Metadata:
    """The document that follows `base`, which is at `location`."""
    moment = max(now_ms, int(base["last-updated-ms"]))
    start = _not_before(edit.document, base, moment) if edit.document else base
    properties = {**start.get("properties", {}), **edit.properties}
    made = {
        **start,
        "last-updated-ms": moment,
        "properties": {name: value for name, value in properties.items() if name not in edit.cleared},
        "metadata-log": _metadata_log(base, location, properties),
    }
    if edit.snapshot is not None:
        made |= _with_snapshot(base, {**edit.snapshot, "timestamp-ms": moment})
    return without_snapshots(with_refs(made, edit.refs, edit.dropped_refs), edit.expired)


def _not_before(document: Metadata, base: Metadata, moment: int) -> Metadata:
    """What PyIceberg added has the time of its own clock, which may be behind the table's."""
    old, logged = snapshot_ids(base), {_log_key(one) for one in base.get("snapshot-log") or ()}
    snapshots, log = document.get("snapshots") or (), document.get("snapshot-log") or ()
    return {
        **document,
        "snapshots": [one if one["snapshot-id"] in old else {**one, "timestamp-ms": moment} for one in snapshots],
        "snapshot-log": [one if _log_key(one) in logged else {**one, "timestamp-ms": moment} for one in log],
    }


def _log_key(entry: Metadata) -> tuple[int, int]:
    return entry["timestamp-ms"], entry["snapshot-id"]


def dropped_metadata_files(before: Metadata, after: Metadata) -> list[str]:
    """Those that the new document no longer names, where the table wants them deleted."""
    if after.get("properties", {}).get(_DELETE_DROPPED) != "true":
        return []
    kept = {entry["metadata-file"] for entry in after.get("metadata-log", ())}
    return [entry["metadata-file"] for entry in before.get("metadata-log", ()) if entry["metadata-file"] not in kept]


def _metadata_log(base: Metadata, location: str, properties: Mapping[str, str]) -> list[Metadata]:
    entries = [*base.get("metadata-log", ()), {"timestamp-ms": base["last-updated-ms"], "metadata-file": location}]
    return entries[-max(1, int(properties.get(_VERSIONS_MAX, 100))) :]


def _with_snapshot(base: Metadata, snapshot: Metadata) -> dict[str, Any]:
    number, refs = snapshot["snapshot-id"], base.get("refs") or {}
    entry = {"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": number}
    return {
        "snapshots": [*base.get("snapshots", ()), snapshot],
        "snapshot-log": [*base.get("snapshot-log", ()), entry],
        "current-snapshot-id": number,
        "last-sequence-number": snapshot["sequence-number"],
        "refs": {**refs, MAIN: {"type": "branch", **refs.get(MAIN, {}), "snapshot-id": number}},
    }


def with_refs(made: Metadata, refs: Mapping[str, Metadata], dropped: Collection[str] = ()) -> Metadata:
    if not refs and not dropped:
        return made
    kept = {name: ref for name, ref in (made.get("refs") or {}).items() if name not in dropped}
    return {**made, "refs": {**kept, **refs}}


def without_snapshots(made: Metadata, expired: Collection[int]) -> Metadata:
    """Nor what tells of them: statistics, tags and branches that name them, history from before."""
    gone = set(expired)
    if not gone:
        return made
    kept: dict[str, Any] = {
        name: [item for item in made[name] if item["snapshot-id"] not in gone]
        for name in ("snapshots", "statistics", "partition-statistics")
        if made.get(name)
    }
    refs = {name: ref for name, ref in (made.get("refs") or {}).items() if name not in dangling_refs(made, gone)}
    return {**made, **kept, "refs": refs, "snapshot-log": _log_after(made.get("snapshot-log", ()), gone)}


def dangling_refs(metadata: Metadata, expired: Collection[int]) -> list[str]:
    """The tags and branches that name one of these snapshots."""
    return [name for name, ref in (metadata.get("refs") or {}).items() if ref["snapshot-id"] in expired]


def _log_after(log: Sequence[Metadata], gone: set[int]) -> list[Metadata]:
    """The specification's rule: what lies before a snapshot that has expired is no longer history."""
    last = max((number for number, entry in enumerate(log) if entry["snapshot-id"] in gone), default=-1)
    return list(log[last + 1 :])
