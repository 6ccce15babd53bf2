"""A commit has three outcomes, and none of them destroys a table: whatever becomes of the catalog's answer."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lakes import parts_of
from losing import losing_committer
from pyspark.sql import functions as F
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.domain.progress import Progress
from headwater.domain.tables import EVENTS, MESSAGES, METADATA, QUARANTINE, TABLES
from headwater.errors import Conflict, OutcomeUnknown, Unavailable
from headwater.lake import Lake
from headwater.settings import Settings
from headwater.storage.io.local_path import local_path
from headwater.storage.ledger.hold_lease import hold_lease
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables import commit, warehouse_files
from headwater.storage.tables.commit import Base, Committer, Landing, SqlTables
from headwater.storage.tables.metadata import Edit, edit_for, progress_in, snapshot_ids
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.rewrite_files import remove_rows
from headwater.storage.tables.writer import TableWriter


@pytest.fixture
def made(settings: Settings) -> Settings:
    catalogs.create_tables(catalogs.open_catalog(settings))
    return settings


def moving(committer: Committer, position: int) -> Base | None:
    def propose() -> tuple[Base, Edit] | None:
        base = committer.tables.base(METADATA.name)
        after = progress_in(base.metadata).advanced({EVENTS.name: position}, rows=0)
        if progress_in(base.metadata).seq_of(EVENTS.name) not in {0, position}:
            raise Conflict("somebody else moved it")
        return (base, edit_for(base.metadata, after, None)) if after != progress_in(base.metadata) else None

    return committer.commit(METADATA.name, propose)


@pytest.mark.parametrize("wire", ["done", "lost", "refused", "late", "repeated"])
def test_a_move_lands_once_whatever_becomes_of_the_answer(made: Settings, wire: str) -> None:
    committer, _ = losing_committer(made, wire)
    moving(committer, 7)
    assert read_progress(made, METADATA).seq_of(EVENTS.name) == 7


def test_an_outcome_that_nobody_tells_is_unknown_and_found_out_by_who_reads(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(commit, "LOOK_SECONDS", 0.01)
    committer, wire = losing_committer(made, "lost")
    before = files_of(made)

    def silence(*_: object) -> None:
        wire.silent_reads = 10_000

    monkeypatch.setattr(committer.tables, "attempt", then(committer.tables.attempt, silence))
    with pytest.raises(OutcomeUnknown, match="no file was deleted") as unknown:
        moving(committer, 7)
    assert unknown.value.exit_code == 7
    assert before <= files_of(made)
    assert read_progress(made, METADATA).seq_of(EVENTS.name) == 7, "it had landed"


def test_a_catalog_that_falls_silent_before_a_second_try_leaves_the_outcome_unknown(made: Settings) -> None:
    """The first try may still be on its way: nobody may say that nothing was written."""
    committer, _ = losing_committer(made, "refused")
    tries = iter([None, Unavailable("The warehouse does not answer.")])

    def propose() -> tuple[Base, Edit] | None:
        if (trouble := next(tries)) is not None:
            raise trouble
        base = committer.tables.base(METADATA.name)
        return base, edit_for(base.metadata, progress_in(base.metadata).advanced({EVENTS.name: 7}, rows=0), None)

    with pytest.raises(OutcomeUnknown, match="warehouse does not answer"):
        committer.commit(METADATA.name, propose)


def then(call: Any, after: Any) -> Any:
    def both(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        finally:
            after()

    return both


def test_metadata_of_an_attempt_without_an_answer_is_never_deleted(made: Settings) -> None:
    """It may land when everybody has given it up."""
    committer, _ = losing_committer(made, "refused")
    moving(committer, 7)
    kept = [path for path in files_of(made) if "silver/metadata/metadata/" in path]
    assert len(kept) == 4  # as made, with a second spec, the attempt that got lost, and the one that landed


def test_properties_that_land_when_they_were_given_up_are_no_conflict(made: Settings) -> None:
    catalog: Any = catalogs.open_catalog(made)
    catalog._committer, _ = losing_committer(made, "late")
    catalogs.set_properties_if(catalog, METADATA.name, {"colour": None}, {"colour": "blue"})
    assert catalog.load_table(METADATA.name).properties["colour"] == "blue"


class Unnamed:
    """A server that names the metadata files itself, and refuses the first attempt before it does the second."""

    needs_snapshot = True

    def __init__(self, inner: SqlTables) -> None:
        self._inner = inner
        self.attempts = 0

    def base(self, table: str) -> Base:
        return self._inner.base(table)

    def base_at(self, table: str, location: str) -> Base | None:
        return self._inner.base_at(table, location)

    def attempt(self, table: str, base: Base, edit: Edit) -> Landing:
        self.attempts += 1
        return Landing(self.attempts > 1 and self._inner.attempt(table, base, edit).landed)


def test_a_change_without_a_name_that_was_refused_has_not_landed(made: Settings) -> None:
    """An expiry or a tag alone has neither a snapshot nor a metadata file by which it could be told."""
    committer = Committer(made)
    table: Any = catalogs.open_catalog(made).load_table(METADATA.name)
    for _ in range(2):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
    (first, last), inner = (one.snapshot_id for one in table.metadata.snapshots), committer.tables
    for edit in (Edit(refs={"keep": {"type": "tag", "snapshot-id": last}}), Edit(expired=[first]), Edit()):
        committer.tables = server = Unnamed(inner)  # type: ignore[arg-type]
        committer.commit(METADATA.name, lambda edit=edit: (committer.tables.base(METADATA.name), edit))  # type: ignore[misc]
        assert server.attempts == 2
    after = committer.tables.base(METADATA.name).metadata
    assert snapshot_ids(after) == {last}
    assert after["refs"]["keep"]["snapshot-id"] == last


def test_a_clock_that_went_back_stops_nobody(spark: Any, made: Settings) -> None:
    ahead = Committer(made, lambda: int(utc_now().timestamp() * 1000) + 7_200_000)
    moving(ahead, 7)
    writer = TableWriter(spark, made)
    writer.publish(METADATA, rows(METADATA, [{"object_id": "a"}]).select(METADATA.columns), {}, stage="test")
    writer.publish(METADATA, None, {EVENTS.name: 9}, stage="test")
    assert spark.table("lake.silver.metadata").count() == 1
    catalogs.set_properties_if(catalogs.open_catalog(made), METADATA.name, {}, {"colour": "blue"})
    assert spark.sql("select object_id from lake.silver.metadata").collect()[0][0] == "a"


def test_what_pyiceberg_commits_by_a_clock_that_is_behind_is_as_late_as_the_table(spark: Any, made: Settings) -> None:
    moving(Committer(made, lambda: int(utc_now().timestamp() * 1000) + 7_200_000), 7)
    table = catalogs.open_catalog(made).load_table(METADATA.name)
    for _ in range(2):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
    first, last = table.metadata.snapshots
    table.manage_snapshots().set_current_snapshot(first.snapshot_id).commit()
    after = Committer(made).tables.base(METADATA.name).metadata
    assert {one["timestamp-ms"] for one in after["snapshots"]} == {after["last-updated-ms"]}
    assert {one["timestamp-ms"] for one in after["snapshot-log"]} == {after["last-updated-ms"]}
    assert [one["snapshot-id"] for one in after["snapshot-log"]][-1] == first.snapshot_id != last.snapshot_id
    assert spark.table("lake.silver.metadata").count() == 0


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        yield made


@pytest.mark.parametrize("wire", ["done", "lost", "refused", "late", "repeated"])
def test_rows_land_once_whatever_becomes_of_the_answer(lake: Lake, wire: str) -> None:
    writer = TableWriter(lake.spark, lake.settings, epoch=1)
    given = rows(MESSAGES, [{"object_id": f"o{number}", "text": "hello"} for number in range(3)])
    for kind in ("done", wire, "done"):
        writer._committer, _ = losing_committer(lake.settings, kind)
        since = read_progress(writer.tables, MESSAGES)
        position = {EVENTS.name: since.seq_of(EVENTS.name) + 3}
        assert writer.publish(MESSAGES, given.select(MESSAGES.columns), position, since=since, stage="derive") == 3
    base = Committer(lake.settings).tables.base(MESSAGES.name)
    assert len(snapshot_ids(base.metadata)) == 3
    assert progress_in(base.metadata).next_seq == progress_in(base.metadata).seq_of(EVENTS.name) == 9
    assert lake.spark.table("lake.silver.messages").count() == 9
    assert sorted(lake.table("messages").to_arrow()["seq"].to_pylist()) == list(range(9))


def test_a_position_that_moved_since_it_was_read_refuses_the_rows(lake: Lake) -> None:
    slow, quick = (TableWriter(lake.spark, lake.settings) for _ in range(2))
    given = rows(MESSAGES, [{"object_id": "a", "text": "hello"}]).select(MESSAGES.columns)
    since = read_progress(slow.tables, MESSAGES)
    quick.publish(MESSAGES, given, {EVENTS.name: 4}, since=since, stage="derive")
    with pytest.raises(Conflict, match="expected=None found=4"):
        slow.publish(MESSAGES, given, {EVENTS.name: 2}, since=since, stage="derive")
    assert read_progress(slow.tables, MESSAGES) == Progress(1, {EVENTS.name: 4})


def test_a_smaller_epoch_than_the_table_has_seen_is_refused_everything(lake: Lake) -> None:
    old, new = (TableWriter(lake.spark, lake.settings, epoch) for epoch in (3, 4))
    given = rows(MESSAGES, [{"object_id": "a", "text": "hello"}]).select(MESSAGES.columns)
    old.publish(MESSAGES, given, {}, stage="derive")
    new.fence()
    for call in (
        lambda: old.publish(MESSAGES, given, {}, stage="derive"),
        lambda: old.publish(MESSAGES, None, {EVENTS.name: 2}, stage="derive"),
        lambda: old.forget_positions(MESSAGES, "/x"),
        lambda: remove_rows(old, MESSAGES, F.col("object_id") == "a"),
    ):
        with pytest.raises(Conflict, match="took over"):
            call()
    assert read_progress(new.tables, MESSAGES).next_seq == 1
    assert lake.spark.table("lake.silver.messages").count() == 1


def test_who_took_over_and_found_nothing_to_do_leaves_the_fencing_to_the_next_holder(lake: Lake) -> None:
    asleep = parts_of(lake).ledger.acquire_lease("run", "asleep", 60, utc_now() - timedelta(hours=1))
    assert not lake.run().started
    lake.put_text("hello", customer="acme", id="a")
    lake.run()
    for table in TABLES:
        assert read_progress(lake.settings, table).epoch > asleep.epoch, table.name
    before = read_progress(lake.settings, QUARANTINE).epoch
    lake.put_text("hello again", customer="acme", id="b")
    lake.run()
    assert read_progress(lake.settings, QUARANTINE).epoch == before, "it was done once"


def test_who_took_over_and_failed_half_way_leaves_the_fencing_to_the_next_holder(lake: Lake) -> None:
    ledger = parts_of(lake).ledger
    ledger.acquire_lease("run", "asleep", 60, utc_now() - timedelta(hours=1))
    with pytest.raises(Unavailable), hold_lease(ledger, "run", "fails", utc_now, lambda: None) as held:
        assert held.lease.takeover
        raise Unavailable("The catalog went away in the middle.")
    with hold_lease(ledger, "run", "next", utc_now, lambda: None) as held:
        assert held.lease.takeover
        held.note_fenced()
    with hold_lease(ledger, "run", "last", utc_now, lambda: None) as held:
        assert not held.lease.takeover


def test_an_epoch_that_was_raised_and_not_yet_written_is_left_to_the_next_holder(lake: Lake) -> None:
    ledger = parts_of(lake).ledger
    with hold_lease(ledger, "run", "raises", utc_now, lambda: None) as held:
        held.raise_above(41)
    with hold_lease(ledger, "run", "next", utc_now, lambda: None) as held:
        assert held.lease.epoch == 43 and held.lease.takeover


def test_a_ledger_that_counts_anew_is_raised_above_what_the_tables_have_seen(lake: Lake) -> None:
    TableWriter(lake.spark, lake.settings, epoch=41).fence()
    lake.put_text("hello", customer="acme", id="a")
    assert lake.run().done["bronze"] == 1
    assert read_progress(lake.settings, EVENTS).epoch == 42


def test_a_ledger_under_a_lease_that_was_lost_takes_no_change(lake: Lake) -> None:
    ledger = parts_of(lake).ledger
    with (
        pytest.raises(Conflict, match="lost to another process"),  # whoever ends without noticing is told at the end
        hold_lease(ledger, "run", "one", utc_now, lambda: None) as held,
    ):
        mine = held.ledger
        mine.set_fact("colour", "blue")
        ledger.release(held.lease)
        ledger.acquire_lease("run", "another", 60, utc_now())
        for call in (
            lambda: mine.set_fact("colour", "red"),
            lambda: mine.forget_claims_from(0, 0),
            lambda: mine.claim_first("event", [("a", "b", 0, 0)]),
            lambda: mine.change_fact("colour", lambda _: "red"),
        ):
            with pytest.raises(Conflict, match="lost to another process"):
                call()
        assert ledger.fact("colour") == "blue"
        ended = True
    assert ended


def test_what_the_catalog_names_was_synced_before(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a file that was not synced may be empty, and an entry of a directory gone."""
    synced: set[str] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(warehouse_files.os, "fsync", noting)
    named: list[str] = []
    swap = commit.SqlTables.attempt

    def attempt(tables: Any, table: str, base: Base, edit: Edit) -> Any:
        before = set(synced)
        done = swap(tables, table, base, edit)
        named.append(done.location)
        assert local_path(done.location) in synced - before
        return done

    monkeypatch.setattr(commit.SqlTables, "attempt", attempt)
    lake.put_text("my router is broken", customer="acme", id="a")
    lake.run()
    assert len(named) >= 6
    for table in TABLES:
        loaded = parts_of(lake).catalog.load_table(table.name)
        current = loaded.current_snapshot()
        if current is None:
            continue
        files = [current.manifest_list, *(each.manifest_path for each in current.manifests(loaded.io))]
        files += [task.file.file_path for task in loaded.scan().plan_files()]
        for file in map(local_path, files):
            assert file in synced, f"{file} was not synced"
            assert os.path.dirname(file) in synced


def test_what_pyiceberg_wrote_is_synced_before_the_catalog_names_it(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, synced, fsync = catalogs.open_catalog(made), set(), os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(warehouse_files.os, "fsync", noting)
    table = catalog.load_table(METADATA.name)
    append(table, rows(METADATA, [{"object_id": "a"}]))
    current = table.current_snapshot()
    assert current is not None
    written = [current.manifest_list, *(each.manifest_path for each in current.manifests(table.io))]
    written += [task.file.file_path for task in table.scan().plan_files()]
    assert len(written) == 3
    assert {local_path(path) for path in written} <= synced


def files_of(settings: Settings) -> set[str]:
    return {str(path) for path in (settings.lake / "warehouse").rglob("*") if path.is_file()}
