"""Ledger: facts, leases that a killed holder cannot keep, who was first, the journal of runs."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.errors import Conflict, DataFault, InvalidRequest, NotFound, Unavailable
from headwater.storage.lease import Process
from headwater.storage.ledger import Ledger, open_ledger

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{tmp_path}/ledger.db")


def _another_view(tmp_path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{tmp_path}/ledger.db")


def test_a_fact_is_kept_and_the_last_word_counts(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.fact("format") is None
    ledger.set_fact("format", "1")
    ledger.set_fact("format", "2")
    assert _another_view(tmp_path).fact("format") == "2"


def test_a_held_lease_is_refused_with_the_name_of_its_holder(ledger: Ledger, tmp_path: Path) -> None:
    ledger.acquire_lease("run", "headwater run", 60, NOW)
    with pytest.raises(Conflict, match=rf"headwater run .* process {os.getpid()} on \S+, since 2026-01-31T12:00:00"):
        _another_view(tmp_path).acquire_lease("run", "another", 60, NOW + timedelta(seconds=30))
    assert ledger.acquire_lease("maintain", "headwater maintain", 60, NOW).epoch == 1


def test_each_holder_has_a_higher_epoch_than_the_one_before(ledger: Ledger) -> None:
    epochs = []
    for _ in range(3):
        lease = ledger.acquire_lease("run", "headwater run", 60, NOW)
        epochs.append(lease.epoch)
        ledger.release(lease)
        ledger.release(lease)
    assert epochs == [1, 2, 3]


def test_a_silent_holder_is_succeeded_and_told_so_when_it_wakes(ledger: Ledger) -> None:
    zombie = ledger.acquire_lease("run", "headwater run", 60, NOW)
    ledger.heartbeat(zombie, NOW + MINUTE / 2)
    with pytest.raises(Conflict):
        ledger.acquire_lease("run", "successor", 60, NOW + MINUTE)
    successor = ledger.acquire_lease("run", "successor", 60, NOW + 2 * MINUTE)
    assert successor.epoch == zombie.epoch + 1
    with pytest.raises(Conflict, match="lost"):
        ledger.heartbeat(zombie, NOW + 2 * MINUTE)
    ledger.release(zombie)
    assert ledger.holder("run", NOW + 2 * MINUTE) == successor


_HOLDER = """
import sys, time
from datetime import UTC, datetime
from headwater.storage.ledger import open_ledger
open_ledger(sys.argv[1]).acquire_lease("run", "headwater run", 3600, datetime.now(UTC))
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_holder_frees_its_lease_at_once(ledger: Ledger, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _HOLDER, f"sqlite:///{tmp_path}/ledger.db"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        now = datetime.now(UTC)
        with pytest.raises(Conflict, match=f"process {holder.pid} "):
            ledger.acquire_lease("run", "second", 60, now)
        holder.send_signal(signal.SIGKILL)
        while Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        # A zombie that its parent has not yet buried holds nothing.
        assert ledger.acquire_lease("run", "second", 60, now).epoch == 2


def test_a_pid_given_to_another_process_does_not_keep_a_lease_alive() -> None:
    me = Process.this()
    assert not me.surely_dead()
    assert replace(me, started="1").surely_dead()


def test_a_holder_elsewhere_is_trusted_until_it_falls_silent(ledger: Ledger, tmp_path: Path) -> None:
    ledger.acquire_lease("run", "headwater run", 60, NOW)
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("update leases set host = 'elsewhere', place = 'elsewhere', pid = 999999999")
    with pytest.raises(Conflict, match="on elsewhere"):
        ledger.acquire_lease("run", "second", 60, NOW + MINUTE / 2)
    assert ledger.acquire_lease("run", "second", 60, NOW + MINUTE).epoch == 2


def test_of_many_that_ask_at_once_one_gets_the_lease(tmp_path: Path) -> None:
    def ask(_: int) -> bool:
        try:
            _another_view(tmp_path).acquire_lease("run", "racer", 60, NOW)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1


def test_the_first_claim_of_a_key_stands_however_often_it_is_repeated(ledger: Ledger) -> None:
    assert ledger.claim_first("event", [("a", "h1", 0, 5), ("b", "h2", 0, 6)]) == {"a": ("h1", 0, 5), "b": ("h2", 0, 6)}
    for _ in range(2):
        later = ledger.claim_first("event", [("a", "other", 0, 9), ("c", "h3", 1, 0), ("b", "h2", 0, 6)])
        assert later == {"a": ("h1", 0, 5), "b": ("h2", 0, 6), "c": ("h3", 1, 0)}


def test_within_one_call_the_lowest_position_is_first_whatever_the_order(ledger: Ledger) -> None:
    assert ledger.claim_first("event", [("a", "late", 0, 7), ("a", "early", 0, 3)]) == {"a": ("early", 0, 3)}


def test_kinds_of_keys_do_not_meet(ledger: Ledger) -> None:
    ledger.claim_first("event", [("a", "h1", 0, 1)])
    assert ledger.claim_first("object", [("a", "h2", 0, 2)]) == {"a": ("h2", 0, 2)}
    assert ledger.claim_first("object", []) == {}


def test_claims_that_were_never_committed_are_forgotten_by_position(ledger: Ledger) -> None:
    ledger.claim_first("event", [(f"k{offset}", "h", 0, offset) for offset in range(10)] + [("other", "h", 1, 50)])
    assert ledger.forget_claims_from(0, 6) == 4
    assert ledger.forget_claims_from(0, 6) == 0
    again = ledger.claim_first("event", [("k5", "new", 0, 90), ("k6", "new", 0, 91), ("other", "new", 0, 92)])
    assert again == {"k5": ("h", 0, 5), "k6": ("new", 0, 91), "other": ("h", 1, 50)}


def test_fifty_thousand_keys_are_claimed_in_about_a_second_however_many_are_known(ledger: Ledger) -> None:
    seconds = []
    for round_ in range(4):
        rows = [(f"audio/acme/2026-01-31/{round_}-{n * 7919 % 50_000}.wav", "0" * 64, 0, n) for n in range(50_000)]
        begun = time.perf_counter()
        assert len(ledger.claim_first("event", rows)) == 50_000
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 1.5
    assert min(seconds[2:]) < 3 * min(seconds[:2])


def test_threads_share_one_ledger(ledger: Ledger) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: ledger.claim_first("event", [("same", str(n), 0, n)]), range(40)))
    assert len({str(answer) for answer in answers}) == 1


def test_the_journal_tells_runs_latest_first_and_shows_the_unfinished(ledger: Ledger) -> None:
    first = ledger.start_run("run", NOW, {"once": True})
    second = ledger.start_run("maintain", NOW + MINUTE)
    ledger.finish_run(first, "done", NOW + MINUTE, {"rows": 3})
    latest, earlier = ledger.runs(10)
    assert (latest.id, latest.outcome, latest.finished_at) == (second, None, None)
    assert (earlier.outcome, earlier.finished_at, earlier.detail) == ("done", NOW + MINUTE, {"once": True, "rows": 3})
    assert ledger.runs(1) == [latest]
    with pytest.raises(NotFound):
        ledger.finish_run(99, "done", NOW)


def test_a_ledger_that_is_not_a_database_is_named_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(DataFault, match="CORRUPT"):
        _another_view(tmp_path)


def test_a_place_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable):
        open_ledger(f"sqlite:///{tmp_path}/file/ledger.db")
    with pytest.raises(InvalidRequest) as refused:
        open_ledger("postgresql://user:secret@host/db")
    assert "secret" not in str(refused.value)
