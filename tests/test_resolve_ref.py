"""Which snapshot a ref names, by the metadata alone, whatever was committed, rolled back, tagged or expired."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.domain.progress import Progress
from headwater.domain.ref import Ref
from headwater.errors import NotFound
from headwater.storage.tables.metadata import Edit, Metadata, edit_for, next_metadata, progress_at
from headwater.storage.tables.resolve_ref import resolve, resolve_all

TABLE = "silver.messages"


def document() -> Metadata:
    return {"format-version": 2, "location": "/t", "last-updated-ms": 0, "properties": {}, "snapshots": []}


def snapshot(number: int, parent: int | None = None) -> Metadata:
    return {
        "snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": 0,
        "schema-id": 0, "summary": {"operation": "append"}, "manifest-list": f"/t/{number}.avro",
    }  # fmt: skip


def commit(before: Metadata, number: int, now_ms: int) -> Metadata:
    child = snapshot(number, before.get("current-snapshot-id"))
    return next_metadata(before, "m", edit_for(before, Progress(next_seq=number), child), now_ms)


def roll_back(before: Metadata, to: int, now_ms: int) -> Metadata:
    """As Iceberg does it: an older snapshot becomes the current one, and the history says since when."""
    now_ms = max(now_ms, before["last-updated-ms"])
    entry = {"timestamp-ms": now_ms, "snapshot-id": to}
    return {
        **before,
        "last-updated-ms": now_ms,
        "current-snapshot-id": to,
        "snapshot-log": [*before["snapshot-log"], entry],
        "refs": {**before["refs"], "main": {"type": "branch", "snapshot-id": to}},
    }


def at(now_ms: int) -> Ref:
    return Ref(at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms))


def of(*moments: int) -> Metadata:
    """Snapshots 1, 2, … committed at these moments."""
    made = document()
    for number, moment in enumerate(moments, 1):
        made = commit(made, number, moment)
    return made


@given(
    st.lists(st.tuples(st.sampled_from(["commit", "commit", "roll back", "expire"]), st.integers(-20, 50))), st.data()
)
def test_a_time_is_the_snapshot_that_was_current_then_or_is_refused(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    made, clock, number, expired = document(), 1_000, 0, set[int]()
    current: list[tuple[int, int]] = []
    for kind, later in steps:
        clock = max(1, clock + later)  # it may go back
        there = [each["snapshot-id"] for each in made["snapshots"]]
        if kind == "commit":
            number += 1
            made = commit(made, number, clock)
            current.append((made["last-updated-ms"], number))
        elif kind == "roll back" and there:
            made = roll_back(made, to := data.draw(st.sampled_from(there)), clock)
            current.append((made["last-updated-ms"], to))
        elif kind == "expire" and (past := [each for each in there if each != made["current-snapshot-id"]]):
            expired |= (gone := set(data.draw(st.lists(st.sampled_from(past), min_size=1))))
            made = next_metadata(made, "m", Edit(expired=gone), clock)
    for moment in {0, *(each + beside for each, _ in current for beside in (-1, 0, 1))}:
        then = [which for since, which in current if since <= moment]
        try:
            found = resolve(made, at(moment), TABLE).snapshot_id
        except NotFound as refused:
            # Nothing was there, or what was, or something that was current later, has expired.
            assert not then or expired & {which for since, which in current if since >= moment or which == then[-1]}
            assert TABLE in str(refused)
            assert not (then and "had no snapshot yet" in str(refused)), "it would be taken for empty"
        else:
            assert found == then[-1]


def test_the_moment_of_a_commit_is_the_first_that_sees_it() -> None:
    made = of(1_000, 2_000)
    found = {moment: resolve(made, at(moment), TABLE).snapshot_id for moment in (1_000, 1_999, 2_000, 9_999_999)}
    assert found == {1_000: 1, 1_999: 1, 2_000: 2, 9_999_999: 2}
    half = Ref(at=datetime(1970, 1, 1, 0, 0, 1, 999_900, tzinfo=UTC))
    assert resolve(made, half, TABLE).snapshot_id == 1, "Iceberg's times are milliseconds"


def test_before_the_first_snapshot_of_all_the_oldest_is_named() -> None:
    with pytest.raises(
        NotFound, match=r"At 1970-01-01T00:00:00\.999000Z silver\.messages had no snapshot yet"
    ) as refused:
        resolve(of(1_000, 2_000), at(999), TABLE)
    assert "The oldest that can be read is 1 of 1970-01-01T00:00:01.000Z." in str(refused.value)


def test_an_expired_time_is_refused_with_what_is_kept_on_both_sides_of_it() -> None:
    made = next_metadata(of(1_000, 2_000, 3_000, 4_000), "m", Edit(expired=[2]), 5_000)
    for moment in (2_500, 1_500):  # of 1,500 snapshot 1 is kept, but whether it was current is no longer known
        with pytest.raises(NotFound, match="has expired, or cannot be told") as refused:
            resolve(made, at(moment), TABLE)
        assert "by time since 1970-01-01T00:00:03.000Z" in str(refused.value)
        assert "the last one kept is 1 of 1970-01-01T00:00:01.000Z" in str(refused.value)
    assert resolve(made, Ref(snapshot_id=1), TABLE).snapshot_id == 1
    first = next_metadata(of(1_000, 2_000, 3_000), "m", Edit(expired=[1]), 5_000)
    with pytest.raises(NotFound, match=r"has expired\. .*The oldest that can be read is 2 of 1970-01-01T00:00:02"):
        resolve(first, at(1_500), TABLE)


def test_a_snapshot_that_is_not_there_is_told_as_expired_where_that_is_known() -> None:
    made = next_metadata(of(1_000, 2_000, 3_000), "m", Edit(expired=[2]), 5_000)
    with pytest.raises(
        NotFound, match=r"Snapshot 2 of silver\.messages has expired\. The oldest that can be read is 1"
    ):
        resolve(made, Ref(snapshot_id=2), TABLE)
    with pytest.raises(NotFound, match="has no snapshot 99: it has expired, or never was"):
        resolve(made, Ref(snapshot_id=99), TABLE)


def test_names_are_tags_and_branches_and_an_unknown_one_is_told_with_those_there_are() -> None:
    made: dict[str, Any] = dict(of(1_000, 2_000))
    made["refs"] = {
        **made["refs"],
        "before-import": {"type": "tag", "snapshot-id": 1},
        "audit": {"type": "branch", "snapshot-id": 1},
    }
    names = {name: resolve(made, Ref(name=name), TABLE).snapshot_id for name in ("before-import", "audit", "main")}
    assert names == {"before-import": 1, "audit": 1, "main": 2}
    with pytest.raises(NotFound, match=r"has no tag or branch nope\. It has: audit, before-import, main\."):
        resolve(made, Ref(name="nope"), TABLE)
    del made["refs"]
    assert resolve(made, Ref(name="main"), TABLE).snapshot_id == 2, "the first version of the format had no names"


def test_a_table_without_a_history_is_read_at_what_it_has() -> None:
    made = {**of(1_000, 2_000), "snapshot-log": []}
    assert resolve(made, at(2_000), TABLE).snapshot_id == 2
    with pytest.raises(NotFound, match="the last one kept is 1"):
        resolve(made, at(1_500), TABLE)
    with pytest.raises(NotFound, match="nothing has come into it"):
        resolve(document(), at(5), TABLE)


ALL: Mapping[str, Metadata] = {"bronze.events": of(1_000, 2_000), TABLE: of(1_500), "silver.captions": document()}


def test_at_a_time_each_table_has_its_own_snapshot_and_one_that_began_later_is_empty() -> None:
    found = resolve_all(ALL, at(1_600))
    assert {name: each and each.snapshot_id for name, each in found.items()} == {
        "bronze.events": 1, TABLE: 1, "silver.captions": None
    }  # fmt: skip
    assert resolve_all(ALL, at(1_200))[TABLE] is None
    with pytest.raises(NotFound, match=r"bronze\.events had no snapshot yet"):
        resolve_all(ALL, at(900))
    assert resolve_all({}, at(900)) == {}


def test_what_only_one_of_several_tables_has_is_refused_and_says_whose_it_is() -> None:
    with pytest.raises(
        NotFound, match=r"Snapshot 2 is one of bronze\.events, and not of silver\.messages, which"
    ) as no:
        resolve_all(ALL, Ref(snapshot_id=2))
    assert "name a time: the snapshot is of 1970-01-01T00:00:02.000Z" in str(no.value)
    tagged = {**ALL, TABLE: {**ALL[TABLE], "refs": {"mine": {"type": "tag", "snapshot-id": 1}}}}
    with pytest.raises(NotFound, match=r"The tag or branch mine is one of silver\.messages, and not of bronze\.events"):
        resolve_all(tagged, Ref(name="mine"))
    with pytest.raises(NotFound, match=r"bronze\.events has no tag or branch nope"):
        resolve_all(tagged, Ref(name="nope"))
    both = resolve_all(ALL, Ref(name="main"))
    assert both["silver.captions"] is None and both[TABLE], "one without any snapshot is empty whatever is asked"


def test_an_expired_time_of_one_table_is_not_taken_for_an_empty_table() -> None:
    cut = next_metadata(of(1_000, 2_000), "m", Edit(expired=[1]), 5_000)
    with pytest.raises(NotFound, match=r"The snapshot of silver\.messages at .* has expired"):
        resolve_all({**ALL, TABLE: cut}, at(1_600))


def test_a_snapshot_tells_how_far_its_stage_had_come_through_compactions_that_do_not() -> None:
    made = of(1_000, 2_000)
    compacted = next_metadata(made, "m", Edit(snapshot=snapshot(3, 2)), 3_000)
    told = [progress_at(compacted, number) for number in (1, 2, 3)]
    assert told == [Progress(next_seq=1), Progress(next_seq=2), Progress(next_seq=2)]
    assert progress_at(next_metadata(document(), "m", Edit(snapshot=snapshot(1)), 5), 1) is None
