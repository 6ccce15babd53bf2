"""Resolving a ref: which snapshot of a table it names, by the metadata document alone. Pure.

A time is looked up as Iceberg does it: in the table's history (`snapshot-log`), the last entry that is not later.
Expiry cuts that history behind the newest snapshot that it let go of, so a time before that is refused, even where an
older snapshot is kept: which one was current then is no longer known. By its id that one can be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headwater.clock import to_text
from headwater.domain.lake_tag import EMPTY_AT
from headwater.domain.ref import Ref
from headwater.errors import NotFound
from headwater.storage.tables.metadata import MAIN, Metadata, current_snapshot_id, find_snapshot
from headwater.storage.tables.snapshots import to_moment

_NAMES_SHOWN: Final = 20
_TABLES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """The snapshot of a table that a reader sees; `schema_id` is None where its writer did not say."""

    table: str
    snapshot_id: int
    committed_at: datetime
    schema_id: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"table": self.table, "snapshot_id": self.snapshot_id, "committed_at": to_text(self.committed_at)}


def resolve(metadata: Metadata, ref: Ref, table: str) -> SnapshotRead:
    """Raises NotFound, which says what there is instead."""
    found = resolve_all({table: metadata}, ref)[table]
    assert found is not None
    return found


def resolve_all(tables: Mapping[str, Metadata], ref: Ref) -> dict[str, SnapshotRead | None]:
    """Of each table its snapshot; None where that table had none yet while another had: it was empty then.

    NotFound where the ref says nothing of one of them: a snapshot or a tag that only some have names no state of all.
    """
    found: dict[str, SnapshotRead | None] = {}
    unknown: dict[str, NotFound] = {}
    for name, metadata in tables.items():
        try:
            found[name] = _look_up(metadata, ref, name)
        except NotFound as error:
            unknown[name] = error
    known = [each for each in found.values() if each is not None]
    if unknown:
        raise _of_some_alone(ref, known, list(unknown)) if known and ref.at is None else next(iter(unknown.values()))
    if tables and not known and not any(_is_empty_at(metadata, ref) for metadata in tables.values()):
        raise _began_later(ref, *next(iter(tables.items())))
    return found


def gone(table: str, snapshot_id: int, metadata: Metadata, expired_at: datetime | None = None) -> NotFound:
    """`expired_at` is when it left the table, where that can still be found out."""
    parents = {snapshot.get("parent-snapshot-id") for snapshot in metadata["snapshots"]}
    if expired_at is not None:
        what = f"Snapshot {snapshot_id} of {table} expired on {to_text(expired_at)}"
    elif snapshot_id in parents:
        what = f"Snapshot {snapshot_id} of {table} has expired"
    else:
        what = f"{table} has no snapshot {snapshot_id}: it has expired, or never was"
    return NotFound(f"{what}. {_oldest(table, metadata)}")


def _look_up(metadata: Metadata, ref: Ref, table: str) -> SnapshotRead | None:
    if not metadata.get("snapshots"):
        return None
    if ref.snapshot_id is not None:
        return _read(metadata, ref.snapshot_id, table)
    if ref.name is not None:
        if _is_empty_at(metadata, ref):
            return None
        return _read(metadata, _named(metadata, ref.name, table), table)
    at_ms = ref.at_ms or 0
    # The last entry, not the latest: a clock that went back is Iceberg's to order, and it goes by its log.
    current = [entry["snapshot-id"] for entry in _log(metadata) if entry["timestamp-ms"] <= at_ms]
    if current:
        return _read(metadata, current[-1], table)
    if _is_whole(metadata):
        return None
    raise _time_expired(metadata, ref, table)


def _is_empty_at(metadata: Metadata, ref: Ref) -> bool:
    """A tag of the whole lake that was made when this table had nothing yet."""
    if ref.name is None or ref.name in _refs(metadata):
        return False
    return EMPTY_AT + ref.name in (metadata.get("properties") or {})


def _read(metadata: Metadata, snapshot_id: int, table: str) -> SnapshotRead:
    snapshot = find_snapshot(metadata, snapshot_id)
    if snapshot is None:
        raise gone(table, snapshot_id, metadata)
    return SnapshotRead(table, snapshot_id, to_moment(snapshot["timestamp-ms"]), snapshot.get("schema-id"))


def _named(metadata: Metadata, name: str, table: str) -> int:
    refs = _refs(metadata)
    if name not in refs:
        known = ", ".join(sorted(refs)[:_NAMES_SHOWN]) + (", …" if len(refs) > _NAMES_SHOWN else "")
        raise NotFound(f"{table} has no tag or branch {name}. It has: {known or 'none'}.")
    return int(refs[name]["snapshot-id"])


def _refs(metadata: Metadata) -> Metadata:
    """The first version of the specification had no names; main is what is current."""
    current = current_snapshot_id(metadata)
    return {**({MAIN: {"snapshot-id": current}} if current is not None else {}), **(metadata.get("refs") or {})}


def _log(metadata: Metadata) -> list[Metadata]:
    current = find_snapshot(metadata, current_snapshot_id(metadata))
    return list(metadata.get("snapshot-log") or ([current] if current is not None else []))


def _is_whole(metadata: Metadata) -> bool:
    """Whether the history begins with the commit of the table's first snapshot: before that there was nothing.

    Cut by expiry it may begin with the first snapshot too, where a rollback had gone back to that.
    """
    log = _log(metadata)
    first = find_snapshot(metadata, log[0]["snapshot-id"]) if log else None
    if first is None or first.get("parent-snapshot-id") is not None or (first.get("sequence-number") or 0) > 1:
        return False
    return bool(first["timestamp-ms"] == log[0]["timestamp-ms"])


def _of_some_alone(ref: Ref, known: list[SnapshotRead], unknown: list[str]) -> NotFound:
    what = f"Snapshot {ref.snapshot_id}" if ref.snapshot_id is not None else f"The tag or branch {ref.name}"
    return NotFound(
        f"{what} is one of {_few([each.table for each in known])}, and not of {_few(unknown)}, which the question "
        f"reads too. Ask for one table, or name a time: the snapshot is of {to_text(known[0].committed_at)}."
    )


def _few(names: list[str]) -> str:
    if len(names) <= _TABLES_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:_TABLES_SHOWN])} and {len(names) - _TABLES_SHOWN} others"


def _began_later(ref: Ref, table: str, metadata: Metadata) -> NotFound:
    if not metadata.get("snapshots"):
        return NotFound(f"{table} has no snapshot at all: nothing has come into it yet. Read it without {ref}.")
    return NotFound(f"At {ref} {table} had no snapshot yet. {_oldest(table, metadata)}")


def _time_expired(metadata: Metadata, ref: Ref, table: str) -> NotFound:
    log, at_ms = _log(metadata), ref.at_ms or 0
    since = f"It can be read by time since {_text(log[0])}" if log else "It has no history to read by time"
    before = [each for each in metadata["snapshots"] if each["timestamp-ms"] <= at_ms]
    if not before:
        return NotFound(f"The snapshot of {table} at {ref} has expired. {since}. {_oldest(table, metadata)}")
    last = max(before, key=lambda each: int(each["timestamp-ms"]))
    return NotFound(
        f"The snapshot of {table} at {ref} has expired, or cannot be told any more. {since}; of before that the last "
        f"one kept is {last['snapshot-id']} of {_text(last)}, which can be read by that number."
    )


def _oldest(table: str, metadata: Metadata) -> str:
    first = min(metadata["snapshots"], key=lambda each: int(each["timestamp-ms"]))
    return f"The oldest that can be read is {first['snapshot-id']} of {_text(first)}."


def _text(entry: Metadata) -> str:
    return to_text(to_moment(entry["timestamp-ms"]))
