"""The ledger in a SQLite file."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from behaviour_ledger import *  # noqa: F403

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.ledger.postgres_database import conninfo_of, place_of


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


def test_a_postgres_address_may_name_several_hosts_and_is_shown_without_its_password() -> None:
    uri = "postgresql://me:s3cr?t@one:5432,two:5433/lake"
    assert place_of(uri) == "postgresql://one:5432,two:5433/lake"
    assert "target_session_attrs=read-write" in conninfo_of(uri)
    assert place_of("postgresql://me@one/lake") == "postgresql://one/lake"
    with pytest.raises(InvalidRequest) as refused:
        place_of("postgresql://me:s3cr%t@one/lake")
    assert "s3cr" not in str(refused.value)


def test_a_vanished_postgres_is_given_up_in_time_and_limits_in_the_address_win() -> None:
    ours = conninfo_of("postgresql://one/lake")
    assert "connect_timeout=10 " in ours and "tcp_user_timeout=30000" in ours and "statement_timeout=600s" in ours
    theirs = conninfo_of("postgresql://one/lake?connect_timeout=3&options=-c%20statement_timeout%3D5s")
    assert "connect_timeout=3 " in theirs and "connect_timeout=10" not in theirs
    assert theirs.index("statement_timeout=600s") < theirs.index("statement_timeout=5s")
