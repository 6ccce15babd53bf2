"""Catalog and ledger in Postgres come back from the same backup file as those in SQLite."""

from pathlib import Path

import psycopg
import pytest
import rounds
from calling import answer
from lakes import parts_of
from test_migration_to_servers import settings_file
from test_old_backups import commit_often

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import EVENTS, MESSAGES, TABLES
from headwater.errors import Conflict, NotFound
from headwater.settings import FILE_NAME, Settings
from headwater.storage.tables.current_metadata import read_all_locations
from headwater.storage.tables.warehouse_files import WarehouseFiles


def test_a_lost_database_comes_back(stack_lake: Settings, postgres_uri: str, tmp_path: Path) -> None:
    lake, file = stack_lake.lake, tmp_path / "lake.backup"
    settings_file(stack_lake, lake / FILE_NAME)
    with lakes.init(lake) as opened:
        parts = parts_of(opened)
        parts.ledger.claim_first("event", [("m1", "11", 0, 0), ("m2", "22", 3, 7)])
        for _ in range(2):
            parts.ledger.finish_run(parts.ledger.start_run("run", parts.clock()), "done", parts.clock())
        before = read_all_locations(parts.catalog)
    assert set(before) == {table.name for table in TABLES}
    assert main(["backup", str(file), "--lake", str(lake)]) == 0
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
    assert main(["restore", str(file), "--lake", str(lake)]) == 0
    with lakes.open(lake) as opened:
        parts = parts_of(opened)
        assert read_all_locations(parts.catalog) == before
        assert parts.ledger.claim_first("event", [("m2", "22", 0, 0)]) == {"m2": ("22", 3, 7)}
        assert parts.ledger.start_run("run", parts.clock()) > 2, "the database counts on from what was restored"


def test_a_lost_catalog_comes_back_beside_a_ledger_that_went_on_and_after_its_metadata_files_are_gone(
    stack_lake: Settings, postgres_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, file = stack_lake.lake, tmp_path / "lake.backup"
    settings_file(stack_lake, lake / FILE_NAME)
    with lakes.init(lake) as opened:
        for number in range(3):
            opened.put_text(f"line {number} of the invoice", customer="acme", id=f"m{number}")
        opened.run()
        then = rounds.contents(opened)
        backed_up = answer(capsys, "backup", file, "--lake", lake, "--json").json
        opened.put_text("one line more", customer="acme", id="m3")
        opened.run()
        later = rounds.contents(opened)
        for table in (EVENTS, MESSAGES):
            commit_often(opened, 25, table.name)
            assert WarehouseFiles(stack_lake).missing([backed_up["tables"][table.name]]), "the file is gone"
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute("drop table iceberg_tables, iceberg_namespace_properties")
    for command in (("status",), ("run", "--once"), ("init", str(lake))):
        refused = answer(capsys, *command, "--lake", lake)
        assert refused.code in {NotFound.exit_code, Conflict.exit_code} and "headwater restore" in refused.err, refused
    restored = answer(capsys, "restore", file, "--lake", lake, "--json")
    assert restored.code == 0, restored
    assert {each["how"] for each in restored.json["tables"]} == {"backup"} and not restored.json["ledger_lost"]
    with lakes.open(lake) as opened:
        assert rounds.contents(opened) == then
        opened.run()
        assert rounds.contents(opened) == later
