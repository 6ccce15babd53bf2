"""The ledger in a SQLite file."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from behaviour_ledger import *  # noqa: F403

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.storage.ledger import open_ledger


@pytest.fixture
def ledger_uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def test_a_ledger_that_is_not_a_database_is_named_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(DataFault, match="CORRUPT"):
        open_ledger(f"sqlite:///{tmp_path}/ledger.db")


def test_a_new_ledger_can_be_opened_by_many_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            uri = f"sqlite:///{tmp_path}/{number}.db"
            for ledger in pool.map(lambda _, uri=uri: open_ledger(uri), range(8)):
                ledger.close()


def test_a_place_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable):
        open_ledger(f"sqlite:///{tmp_path}/file/ledger.db")
    with pytest.raises(InvalidRequest) as refused:
        open_ledger("mysql://user:secret@host/db")
    assert "secret" not in str(refused.value)
