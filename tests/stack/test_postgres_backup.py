"""Catalog and ledger in Postgres come back from the same backup file as those in SQLite."""

from pathlib import Path

import psycopg
from test_migration_to_servers import settings_file

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import TABLES
from headwater.settings import FILE_NAME, Settings
from headwater.storage.pointers import read_pointers


def test_a_lost_database_comes_back(stack_lake: Settings, postgres_uri: str, tmp_path: Path) -> None:
    lake, file = stack_lake.lake, tmp_path / "lake.backup"
    settings_file(stack_lake, lake / FILE_NAME)
    with lakes.init(lake) as opened:
        parts = opened._components
        parts.ledger.claim_first("event", [("m1", "11", 0, 0), ("m2", "22", 3, 7)])
        for _ in range(2):
            parts.ledger.finish_run(parts.ledger.start_run("run", parts.clock()), "done", parts.clock())
        before = read_pointers(parts.catalog)
    assert set(before) == {table.name for table in TABLES}
    assert main(["backup", str(file), "--lake", str(lake)]) == 0
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
    assert main(["restore", str(file), "--lake", str(lake)]) == 0
    with lakes.open(lake) as opened:
        parts = opened._components
        assert read_pointers(parts.catalog) == before
        assert parts.ledger.claim_first("event", [("m2", "22", 0, 0)]) == {"m2": ("22", 3, 7)}
        assert parts.ledger.start_run("run", parts.clock()) > 2, "the database counts on from what was restored"
