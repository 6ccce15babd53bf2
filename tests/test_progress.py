"""How far a table has come, told by its properties and by the current snapshot; a rollback moves only the latter."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.domain.progress import STAMP, Progress, SnapshotNote, log_name, snapshot_property
from headwater.errors import Conflict
from headwater.storage.tables.metadata import Edit, edit_for, next_metadata, progress_in

LOG = {"log": {"0": 5}}


def noted(progress: Progress, snapshot: int) -> dict[str, str]:
    return {**progress.to_properties(), **snapshot_property(snapshot)}


def test_a_progress_survives_its_properties() -> None:
    full = Progress(7, LOG, 2, 3, {"log": {"0": 9}}, 4, {"embed/ab": 2}, 11, {"rows": 7, "objects": 3}, {"0": "a@1"})
    assert Progress.from_properties(full.to_properties()) == full
    assert Progress.from_properties(Progress().to_properties()) == Progress()
    assert set(full.cleared()) == set()
    assert len(Progress().cleared()) == 7


def test_what_others_put_on_top_changes_nothing() -> None:
    before = Progress(3, LOG)
    notes = {1: SnapshotNote(None, before.stamp()), 2: SnapshotNote(1, None), 3: SnapshotNote(2, None)}
    for current in (1, 2, 3):
        assert Progress.of_table(noted(before, 1), current, notes) == before
    # A compaction, and an expiry of all that was before it.
    assert Progress.of_table(noted(before, 1), 3, {3: notes[3]}) == before


def test_a_rollback_takes_positions_back_and_never_a_number() -> None:
    then, now = Progress(3, {"log": {"0": 3}}), Progress(5, {"log": {"0": 5, "1": 2}}, duplicates=1)
    notes = {1: SnapshotNote(None, then.stamp()), 2: SnapshotNote(1, now.stamp())}
    found = Progress.of_table(noted(now, 2), 1, notes)
    assert (found.next_seq, found.offsets, found.generation) == (5, {0: 3}, 1)
    assert found.redo == {"log": {"0": 5, "1": 2}}
    assert found.repeats_from(5)
    half = found.advanced({"log": {"0": 5, "1": 0}}, rows=2)
    assert half.redo == {"log": {"1": 2}}
    again = half.advanced({"log": {"0": 6, "1": 2}}, rows=3)
    assert (again.redo, again.redone, again.next_seq) == ({}, 10, 10)
    assert again.repeats_from(9)
    assert not again.repeats_from(10)
    # Rolled forward again, before anything was written: as if nothing had been.
    assert Progress.of_table(noted(now, 2), 2, notes) == now


def test_a_rollback_to_before_all_stamps_is_refused_with_a_way_out() -> None:
    notes = {1: SnapshotNote(None, None), 2: SnapshotNote(1, Progress(5).stamp())}
    with pytest.raises(Conflict, match="snapshot 2"):
        Progress.of_table(noted(Progress(5), 2), 1, notes)


def test_a_table_that_nobody_stamped_is_believed() -> None:
    assert Progress.of_table({"headwater.next_seq": "4"}, 9, {9: SnapshotNote(None, None)}).next_seq == 4


def document() -> dict[str, object]:
    return {"format-version": 2, "location": "/t", "last-updated-ms": 1_000, "properties": {}, "snapshots": []}


def snapshot(number: int, parent: int | None = None) -> dict[str, object]:
    return {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "sequence-number": number,
        "timestamp-ms": 5,
        "summary": {"operation": "append", "iceberg-version": "a long one"},
        "manifest-list": f"/t/metadata/snap-{number}.avro",
    }


def test_metadata_never_goes_back_in_time_whatever_the_clock_says() -> None:
    first = next_metadata(document(), "a", edit_for(document(), Progress(1), snapshot(1)), now_ms=10_000)
    later = next_metadata(first, "b", edit_for(first, Progress(2), snapshot(2, 1)), now_ms=3)
    moved = next_metadata(later, "c", edit_for(later, Progress(2, LOG), None), now_ms=0)
    assert [entry["timestamp-ms"] for entry in later["snapshot-log"]] == [10_000, 10_000]
    assert later["snapshots"][1]["timestamp-ms"] == later["last-updated-ms"] == moved["last-updated-ms"] == 10_000
    assert [entry["metadata-file"] for entry in moved["metadata-log"]] == ["a", "b", "c"]
    assert progress_in(moved) == Progress(2, LOG)
    assert STAMP in later["snapshots"][1]["summary"]
    assert "iceberg-version" not in later["snapshots"][1]["summary"]


def test_history_before_an_expired_snapshot_is_no_history() -> None:
    made = document()
    for number in (1, 2, 3, 4):
        edit = edit_for(made, Progress(number), snapshot(number, number - 1 or None))
        made = dict(next_metadata(made, f"m{number}", edit, now_ms=number * 1_000))
    gone = next_metadata(made, "m5", Edit(expired=[2]), now_ms=9_000)
    assert [one["snapshot-id"] for one in gone["snapshots"]] == [1, 3, 4]
    assert [entry["snapshot-id"] for entry in gone["snapshot-log"]] == [3, 4]
    assert gone["refs"]["main"] == {"type": "branch", "snapshot-id": 4}


def test_a_rollback_past_a_logs_replacement_forgets_the_offsets_of_the_log_that_is_gone_and_no_others() -> None:
    first = Progress().advanced({"log": {"0": 5, "1": 1}}, rows=3, logs={"0": "a@0", "1": "a@0"})
    then = first.advanced({"log": {"0": 2, "1": 2}}, rows=1, logs={"0": "a@1", "1": "a@0"})
    back = then.rolled_back(first)
    assert back.offsets == {1: 1} and back.generation == 1
    assert back.redo == {"log": {"0": 2, "1": 2}}
    assert back.advanced({"log": {"0": 2, "1": 2}}, rows=2).repeats_from(1_000_000), (
        "who had read it tells it when he likes"
    )
    assert then.advanced({"log": {"0": 9, "1": 2}}, rows=7).rolled_back(then).offsets == then.offsets
    assert then.rolled_back(replace(first, logs={})).offsets == back.offsets, "of a version that did not say"
    assert first.rolled_back(Progress(2, {"log": {"0": 1}})).offsets == {0: 1}


def test_what_was_to_be_read_again_from_a_log_that_is_gone_may_come_again_at_any_time() -> None:
    first = Progress().advanced({"log": {"0": 2}}, rows=2, logs={"0": "a@0"})
    back = first.advanced({"log": {"0": 5}}, rows=3).rolled_back(first)
    again = back.advanced({"log": {"0": 5}}, rows=3)
    assert again.repeats_from(again.next_seq - 1) and not again.repeats_from(again.next_seq)
    gone = back.advanced({"log": {"0": 1}}, rows=1, logs={"0": "b@1"}).advanced({"log": {"0": 2}}, rows=1)
    assert not gone.redo and gone.repeats_from(1_000_000) and gone.repeats_without_end and not again.repeats_without_end


@pytest.mark.parametrize(
    ("before", "anew", "after"),
    [("", False, "a@0"), ("", True, "a@1"), ("a@3", False, "a@3"), ("a@3", True, "a@4"), ("b@3", False, "a@4")],
)
def test_a_log_that_takes_the_place_of_another_has_another_name_also_where_it_is_the_same_one_set_back(
    before: str, anew: bool, after: str
) -> None:
    assert log_name("a", before, anew=anew) == after


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12), st.data())
def test_positions_after_any_rollbacks_are_those_of_the_snapshot_and_numbers_only_grow(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    made, number, highest = document(), 0, 0
    for kind, rows in steps:
        before = progress_in(made)
        assert before.next_seq >= highest
        highest = before.next_seq
        known = [one["snapshot-id"] for one in made["snapshots"]]  # type: ignore[index]
        if kind == 0 and known:
            to = data.draw(st.sampled_from(known))
            made = {**made, "current-snapshot-id": to, "refs": {"main": {"type": "branch", "snapshot-id": to}}}
            continue
        number += 1
        after = before.advanced({"up": before.seq_of("up") + rows}, rows=rows)
        child = snapshot(number, made.get("current-snapshot-id"))  # type: ignore[arg-type]
        made = dict(next_metadata(made, f"m{number}", edit_for(made, after, child if kind > 1 else None), number))
        assert progress_in(made) == after
