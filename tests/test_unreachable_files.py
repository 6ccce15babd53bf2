"""Expiry deletes exactly what no kept snapshot needs: whatever branches, tags, rollbacks and compactions there were."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import lake_settings
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as search
from hypothesis import strategies as st
from losing import LosingLocations
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from headwater.domain.tables import METADATA
from headwater.settings import Settings
from headwater.storage.io.local_path import local_path
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.commit import Committer, SqlTables
from headwater.storage.tables.expire_snapshots import HOUR_MS, Keep
from headwater.storage.tables.metadata_location import open_metadata_locations
from headwater.storage.tables.schema_evolution import iceberg_schema
from headwater.storage.tables.unreachable_files import ReachableFiles, warehouse_io
from headwater.telemetry import Sink, writing

NOW = 2_000_000 * HOUR_MS
HEAD_ONLY = Keep(hours=1, newest=1, age=True)
NUMBERS = itertools.count()


class History:
    """A table whose files are empty, made of commits by hand; `hours` is its clock."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.hours = 0.0
        self.committer = Committer(settings, lambda: NOW + int(self.hours * HOUR_MS))
        self._catalog: Any = catalogs.open_catalog(settings)
        self._catalog._committer = self.committer
        self._catalog.create_namespace_if_not_exists("silver")
        self.name = f"silver.t{next(NUMBERS)}"
        merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"}
        schema = iceberg_schema(METADATA.schema)
        self._catalog.create_table(self.name, schema, properties=merging)

    @property
    def table(self) -> Table:
        loaded: Table = self._catalog.load_table(self.name)
        return loaded

    @property
    def current(self) -> int:
        return self.table.metadata.current_snapshot_id or 0

    @property
    def snapshots(self) -> list[int]:
        return [one.snapshot_id for one in self.table.metadata.snapshots]

    def append(self, branch: str = "main") -> str:
        table = self.table
        made = _file(table)
        with table.transaction() as transaction, transaction.update_snapshot(branch=branch).merge_append() as append:
            append.append_data_file(made)
        self._tidy(branch, str(append.commit_uuid))
        return local_path(made.file_path)

    def _tidy(self, branch: str, commit_uuid: str) -> None:
        """PyIceberg leaves the manifests that it merged into another before anybody saw them."""
        table = self.table
        snapshot = table.snapshot_by_name(branch)
        assert snapshot is not None
        named = {Path(local_path(each.manifest_path)) for each in snapshot.manifests(table.io)}
        for path in set(Path(local_path(table.location())).glob(f"metadata/{commit_uuid}-m*.avro")) - named:
            path.unlink()

    def replace(self, most: int = 100) -> None:
        """As a compaction does: so many files, the oldest first, become one."""
        table = self.table
        old = [task.file for task in table.scan().plan_files()][:most]
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            for file in old:
                overwrite.delete_data_file(file)
            overwrite.append_data_file(_file(table))

    def go_to(self, snapshot_id: int) -> None:
        self.table.manage_snapshots().set_current_snapshot(snapshot_id).commit()

    def branch(self, snapshot_id: int, name: str) -> str:
        self.table.manage_snapshots().create_branch(snapshot_id, name).commit()
        return name

    def tag(self, snapshot_id: int, name: str) -> None:
        self.table.manage_snapshots().create_tag(snapshot_id, name).commit()

    def expire(self, keep: Keep = HEAD_ONLY) -> int:
        return self.committer.expire(self.name, keep)

    def files(self) -> set[str]:
        folder = Path(local_path(self.table.location()))
        return {str(path) for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".json")}

    def needed(self) -> set[str]:
        """By every snapshot that is kept, told by brute force."""
        table, found = self.table, set()
        for snapshot in table.metadata.snapshots:
            found |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
            found |= {task.file.file_path for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()}
        return {local_path(path) for path in found}

    def data_files(self) -> set[str]:
        return {path for path in self.files() if path.endswith(".parquet")}


def _file(table: Table) -> DataFile:
    location = f"{table.location()}/data/{next(NUMBERS)}.parquet"
    path = Path(local_path(location))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=location, file_format=FileFormat.PARQUET, partition=Record(),
        record_count=1, file_size_in_bytes=1, column_sizes={}, value_counts={}, null_value_counts={},
        nan_value_counts={}, lower_bounds={}, upper_bounds={}, key_metadata=None, split_offsets=None,
        equality_ids=None, sort_order_id=None, spec_id=0,
    )  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """What is on the disk counts here, not whether it would survive a power cut."""
    return lake_settings(tmp_path / "lake", **{"catalog.sync": False})


@pytest.fixture
def history(settings: Settings) -> History:
    return History(settings)


def test_a_branch_keeps_the_files_that_main_replaced_before_the_branch_was_written_to(history: History) -> None:
    file = history.append()
    first = history.current
    history.branch(first, "audit")
    history.replace()
    replaced = history.current
    later = history.append("audit")
    history.append()
    history.hours = 9
    assert history.expire() == 2
    assert not {first, replaced} & set(history.snapshots)
    assert {file, later} < history.files() == history.needed()


