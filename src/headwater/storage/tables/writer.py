"""Table writer: rows and how far a table has come in one commit, at most once, however often a stage is killed.

Files are written first, seen by nobody: by the driver, where it holds the rows, else by Spark's tasks. One commit then
adds them to the table and notes what was consumed. The note is the truth: Spark's checkpoints are hints, because they
can be lost while the rows stay.

A commit is fenced by what its stage read when it began: how far it had come for each position that it moves, and under
which lease. A process that slept while another took its place finds one of the two moved, and is refused, whatever it
believes; a compaction in between adds no rows and passes.
"""

import json
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import faults
from headwater.domain.progress import Positions, Progress
from headwater.domain.tables import TABLES, Table
from headwater.errors import Conflict, Unavailable
from headwater.settings import Settings
from headwater.storage.io.local_path import local_path
from headwater.storage.io.s3 import is_s3
from headwater.storage.tables.commit import Base, CommittedTables, Committer, Propose
from headwater.storage.tables.data_files import DAYS_APART, unpartitioned_spec, write_files
from headwater.storage.tables.expire_snapshots import LEAST, Keep, expirable
from headwater.storage.tables.java_tables import load_java, write_staged
from headwater.storage.tables.metadata import Edit, Metadata, edit_for, progress_in
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import collect, read_table, to_arrow
from headwater.storage.tables.spark_errors import translated_java
from headwater.storage.tables.spread_rows import TASK_OPTIONS, assign_seqs, count_partitions, persisted

# In the driver's hands, or in Spark's, which makes them once for every table that they are written to.
Rows: TypeAlias = pa.Table | DataFrame
# What becomes of a table's progress with a commit, from what it is when the commit is made.
Advance = Callable[[Progress], Progress]
Check = Callable[[Metadata], None]


@dataclass(frozen=True, slots=True)
class _Written:
    """Files that are not in the table yet, and the number that their first row has."""

    files: Sequence[JavaObject]
    rows: int
    first: int


