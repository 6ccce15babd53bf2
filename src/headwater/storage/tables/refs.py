"""Refs: a table's tags and branches, made, moved and dropped, each in one commit that is done once.

What Iceberg calls ManageSnapshots. A ref keeps its snapshot, and the files of that, from expiry until it has the age
that it may get. `main` is no ref of this kind: it goes where rows are committed, and a restore sets it back.
No JVM is needed.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.metadata import (
    MAIN,
    Edit,
    Metadata,
    current_snapshot_id,
    find_snapshot,
)

Kind = Literal["tag", "branch"]
_KIND: Final = "type"
_MAX_AGE: Final = "max-ref-age-ms"


@dataclass(frozen=True, slots=True)
class TableRef:
    """A tag or branch as it stands in a table's metadata."""

    name: str
    kind: Kind
    snapshot_id: int


def list_refs(committer: Committer, table: str) -> list[TableRef]:
    """By name, `main` left out."""
    found = _refs(committer.tables.base(table).metadata)
    return [TableRef(name, ref[_KIND], ref["snapshot-id"]) for name, ref in sorted(found.items()) if name != MAIN]


def create_ref(
    committer: Committer,
    table: str,
    name: str,
    kind: Kind = "tag",
    *,
    snapshot_id: int | None = None,
    keep_ms: int | None = None,
) -> TableRef:
    """Name a snapshot, by default the current one. Twice is once; Conflict where the name is another snapshot's.

    `keep_ms` is how long from now the name counts; without it, until it is dropped. Who names a snapshot again may have
    it kept longer by that, never shorter.
    """
    _require_not_main(name)
    made: list[TableRef] = []

    def propose() -> tuple[Base, Edit] | None:
        base = committer.tables.base(table)
        wanted = current_snapshot_id(base.metadata) if snapshot_id is None else snapshot_id
        ref = ref_to(_snapshot(base.metadata, table, wanted), kind, committer.now_ms(), keep_ms)
        made[:] = [TableRef(name, kind, ref["snapshot-id"])]
        there = _refs(base.metadata).get(name)
        if there is None:
            return base, Edit(refs={name: ref})
        if (there["snapshot-id"], there[_KIND]) != (ref["snapshot-id"], kind):
            raise Conflict(
                f"{table} has a {there[_KIND]} {name} already, at snapshot {there['snapshot-id']}. "
                "Take another name, or move or drop that one."
            )
        return (base, Edit(refs={name: ref})) if _outlives(ref, there) else None

    committer.commit(table, propose)
    return made[0]


def move_ref(committer: Committer, table: str, name: str, snapshot_id: int, *, expects: int | None = None) -> None:
    """Have a tag or branch name another snapshot; how old it may get stays. Twice is once.

    `expects` is the snapshot that it was seen at: Conflict where somebody has moved it since.
    """
    _require_not_main(name)

    def propose() -> tuple[Base, Edit] | None:
        base = committer.tables.base(table)
        ref = _require_ref(base.metadata, table, name)
        _snapshot(base.metadata, table, snapshot_id)
        if ref["snapshot-id"] == snapshot_id:
            return None
        if expects is not None and ref["snapshot-id"] != expects:
            raise Conflict(
                f"{name} of {table} moved meanwhile: expected={expects} found={ref['snapshot-id']}. Look at it again."
            )
        return base, Edit(refs={name: {**ref, "snapshot-id": snapshot_id}})

    committer.commit(table, propose)


def drop_ref(committer: Committer, table: str, name: str) -> bool:
    """Whether there was one. Its snapshot is let go by the next expiry, if nothing else keeps it."""
    _require_not_main(name)

    def propose() -> tuple[Base, Edit] | None:
        base = committer.tables.base(table)
        return (base, Edit(dropped_refs=[name])) if name in _refs(base.metadata) else None

    return committer.commit(table, propose) is not None


def ref_to(snapshot: Metadata, kind: Kind, now_ms: int, keep_ms: int | None) -> Metadata:
    """As a table's metadata has it. Iceberg takes a ref to be as old as its snapshot, which may have been there for
    long."""
    ref = {"snapshot-id": snapshot["snapshot-id"], _KIND: kind}
    if keep_ms is None:
        return ref
    return {**ref, _MAX_AGE: max(0, now_ms - int(snapshot["timestamp-ms"])) + keep_ms}


def _outlives(ref: Metadata, there: Metadata) -> bool:
    """Of the same snapshot."""
    age = there.get(_MAX_AGE)
    return age is not None and ref.get(_MAX_AGE, math.inf) > age


def _refs(metadata: Metadata) -> Metadata:
    found: Metadata = metadata.get("refs") or {}
    return found


def _require_ref(metadata: Metadata, table: str, name: str) -> Metadata:
    found: Metadata | None = _refs(metadata).get(name)
    if found is None:
        raise NotFound(f"{table} has no tag or branch {name}. It may have aged, or never was: make it anew.")
    return found


def _snapshot(metadata: Metadata, table: str, snapshot_id: int | None) -> Metadata:
    if snapshot_id is None:
        raise NotFound(f"{table} has no snapshot yet that could be named: nothing ever came into it.")
    if (found := find_snapshot(metadata, snapshot_id)) is None:
        raise NotFound(f"{table} has no snapshot {snapshot_id}: it has expired, or never was. Name one that is there.")
    return found


def _require_not_main(name: str) -> None:
    if name == MAIN:
        raise InvalidRequest("main goes where rows are committed. Name a tag or a branch of your own.")
