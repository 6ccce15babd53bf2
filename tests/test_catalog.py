"""The catalog in a SQLite file."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from behaviour_catalog import *  # noqa: F403

from headwater import settings as settings_module
from headwater.settings import Settings
from headwater.storage.tables import catalog as catalogs


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_module.resolve(tmp_path / "lake", {}, {}, {})


def test_the_catalog_waits_for_a_lock_and_lets_readers_read(settings: Settings) -> None:
    catalogs.open_catalog(settings)
    connection = sqlite3.connect(settings.lake / "catalog.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_importing_the_module_imports_no_catalog_library() -> None:
    loaded = "print('pyiceberg' in sys.modules, 'sqlalchemy' in sys.modules)"
    code = f"import sys, headwater.storage.tables.catalog; {loaded}"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