class TableWriter:
    """Adds rows to the lake's tables and takes rows away. One for a run; its stages' threads share it.

    `epoch` is that of the lease under which it works; None is for who needs none, as tests do.
    """

    def __init__(self, spark: SparkSession, settings: Settings, epoch: int | None = None) -> None:
        self.spark = spark
        self.settings = settings
        self.epoch = epoch
        self._committer = Committer(settings)
        self._keep = Keep.from_settings(settings)
        # The stages' threads may both publish quarantine rows.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._rewriting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def rewrite_lock(self, table: Table) -> threading.Lock:
        """Held while rows are taken out of a table."""
        return self._rewriting[table.name]

    @property
    def tables(self) -> CommittedTables:
        """Where `read_progress` finds how far they have come."""
        return self._committer.tables

    def publish(
        self,
        table: Table,
        rows: Rows | None,
        consumed: Positions,
        *,
        stage: str,
        since: Progress | None = None,
        duplicates: int = 0,
        aside: Mapping[str, int] | None = None,
        raw: Mapping[str, int] | None = None,
        logs: Mapping[str, str] | None = None,
    ) -> int:
        """Append `rows` (without `seq`) and note `consumed`, in one commit; how many. Raises Conflict if fenced.

        `since` is the table's progress as the stage read it before it began: what it moves must be as it was then.
        """
        if isinstance(rows, pa.Table) and not len(rows):
            rows = None
        if rows is None and not consumed and not duplicates:
            return 0
        with self._locks[table.name]:
            if rows is None:
                self._commit_progress(table, self._advance(table, consumed, since, duplicates=duplicates, logs=logs))
                return 0
            before = self._require_current(table, read_progress(self.tables, table), consumed, since)
            written = self._write(table, rows, before.next_seq)
            faults.point(f"{stage}.staged")
            counted = {"rows": written.rows, "duplicates": duplicates, "aside": aside, "raw": raw, "logs": logs}
            advance = self._advance(table, consumed, since, first=written.first, **counted)
            if written.files:
                self._append(table, written.files, advance)
            else:
                self._commit_progress(table, advance)
            faults.point(f"{stage}.published")
            return written.rows

    def not_yet_in(self, table: Table, rows: Rows, key: Sequence[str], *, of_any_time: bool = False) -> Rows:
        """Those of `rows` whose key is new, each once; looked for only where the table has rows of their time.

        An object's rows have the time of its event, unless a rollback took that away and it came again, told later.
        """
        there = read_table(self.spark, table)
        if not of_any_time:
            there = there.where(_of_their_time(rows))
        if isinstance(rows, DataFrame):
            same = [F.col(f"new.{name}").eqNullSafe(F.col(f"held.{name}")) for name in key]
            held = there.select(*key).alias("held")
            return rows.dropDuplicates(list(key)).alias("new").join(held, same, "left_anti")
        if not len(rows):
            return rows
        objects = self.spark.createDataFrame(pa.table({"object_id": pc.unique(rows["object_id"])}))
        near = there.join(F.broadcast(objects), "object_id", "left_semi")
        held_keys, new = set(_key_values(to_arrow(near.select(*key)), key)), []
        for one in _key_values(rows, key):
            new.append(one not in held_keys)
            held_keys.add(one)
        return rows.filter(pa.array(new, pa.bool_()))

    def replace(self, table: Table, change: Callable[[JavaObject], JavaObject], check: Check) -> None:
        """Commit what an update of Iceberg's makes of the table's files; no row is added, and no position moves.

        `change` is given the table and returns the update; `check` sees each snapshot that it would come to, and may
        refuse it. Publishing waits meanwhile.
        """
        with self._locks[table.name]:
            with translated_java(table.name, writing=True):
                java = load_java(self.spark, table.name)
                update = change(java)
            advance = self._advance(table, {}, None)
            self._committer.commit(table.name, self._propose_update(table, java, update, advance, check))

    def forget_positions(self, table: Table, ending: str) -> None:
        """Take out every position whose name ends so, and what was added aside of it."""

        def forget(found: Progress) -> Progress:
            self._require_current(table, found, {}, None)
            consumed = {name: position for name, position in found.consumed.items() if not name.endswith(ending)}
            aside = {tag: rows for tag, rows in found.aside.items() if f"/{tag}" != ending}
            return replace(found, consumed=consumed, aside=aside)

        with self._locks[table.name]:
            self._commit_progress(table, forget)

    def sync(self, files: Sequence[JavaObject]) -> None:
        """Files that Spark's tasks wrote on this machine last from here on."""
        self._committer.files.sync(str(file.location()) for file in files)

    def fence(self) -> None:
        """Write the lease's epoch into every table: from here on who held the lease before is refused everywhere."""
        for table in TABLES:
            with self._locks[table.name]:
                self._commit_progress(table, self._advance(table, {}, None), always=True)

    def _advance(
        self, table: Table, consumed: Positions, since: Progress | None, *, first: int | None = None, **counted: Any
    ) -> Advance:
        def advance(found: Progress) -> Progress:
            self._require_current(table, found, consumed, since)
            if first is not None and found.next_seq != first:
                raise _moved(table, "headwater.next_seq", first, found.next_seq)
            after = found.advanced(consumed, **({"rows": 0} | counted))
            return replace(after, epoch=self.epoch) if self.epoch is not None else after

        return advance

    def _require_current(self, table: Table, found: Progress, consumed: Positions, since: Progress | None) -> Progress:
        if self.epoch is not None and found.epoch > self.epoch:
            raise Conflict(
                f"Another process took over this lake's lease and has written to {table.name} since. "
                "Nothing was written; start again if it is this one that should run."
            )
        if since is not None:
            for name in consumed:
                if found.consumed.get(name) != since.consumed.get(name):
                    raise _moved(table, name, since.consumed.get(name), found.consumed.get(name))
            if found.generation != since.generation:
                raise _moved(table, "headwater.generation", since.generation, found.generation)
        return found

    def _write(self, table: Table, rows: Rows, first: int) -> _Written:
        java = load_java(self.spark, table.name)
        with translated_java(table.name, writing=True):
            if isinstance(rows, pa.Table):
                files = write_files(self.spark._jvm, java, table, _numbered(table, rows, first), self._committer.files)
                return _Written(files, len(rows), first)
            with persisted(rows) as held:
                return self._write_by_tasks(java, table, held, first)

    def _write_by_tasks(self, java: JavaObject, table: Table, rows: DataFrame, first: int) -> _Written:
        """Written by Spark's tasks, each its own rows; what the driver learns is where files are and how many rows."""
        parts = count_partitions(table, rows)
        if not parts.rows:
            return _Written([], 0, first)
        together = unpartitioned_spec(java) if parts.days > DAYS_APART else None
        spec = java.spec() if together is None else together
        arranged = assign_seqs(table, rows, parts, first, by_time=together is not None)
        options = {"output-spec-id": str(spec.specId()), **TASK_OPTIONS}
        files = write_staged(java, table.name, arranged.coalesce(parts.files), **options)
        if (written := sum(int(file.recordCount()) for file in files)) != parts.rows:
            raise Unavailable(f"{table.name} got {written} of {parts.rows} rows: tasks were done anew. Run again.")
        self.sync(files)
        return _Written(files, written, first)

    def _append(self, table: Table, files: Sequence[JavaObject], advance: Advance) -> None:
        with translated_java(table.name, writing=True):
            java = load_java(self.spark, table.name)
            update = java.newAppend()
            for file in files:
                update.appendFile(file)
        self._committer.commit(table.name, self._propose_update(table, java, update, advance))

    def _expirable(self, base: Base) -> frozenset[int]:
        """Some at a time, with a commit that is made anyway: a stream is never without care for its metadata."""
        found = expirable(base.metadata, self._keep, self._committer.now_ms())
        return found if len(found) >= LEAST else frozenset()

    def _commit_progress(self, table: Table, advance: Advance, *, always: bool = False) -> None:
        """Progress alone."""
        if self._committer.tables.needs_snapshot:
            self._append(table, [], advance)
            return

        def propose() -> tuple[Base, Edit] | None:
            base = self._committer.tables.base(table.name)
            before = progress_in(base.metadata)
            after = advance(before)
            if after == before and not always:
                return None
            return base, edit_for(base.metadata, after, None, self._expirable(base))

        self._committer.commit(table.name, propose)

    def _propose_update(
        self, table: Table, java: JavaObject, update: JavaObject, advance: Advance, check: "Check | None" = None
    ) -> Propose:
        """Have Iceberg's library write the manifests of an update, on top of what is there; it commits nothing."""
        jvm: Any = self.spark._jvm

        def propose() -> tuple[Base, Edit]:
            base = None
            while base is None:
                with translated_java(table.name, writing=True):
                    made = update.apply()
                    snapshot = json.loads(jvm.org.apache.iceberg.SnapshotParser.toJson(made))
                    location = str(java.operations().current().metadataFileLocation())
                base = self._committer.tables.base_at(table.name, location)
            if check is not None:
                check(snapshot)
            edit = edit_for(base.metadata, advance(progress_in(base.metadata)), snapshot, self._expirable(base))
            self._committer.files.sync(_manifests(snapshot["manifest-list"]))
            return base, edit

        return propose


