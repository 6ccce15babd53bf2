"""Commit: every change of a table is one compare-and-set, and it has three outcomes.

Committed, refused or unknown. A change is worked out from the metadata that was read, written beside it, and takes its
place only if nothing else has since. Where there is no answer, or the answer is a refusal that a repeated request could
have drawn, the table is read: if our own snapshot or metadata file is in it, it landed. Nothing is deleted before that
is known. Trying again is safe, since a change that may still be on its way started from the same metadata, and of the
two only one can land.

Spark's JVM writes data files and manifests but commits nothing: its catalog client repeats a statement whose answer got
lost, takes its own commit for somebody else's, and deletes the files of a snapshot that is there.
"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headwater import faults, telemetry
from headwater.clock import utc_now
from headwater.errors import DataFault, HeadwaterError, OutcomeUnknown, Unavailable
from headwater.settings import Settings
from headwater.storage.tables.expire_snapshots import Keep, expirable
from headwater.storage.tables.metadata import (
    Edit,
    Metadata,
    dropped_metadata_files,
    next_location,
    next_metadata,
    read_metadata,
    snapshot_ids,
    write_metadata,
)
from headwater.storage.tables.metadata_location import MetadataLocations, metadata_locations
from headwater.storage.tables.rest_catalog import is_rest
from headwater.storage.tables.warehouse_files import WarehouseFiles

if TYPE_CHECKING:
    from headwater.storage.tables.unreachable_files import ReachableFiles

ATTEMPTS: Final = 12  # of a change that maintenance came before, each time
SETTLE_SECONDS: Final = 60.0  # how long a catalog that does not answer is asked what became of a commit
LOOK_SECONDS: Final = 0.5
READ_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Base:
    """A table as a commit finds it: its metadata, and which file that is."""

    location: str
    metadata: Metadata


# What to change, worked out anew for each attempt; None where nothing is to be changed. It may raise Conflict.
Propose = Callable[[], tuple[Base, Edit] | None]


class CommittedTables(Protocol):
    """A catalog as commits see it. `needs_snapshot` says that it compares snapshots alone, no properties."""

    needs_snapshot: bool

    def base(self, table: str) -> Base: ...

    def base_at(self, table: str, location: str) -> Base | None:
        """The table as it was when this metadata file was its current one; None where that cannot be had any more."""
        ...

    def attempt(self, table: str, base: Base, edit: Edit) -> "Landing":
        """One compare-and-set; raises NoAnswer where nothing comes back."""
        ...


@dataclass(frozen=True, slots=True)
class Landing:
    """`location` is the metadata file that we wrote, if we did; `unnamed` are files that no metadata names any more."""

    landed: bool
    location: str | None = None
    unnamed: tuple[str, ...] = ()


class Committer:
    """The one way to change a table of a lake. Threads may share it."""

    def __init__(self, settings: Settings, clock_ms: Callable[[], int] | None = None) -> None:
        self._settings = settings
        self.now_ms = clock_ms or _now_ms
        self.files = WarehouseFiles(settings)
        self.tables = open_committed_tables(settings, self.files, self.now_ms)
        self._reachable: dict[str, ReachableFiles] = {}

    def commit(self, table: str, propose: Propose) -> Base | None:
        """The base that was built on; None where nothing was to be changed.

        Conflict comes from `propose`. OutcomeUnknown where the catalog tells neither way for a minute.
        """
        own = _OwnAttempts()
        for _ in range(ATTEMPTS):
            try:
                proposal = propose()
            except Exception as error:  # Conflict, or what PyIceberg requires and does not find
                if own.unanswered and self._landed_late(table, own, own.unanswered, error):
                    return self._clean_up(table, own.unanswered, own.last)
                raise
            if proposal is None:
                return own.unanswered and self._clean_up(table, own.unanswered, own.last)
            base, edit = proposal
            faults.point("commit.proposed")
            if self._attempt(table, base, edit, own):
                faults.point("commit.landed")
                return self._clean_up(table, base, edit)
        raise Unavailable(f"{table} is committed to so often that this commit found no room. Try again.")

    def _clean_up(self, table: str, base: Base, edit: Edit) -> Base:
        if edit.expired:
            self._delete_unreachable(table, base, edit.expired)
        return base

    def _landed_late(self, table: str, own: "_OwnAttempts", base: Base, error: Exception) -> bool:
        """Whether what now stands in the way of trying again is an attempt of ours that was given up too early."""
        found = self._read_patiently(table)
        if own.is_in(found):
            return True
        if isinstance(error, HeadwaterError) and error.retryable and found.location == base.location:
            raise _outcome_unknown(table, error) from error  # it may still be on its way
        return False

    def expire(self, table: str, keep: Keep) -> int:
        """Let go of the snapshots that `keep` does not name, and of their files; how many snapshots."""
        gone: frozenset[int] = frozenset()

        def propose() -> tuple[Base, Edit] | None:
            nonlocal gone
            base = self.tables.base(table)
            found = expirable(base.metadata, keep, self.now_ms())
            gone = found or gone  # none are left where an attempt that was given up has landed since
            return (base, Edit(expired=found)) if found else None

        return len(gone) if self.commit(table, propose) is not None else 0

    def _delete_unreachable(self, table: str, before: Base, expired: Collection[int]) -> None:
        """Delete the files that only these snapshots needed, of those that are out of the table now.

        The commit has landed, so trouble here is noted and left: files that no snapshot names harm nobody.
        """
        try:
            now = self.tables.base(table).metadata
            gone = set(expired) - snapshot_ids(now)
            out = [one for one in before.metadata["snapshots"] if one["snapshot-id"] in gone]
            found = self._reachable_files(table).unreachable(now.get("snapshots", ()), out)
            self.files.delete(found.files)
            if found.unread:
                _note_not_deleted(table, f"{len(found.unread)} cannot be read: {', '.join(found.unread)}")
        except Exception as error:  # of a catalog, a disk, an object store or Avro
            _note_not_deleted(table, str(error).partition("\n")[0])

    def _reachable_files(self, table: str) -> "ReachableFiles":
        from headwater.storage.tables.unreachable_files import ReachableFiles, warehouse_io

        return self._reachable.setdefault(table, ReachableFiles(warehouse_io(self._settings)))

    def _attempt(self, table: str, base: Base, edit: Edit, own: "_OwnAttempts") -> bool:
        own.note(edit)
        try:
            done = self.tables.attempt(table, base, edit)
        except NoAnswer as lost:
            # It may yet land, so what it names stays, whatever is found now.
            own.unanswered = base
            own.locations |= {lost.location} if lost.location else set()
            return own.is_in(self._read_patiently(table))
        if done.landed:
            self.files.delete(done.unnamed)
            return True
        own.locations |= {done.location} if done.location else set()
        if own.is_in(self._read_patiently(table)):
            return True
        self.files.delete([done.location] if done.location else [])
        return False

    def _read_patiently(self, table: str) -> Base:
        """The table as it is now; a catalog that does not answer is asked again for a while."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                return self.tables.base(table)
            except HeadwaterError as error:
                if not error.retryable or time.monotonic() > deadline:
                    raise _outcome_unknown(table, error) from error
            time.sleep(LOOK_SECONDS)


