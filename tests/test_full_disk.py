"""A full disk: what does not fit is refused by a sentence and leaves nothing, and all goes on once there is room.

The raw store and the log have theirs beside their other tests.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import behaviour_memo
import pytest

from headwater import lake as lakes
from headwater.domain.tables import EVENTS
from headwater.errors import Unavailable
from headwater.settings import Settings
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.tables.commit import Base, Committer
from headwater.storage.tables.metadata import Edit
from headwater.upkeep.backup.file import check_backup, write_backup


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file()}


def test_a_memo_without_room_refuses_and_leaves_nothing_half_written(settings: Settings) -> None:
    keys = behaviour_memo.checksums(2)
    behaviour_memo.shelf(settings).put({keys[0]: {"text": "short"}})
    held = files(settings.lake)
    long = {keys[1]: {"text": "".join(map(chr, range(32, 20_000)))}}
    with room_for(4_096), pytest.raises(Unavailable, match="Make room"):
        behaviour_memo.shelf(settings).put(long)
    assert files(settings.lake) == held
    behaviour_memo.shelf(settings).put(long)
    assert behaviour_memo.shelf(settings).find(keys) == {keys[0]: {"text": "short"}, **long}


def test_a_commit_without_room_leaves_the_table_as_it_was_and_no_file(tmp_path: Path) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        committer, warehouse = Committer(lake.settings), tmp_path / "lake" / "warehouse"
        tables = committer.tables

        def note() -> tuple[Base, Edit]:
            return tables.base(EVENTS.name), Edit({"note": "it fits"})

        held, before = files(warehouse), tables.base(EVENTS.name)
        with room_for(1_024), pytest.raises(Unavailable):
            committer.commit(EVENTS.name, note)
        assert tables.base(EVENTS.name) == before and files(warehouse) == held
        committer.commit(EVENTS.name, note)
        assert tables.base(EVENTS.name).metadata["properties"]["note"] == "it fits"


def test_a_backup_without_room_leaves_no_file_and_can_be_made_again(tmp_path: Path) -> None:
    file, lines = tmp_path / "first.backup", [("facts", ("long", "x" * 100_000))]
    with room_for(4_096), pytest.raises(Unavailable, match="Make room"):
        write_backup(file, {"lake": "ours"}, lines)
    assert files(tmp_path) == set()
    assert write_backup(file, {"lake": "ours"}, lines) == 1
    assert check_backup(file)["lake"] == "ours"


def test_a_ledger_without_room_says_so_to_who_writes_and_to_who_only_reads(tmp_path: Path) -> None:
    """Who reads a write-ahead file makes a small map of it where nobody else has it open."""
    uri = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = open_ledger(uri)
    with room_for(40_000), pytest.raises(Unavailable, match="Make room"):
        ledger.set_fact("long", "x" * 100_000)
    assert ledger.fact("long") is None
    ledger.set_fact("short", "x")
    ledger.close()
    with room_for(4_096), pytest.raises(Unavailable, match="Make room"):
        open_ledger(uri).fact("short")
    assert open_ledger(uri).fact("short") == "x"