def _of_their_time(rows: Rows) -> Column:
    """By which files are left out. Where a row has no time, as one of quarantine may, all are looked into."""
    if isinstance(rows, DataFrame):
        (bounds,) = collect(
            rows.agg(
                F.min("occurred_at").alias("low"),
                F.max("occurred_at").alias("high"),
                F.count_if(F.col("occurred_at").isNull()).alias("timeless"),
            )
        )
        low, high, timeless = bounds["low"], bounds["high"], bounds["timeless"]
    else:
        found = pc.min_max(rows["occurred_at"])
        low, high, timeless = found["min"].as_py(), found["max"].as_py(), rows["occurred_at"].null_count
    return F.col("occurred_at").between(low, high) if low is not None and not timeless else F.lit(True)


def _numbered(table: Table, rows: pa.Table, first: int) -> pa.Table:
    # In one piece: picking rows from fifty takes three times as long.
    in_order = rows.combine_chunks().sort_by([(name, "ascending") for name in table.order])
    seq = pa.array(np.arange(first, first + len(rows)))
    return in_order.append_column("seq", seq).select(table.schema.names)


def _manifests(manifest_list: str) -> Iterator[str]:
    """The files that an update wrote: its list, `snap-<id>-<attempt>-<uuid>.avro`, and `<uuid>-m0.avro` and so on."""
    yield manifest_list
    if is_s3(manifest_list):
        return
    folder, _, name = manifest_list.rpartition("/")
    own = "-".join(name.removesuffix(".avro").split("-")[3:])
    for number in count():
        manifest = f"{folder}/{own}-m{number}.avro"
        if not os.path.exists(local_path(manifest)):
            return
        yield manifest


def _key_values(rows: pa.Table, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in key), strict=True)


def _moved(table: Table, what: str, expected: Any, found: Any) -> Conflict:
    return Conflict(
        f"{table.name} moved while rows were being made: {what} expected={expected} found={found}. "
        "Another writer is at work on this lake. Stop it, then run again; nothing was written."
    )
