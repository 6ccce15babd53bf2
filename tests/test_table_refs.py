"""Tags and branches of a table: made, moved and dropped, each once, and told to everybody who reads."""

from pathlib import Path

import pytest
from lakes import parts_of
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.domain.tables import MESSAGES
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.lake import Lake
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import HOUR_MS, Keep
from headwater.storage.tables.metadata import snapshot_ids
from headwater.storage.tables.refs import TableRef, create_ref, drop_ref, list_refs, move_ref

TABLE = MESSAGES.name


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    with lakes.init(tmp_path / "lake") as made:
        for number in range(3):
            append(parts_of(made).catalog.load_table(TABLE), rows(MESSAGES, [{"object_id": f"o{number}"}], number))
        return made


def snapshots(lake: Lake) -> list[int]:
    return [one.snapshot_id for one in parts_of(lake).catalog.load_table(TABLE).metadata.snapshots]


def test_a_tag_and_a_branch_are_made_moved_and_dropped_and_other_readers_see_them(lake: Lake) -> None:
    committer, (first, second, last) = Committer(lake.settings), snapshots(lake)
    assert create_ref(committer, TABLE, "before", snapshot_id=first) == TableRef("before", "tag", first)
    assert create_ref(committer, TABLE, "side", "branch").snapshot_id == last
    move_ref(committer, TABLE, "before", second, expects=first)
    seen = parts_of(lake).catalog.load_table(TABLE).refs()
    assert {name: (str(ref.snapshot_ref_type.value), ref.snapshot_id) for name, ref in seen.items()} == {
        "main": ("branch", last), "before": ("tag", second), "side": ("branch", last),
    }  # fmt: skip
    assert drop_ref(committer, TABLE, "before")
    assert list_refs(committer, TABLE) == [TableRef("side", "branch", last)]


def test_each_is_done_once_however_often_it_is_asked_for(lake: Lake) -> None:
    committer, (first, second, _) = Committer(lake.settings), snapshots(lake)
    for _ in range(2):
        create_ref(committer, TABLE, "before", snapshot_id=first)
    made = committer.tables.base(TABLE).location
    move_ref(committer, TABLE, "before", first)
    assert committer.tables.base(TABLE).location == made, "nothing was to be changed"
    for _ in range(2):
        move_ref(committer, TABLE, "before", second, expects=first)
    assert [drop_ref(committer, TABLE, "before") for _ in range(2)] == [True, False]


def test_a_name_is_not_taken_from_who_has_it_and_a_move_does_not_undo_anothers(lake: Lake) -> None:
    committer, (first, second, last) = Committer(lake.settings), snapshots(lake)
    create_ref(committer, TABLE, "before", snapshot_id=first)
    with pytest.raises(Conflict, match=f"has a tag before already, at snapshot {first}. Take another name"):
        create_ref(committer, TABLE, "before", snapshot_id=second)
    with pytest.raises(Conflict, match="has a tag before already"):
        create_ref(committer, TABLE, "before", "branch", snapshot_id=first)
    with pytest.raises(Conflict, match=f"moved meanwhile: expected={second} found={first}"):
        move_ref(committer, TABLE, "before", last, expects=second)
    assert list_refs(committer, TABLE) == [TableRef("before", "tag", first)]


def test_what_is_not_there_is_not_found_and_main_is_nobodys(lake: Lake) -> None:
    committer = Committer(lake.settings)
    with pytest.raises(NotFound, match="no snapshot 5: it has expired, or never was"):
        create_ref(committer, TABLE, "before", snapshot_id=5)
    with pytest.raises(NotFound, match="no tag or branch before"):
        move_ref(committer, TABLE, "before", snapshots(lake)[0])
    with pytest.raises(NotFound, match="no snapshot yet that could be named"):
        create_ref(committer, "silver.captions", "before")
    for change in (create_ref, drop_ref):
        with pytest.raises(InvalidRequest, match="main goes where rows are committed"):
            change(committer, TABLE, "main")


def test_a_ref_keeps_its_snapshot_until_it_has_its_age_or_is_dropped(lake: Lake) -> None:
    now = int(utc_now().timestamp() * 1000)
    committer, (first, second, last) = Committer(lake.settings, lambda: now + 9 * HOUR_MS), snapshots(lake)
    create_ref(committer, TABLE, "an-hour", snapshot_id=first, keep_ms=HOUR_MS)
    create_ref(committer, TABLE, "for-good", snapshot_id=second)
    keep = Keep(hours=1, newest=1, age=True)
    assert committer.expire(TABLE, keep) == 0
    assert Committer(lake.settings, lambda: now + 11 * HOUR_MS).expire(TABLE, keep) == 1
    assert snapshot_ids(committer.tables.base(TABLE).metadata) == {second, last}
    drop_ref(committer, TABLE, "for-good")
    assert committer.expire(TABLE, keep) == 1
    assert list_refs(committer, TABLE) == []


def test_who_names_a_snapshot_again_may_keep_it_longer_and_never_shorter(lake: Lake) -> None:
    now = int(utc_now().timestamp() * 1000)
    committer, (first, *_) = Committer(lake.settings, lambda: now), snapshots(lake)
    create_ref(committer, TABLE, "pinned", snapshot_id=first, keep_ms=HOUR_MS)
    create_ref(committer, TABLE, "pinned", snapshot_id=first, keep_ms=9 * HOUR_MS)
    create_ref(committer, TABLE, "pinned", snapshot_id=first, keep_ms=HOUR_MS)
    later = Committer(lake.settings, lambda: now + 8 * HOUR_MS)
    later.expire(TABLE, Keep(hours=1, newest=1, age=True))
    assert [ref.snapshot_id for ref in list_refs(later, TABLE)] == [first]
    create_ref(committer, TABLE, "pinned", snapshot_id=first)
    much_later = Committer(lake.settings, lambda: now + 99 * HOUR_MS)
    much_later.expire(TABLE, Keep(hours=1, newest=1, age=True))
    assert [ref.snapshot_id for ref in list_refs(much_later, TABLE)] == [first]