def test_a_tag_on_what_was_written_after_a_rollback_keeps_its_files_when_the_table_goes_forward_again(
    history: History,
) -> None:
    file = history.append()
    first = history.current
    history.replace()
    replaced = history.current
    history.go_to(first)
    history.append()
    history.tag(history.current, "keep-me")
    history.go_to(replaced)
    history.append()
    history.hours = 9
    assert history.expire() == 2
    assert file in history.files()
    assert history.files() == history.needed()


def test_two_days_of_hourly_compaction_leave_no_file_behind(history: History) -> None:
    for hour in range(48):
        for quarter in range(4):
            history.hours = hour + quarter / 4
            history.append()
        history.hours += 0.1
        history.replace()
        history.expire(Keep(hours=6, newest=3))
    assert history.files() == history.needed()
    assert len(history.snapshots) <= 3 + 7 + 4
    assert len(history.data_files()) <= 5 * 8


def test_files_that_a_merge_carried_over_stay_when_every_manifest_that_named_them_first_is_gone(
    history: History,
) -> None:
    """Three manifests become one, again and again; each file is in the table still."""
    written = {history.append() for _ in range(9)}
    history.hours = 9
    assert history.expire() == 8
    assert written == history.data_files()
    assert history.files() == history.needed()


def test_what_a_manifest_names_that_cannot_be_read_is_left_and_told_and_all_else_goes(
    history: History, tmp_path: Path
) -> None:
    first = history.append()
    start = history.current
    unknown = history.append()
    manifest = newest_manifest(history.table)
    history.go_to(start)
    history.replace()
    manifest.write_bytes(b"no Avro")
    history.hours = 9
    with writing(Sink(tmp_path / "logs", "info")):
        assert history.expire() == 2
    assert history.files() - history.needed() == {unknown, str(manifest)}
    assert not Path(first).exists()
    (told,) = [line for line in lines(tmp_path) if line["event"] == "expiry.left"]
    assert manifest.name in told["detail"]


def newest_manifest(table: Table) -> Path:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return Path(local_path(snapshot.manifests(table.io)[0].manifest_path))


def test_nothing_goes_while_a_manifest_of_a_kept_snapshot_cannot_be_read_to_its_end(history: History) -> None:
    for _ in range(2):
        history.append()
    history.replace(most=1)
    before, current = history.files(), history.table.current_snapshot()
    assert current is not None
    for each in current.manifests(history.table.io):
        manifest = Path(local_path(each.manifest_path))
        manifest.write_bytes(manifest.read_bytes()[:-40])
    history.hours = 9
    assert history.expire() == 2
    assert history.files() == before


def test_an_expiry_that_lands_late_lets_its_files_go_too(history: History) -> None:
    history.append()
    history.replace()
    history.hours = 9
    wire = LosingLocations(open_metadata_locations(history.settings.text("catalog.uri")), "late")
    history.committer.tables = SqlTables(wire, history.committer.files, history.committer.now_ms)
    assert history.expire() == 1
    assert history.files() == history.needed()


def test_a_kept_list_is_read_once_and_a_kept_manifest_once_however_often_snapshots_expire(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    io: Any = warehouse_io(history.settings)
    new_input = io.new_input
    monkeypatch.setattr(io, "new_input", lambda location: (opened.append(location), new_input(location))[1])
    history.committer._reachable[history.name] = ReachableFiles(io)
    for number in range(60):
        history.hours = number / 2
        history.append()
        if number % 7 == 6:
            history.replace(3)
        history.expire(Keep(hours=12, newest=3))
    lists = [location for location in opened if "snap-" in location]
    assert max(map(lists.count, lists)) == 2, "once while it is kept, once when it goes"
    assert max(opened.count(location) for location in set(opened) - set(lists)) <= 2
    assert history.files() == history.needed()


@search(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each step is a commit: to shrink would take an hour
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 30)), min_size=4, max_size=25))
def test_whatever_was_done_to_a_table_the_files_are_those_that_kept_snapshots_need(
    settings: Settings, steps: list[tuple[int, int]]
) -> None:
    history = History(settings)
    history.append()
    branches = ["main"]
    for kind, choice in steps:
        history.hours += 0.2 + choice / 15
        some = history.snapshots[choice % len(history.snapshots)]
        actions: dict[int, Callable[[], object]] = {
            0: history.append,
            1: lambda: history.append(branches[choice % len(branches)]),  # noqa: B023
            2: lambda: history.replace(2 + choice % 3),  # noqa: B023
            3: lambda: history.go_to(some),  # noqa: B023
            4: lambda: history.tag(some, f"t{next(NUMBERS)}"),  # noqa: B023
            5: lambda: branches.append(history.branch(some, f"b{next(NUMBERS)}")),  # noqa: B023
            6: lambda: history.expire(Keep(hours=choice, newest=2)),  # noqa: B023
            7: lambda: history.expire(Keep(hours=1, newest=1, age=True)),
        }
        actions[kind]()
        assert history.files() == history.needed()


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in (folder / "logs").iterdir() for line in file.read_text().splitlines()]