class _OwnAttempts:
    """What a commit of ours is known by, in any of its attempts; `unanswered` is the base of one that may yet land."""

    def __init__(self) -> None:
        self.snapshots: set[int] = set()
        self.locations: set[str] = set()
        self.last = Edit()
        self.unanswered: Base | None = None

    def note(self, edit: Edit) -> None:
        self.last = edit
        if edit.snapshot is not None:
            self.snapshots.add(edit.snapshot["snapshot-id"])

    def is_in(self, found: Base) -> bool:
        if self.snapshots:
            return bool(self.snapshots & snapshot_ids(found.metadata))
        if self.locations:
            log = {entry["metadata-file"] for entry in found.metadata.get("metadata-log", ())}
            return bool(self.locations & {found.location, *log})
        return _is_done(self.last, found.metadata)


def _is_done(edit: Edit, found: Metadata) -> bool:
    """Where a server names the files itself and there is no snapshot, a change is known by what it comes to."""
    if not (edit.properties or edit.cleared or edit.expired or edit.refs or edit.dropped_refs):
        return False
    properties, refs = found.get("properties", {}), found.get("refs") or {}
    return (
        edit.properties.items() <= properties.items()
        and not properties.keys() & set(edit.cleared)
        and not snapshot_ids(found) & set(edit.expired)
        and not refs.keys() & set(edit.dropped_refs)
        and all(refs.get(name, {}).items() >= ref.items() for name, ref in edit.refs.items())
    )


def _note_not_deleted(table: str, detail: str) -> None:
    telemetry.note("expiry.left", level="warning", table=table, detail=detail[:300])


def _outcome_unknown(table: str, error: HeadwaterError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"It is unknown whether the commit to {table} landed: {str(error).rstrip('.')}. "
        "The next run finds out by reading the table; no file was deleted."
    )


class NoAnswer(Exception):
    """A compare-and-set was sent and nothing came back; `location` is the metadata file that it named."""

    def __init__(self, location: str | None = None) -> None:
        super().__init__(location)
        self.location = location


def open_committed_tables(
    settings: Settings, files: WarehouseFiles, clock_ms: Callable[[], int] | None = None
) -> CommittedTables:
    if is_rest(settings.text("catalog.uri")):
        from headwater.storage.tables.rest_commit import RestTables

        return RestTables(settings, clock_ms or _now_ms)
    return SqlTables(metadata_locations(settings), files, clock_ms)


class SqlTables:
    """Of a SQL catalog: the metadata file is written here, and the catalog's row is swapped."""

    needs_snapshot = False

    def __init__(
        self, locations: MetadataLocations, files: WarehouseFiles, clock_ms: Callable[[], int] | None = None
    ) -> None:
        self._locations = locations
        self._files = files
        self._clock_ms = clock_ms or _now_ms
        self._last: dict[str, Base] = {}  # what we wrote ourselves need not be read again

    def base(self, table: str) -> Base:
        for _ in range(READ_ATTEMPTS):
            # So many commits may come in between that its file is gone.
            if (found := self.base_at(table, self._locations.read(table))) is not None:
                return found
        raise DataFault(
            "MISSING_OBJECT",
            f"{table} is at {self._locations.read(table)} by the catalog, and there is no such file. "
            "Restore the lake from a backup: headwater restore",
        )

    def base_at(self, table: str, location: str) -> Base | None:
        last = self._last.get(table)
        if last is not None and last.location == location:
            return last
        with suppress(FileNotFoundError):
            return Base(location, read_metadata(self._files.read(location)))
        return None

    def attempt(self, table: str, base: Base, edit: Edit) -> Landing:
        location = next_location(base.metadata, base.location)
        made = next_metadata(base.metadata, base.location, edit, self._clock_ms())
        self._files.write(location, write_metadata(made))
        faults.point("commit.written")
        try:
            landed = self._locations.swap(table, base.location, location)
        except Unavailable:
            raise NoAnswer(location) from None
        if landed:
            self._last[table] = Base(location, made)
        return Landing(landed, location, tuple(dropped_metadata_files(base.metadata, made)) if landed else ())


def _now_ms() -> int:
    return int(utc_now().timestamp() * 1000)
