"""The ledger in Postgres: the same promises, and what a server that fails adds to them."""

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from behaviour_ledger import *  # noqa: F403
from behaviour_ledger import NOW

from headwater.errors import Conflict, InvalidRequest, Unavailable
from headwater.storage.ledger import postgres_database
from headwater.storage.ledger.hold_lease import hold_lease
from headwater.storage.ledger.ledger import Ledger, open_ledger
from headwater.storage.ledger.postgres_database import PostgresDatabase


@pytest.fixture
def ledger_uri(postgres_uri: str) -> str:
    return postgres_uri


def _cut_connections(uri: str) -> None:
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")


def test_many_that_open_a_new_ledger_at_once_all_succeed(ledger_uri: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        ledgers = list(pool.map(lambda _: open_ledger(ledger_uri), range(8)))
    assert [ledger.fact("format") for ledger in ledgers] == [None] * 8


def test_a_connection_that_the_server_closed_is_opened_again(ledger: Ledger, ledger_uri: str) -> None:
    ledger.set_fact("format", "1")
    _cut_connections(ledger_uri)
    assert ledger.fact("format") == "1"
    _cut_connections(ledger_uri)
    ledger.set_fact("format", "2")
    assert ledger.fact("format") == "2"


def test_a_transaction_that_lost_its_connection_is_reported_and_leaves_nothing(ledger: Ledger, ledger_uri: str) -> None:
    with pytest.raises(Unavailable), ledger._database.transaction() as run:
        run("insert into lake values (?, ?)", ("half", "done"))
        _cut_connections(ledger_uri)
    assert ledger.fact("half") is None


def test_a_writer_that_never_ends_makes_the_others_give_up_in_time(
    ledger: Ledger, ledger_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = postgres_database._OPTIONS.replace("lock_timeout=30s", "lock_timeout=200ms")
    monkeypatch.setattr(postgres_database, "_OPTIONS", options)
    impatient = open_ledger(ledger_uri)
    with ledger._database.transaction(), pytest.raises(Unavailable, match="lock timeout"):
        impatient.acquire_lease("run", "second", 60, NOW)
    assert impatient.acquire_lease("run", "second", 60, NOW).epoch == 1


def test_what_postgres_cannot_hold_is_refused_and_the_ledger_goes_on(ledger: Ledger) -> None:
    with pytest.raises(InvalidRequest):
        ledger.set_fact("a\x00b", "1")
    assert ledger.claim_first("event", [("a", "h", 0, 1)]) == {"a": ("h", 0, 1)}


def test_a_server_that_is_not_there_is_unavailable_and_no_password_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_database, "WAIT_SECONDS", 0.5)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9") as raised:
        open_ledger("postgresql://user:s3cret@127.0.0.1:9/lake")
    assert "s3cret" not in str(raised.value)


def test_of_several_hosts_the_one_that_answers_is_taken(ledger_uri: str) -> None:
    before, _, after = ledger_uri.rpartition("@")
    ledger = open_ledger(f"{before}@127.0.0.1:9,{after}")
    ledger.set_fact("format", "1")
    assert open_ledger(ledger_uri).fact("format") == "1"


def test_a_host_that_vanishes_is_noticed_in_time_and_limits_in_the_address_win(ledger_uri: str) -> None:
    database = PostgresDatabase(f"{ledger_uri}?keepalives_idle=7&options=-c%20statement_timeout%3D5s")
    assert database.query("show statement_timeout") == [("5s",)]
    assert database.query("show lock_timeout") == [("30s",)]
    with socket.socket(fileno=socket.dup(database._open().fileno())) as line:
        limits = [line.getsockopt(socket.IPPROTO_TCP, name) for name in (socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT)]
    assert limits == [7, 30_000]


def test_a_machine_whose_clock_is_ahead_does_not_take_a_living_holders_lease(ledger: Ledger, ledger_uri: str) -> None:
    def ahead() -> datetime:
        return datetime.now(UTC) + timedelta(minutes=5)

    with hold_lease(ledger, "run", "headwater run", lambda: datetime.now(UTC), lambda: None):
        with ledger._database.transaction() as run:
            run("update leases set host = 'elsewhere', place = 'elsewhere'")
        other = open_ledger(ledger_uri)
        with pytest.raises(Conflict, match="on elsewhere"), hold_lease(other, "run", "b", ahead, print):
            pass
