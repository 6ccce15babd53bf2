"""What a ledger promises, whichever database it is in: leases that a killed holder cannot keep, firsts, a journal.

The file that imports these tests gives the fixture `ledger_uri`: a place of this test alone.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from waiting import wait_until

from headwater.errors import Conflict, NotFound
from headwater.storage.ledger.claims_upgrade import upgrade_claims
from headwater.storage.ledger.copy import count_claims, read_ledger, write_ledger
from headwater.storage.ledger.lease import Process
from headwater.storage.ledger.ledger import Ledger, open_ledger

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def ledger(ledger_uri: str) -> Ledger:
    return open_ledger(ledger_uri)


def test_a_fact_is_kept_and_the_last_word_counts(ledger: Ledger, ledger_uri: str) -> None:
    assert ledger.fact("format") is None
    ledger.set_fact("format", "1")
    ledger.set_fact("format", "2")
    assert open_ledger(ledger_uri).fact("format") == "2"


def test_many_who_change_a_fact_at_once_do_not_undo_one_another(ledger: Ledger, ledger_uri: str) -> None:
    assert ledger.change_fact("seen", lambda before: f"{before or 'nobody'}") == "nobody"

    def add(number: int) -> None:
        opened = open_ledger(ledger_uri)
        for _ in range(5):
            opened.change_fact("seen", lambda before: f"{before} {number}")
        opened.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert len((ledger.fact("seen") or "").split()) == 21
    with pytest.raises(NotFound):
        ledger.change_fact("seen", lambda _: _refuse())
    assert len((ledger.fact("seen") or "").split()) == 21


def _refuse() -> str:
    raise NotFound("Nothing here.")


def test_a_run_that_is_at_work_tells_how_it_stands(ledger: Ledger) -> None:
    run = ledger.start_run("run", NOW, {"why": "asked"})
    ledger.note_run(run, {"done": {"derive": 3}})
    ledger.note_run(run, {"done": {"derive": 5}})
    (told,) = ledger.unfinished("run")
    assert told.detail == {"why": "asked", "done": {"derive": 5}}


def test_a_held_lease_is_refused_with_the_name_of_its_holder(ledger: Ledger, ledger_uri: str) -> None:
    ledger.acquire_lease("run", "headwater run", 60, NOW)
    with pytest.raises(Conflict, match=rf"headwater run .* process {os.getpid()} on \S+, since 2026-01-31T12:00:00"):
        open_ledger(ledger_uri).acquire_lease("run", "another", 60, NOW + timedelta(seconds=30))
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
import signal, sys
from datetime import UTC, datetime
from headwater.storage.ledger.ledger import open_ledger
open_ledger(sys.argv[1]).acquire_lease("run", "headwater run", 3600, datetime.now(UTC))
print("held", flush=True)
signal.pause()
"""


def test_a_killed_holder_frees_its_lease_at_once(ledger: Ledger, ledger_uri: str) -> None:
    arguments = [sys.executable, "-c", _HOLDER, ledger_uri]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        now = datetime.now(UTC)
        with pytest.raises(Conflict, match=f"process {holder.pid} "):
            ledger.acquire_lease("run", "second", 60, now)
        holder.send_signal(signal.SIGKILL)
        wait_until(lambda: Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        # A zombie that its parent has not yet buried holds nothing.
        assert ledger.acquire_lease("run", "second", 60, now).epoch == 2


def test_a_pid_given_to_another_process_does_not_keep_a_lease_alive() -> None:
    me = Process.this()
    assert not me.surely_dead()
    assert replace(me, started="1").surely_dead()


def test_a_holder_elsewhere_is_trusted_until_it_falls_silent(ledger: Ledger) -> None:
    ledger.acquire_lease("run", "headwater run", 60, NOW)
    with ledger._database.transaction() as run:
        run("update leases set host = 'elsewhere', place = 'elsewhere', pid = 999999999")
    with pytest.raises(Conflict, match="on elsewhere"):
        ledger.acquire_lease("run", "second", 60, NOW + MINUTE / 2)
    assert ledger.acquire_lease("run", "second", 60, NOW + MINUTE).epoch == 2


def test_of_many_that_ask_at_once_one_gets_the_lease(ledger_uri: str) -> None:
    def ask(_: int) -> bool:
        try:
            open_ledger(ledger_uri).acquire_lease("run", "racer", 60, NOW)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1


def test_the_first_claim_of_a_key_stands_however_often_it_is_repeated(ledger: Ledger) -> None:
    assert ledger.claim_first("event", [("a", "h1", 0, 5), ("b", "h2", 0, 6)]) == {"a": ("h1", 0, 5), "b": ("h2", 0, 6)}
    for _ in range(2):
        later = ledger.claim_first("event", [("a", "other", 0, 9), ("c", "h3", 1, 0), ("b", "h2", 0, 6)])
        assert later == {"a": (later["a"][0], 0, 5), "b": ("h2", 0, 6), "c": ("h3", 1, 0)}
        # What the first content was is not told, but that it was another.
        assert later["a"][0] != "other"


def test_the_content_of_a_first_claim_is_told_apart_from_every_other(ledger: Ledger) -> None:
    ledger.claim_first("event", [("a", "h1", 0, 5)])
    for content in ("h1", "h2", "", "h1 "):
        first, *position = ledger.claim_first("event", [("a", content, 3, 9)])["a"]
        assert (first == content, position) == (content == "h1", [0, 5])


def test_within_one_call_the_lowest_position_is_first_whatever_the_order(ledger: Ledger) -> None:
    assert ledger.claim_first("event", [("a", "late", 0, 7), ("a", "early", 0, 3)]) == {"a": ("early", 0, 3)}


def test_old_claims_among_thousands_of_new_ones_are_answered_with_their_firsts(ledger: Ledger) -> None:
    ledger.claim_first("event", [(f"k{n}", "old", 0, n) for n in range(0, 5_000, 1_250)])
    answers = ledger.claim_first("event", [(f"k{n}", "new", 1, n) for n in range(5_000)])
    assert len(answers) == 5_000
    assert {key for key, first in answers.items() if first[0] != "new"} == {"k0", "k1250", "k2500", "k3750"}
    again = ledger.claim_first("event", [(f"k{n}", "again", 2, n) for n in range(5_000)])
    assert {key: first[1:] for key, first in again.items()} == {key: first[1:] for key, first in answers.items()}


def test_kinds_of_keys_do_not_meet(ledger: Ledger) -> None:
    ledger.claim_first("event", [("a", "h1", 0, 1)])
    assert ledger.claim_first("object", [("a", "h2", 0, 2)]) == {"a": ("h2", 0, 2)}
    assert ledger.claim_first("object", []) == {}


def test_claims_that_were_never_committed_are_forgotten_by_position(ledger: Ledger) -> None:
    ledger.claim_first("event", [(f"k{offset}", "h", 0, offset) for offset in range(10)] + [("other", "h", 1, 50)])
    assert ledger.forget_claims_from(0, 6) == 4
    assert ledger.forget_claims_from(0, 6) == 0
    again = ledger.claim_first("event", [("k5", "h", 0, 90), ("k6", "h", 0, 91), ("other", "h", 0, 92)])
    assert again == {"k5": ("h", 0, 5), "k6": ("h", 0, 91), "other": ("h", 1, 50)}


def test_however_many_were_never_committed_all_of_them_are_forgotten(ledger: Ledger) -> None:
    ledger.claim_first("event", [(f"k{offset}", "h", 0, offset) for offset in range(25_000)])
    assert ledger.forget_claims_from(0, 5) == 24_995
    again = ledger.claim_first("event", [(f"k{offset}", "h", 1, offset) for offset in range(25_000)])
    assert sum(first[1] == 0 for first in again.values()) == 5


def test_sealed_claims_stand_when_their_positions_are_given_again(ledger: Ledger) -> None:
    ledger.claim_first("event", [("a", "h", 0, 3), ("b", "h", 1, 3)])
    for _ in range(2):
        ledger.seal_claims(0)
    assert ledger.forget_claims_from(0, 0) == 0
    first = ledger.claim_first("event", [("a", "h", 0, 3), ("b", "h", 1, 3), ("c", "h", 0, 4)])
    assert first == {"a": ("h", -1, 3), "b": ("h", 1, 3), "c": ("h", 0, 4)}


def test_sealing_costs_the_same_however_many_claims_there_are(ledger: Ledger) -> None:
    ledger.claim_first("event", [(f"k{offset}", "h", 0, offset) for offset in range(3_000)])
    ledger.seal_claims(0)
    assert ledger._database.changed <= 1
    again = ledger.claim_first("event", [(f"k{offset}", "h", 0, offset) for offset in range(3_000)])
    assert {first[1:] for first in again.values()} == {(-1, offset) for offset in range(3_000)}


def test_a_log_may_be_made_anew_again_and_again_and_every_claim_stands(ledger: Ledger) -> None:
    for life in range(4):
        ledger.claim_first("event", [(f"life-{life}", "h", 0, 7), ("first", "h", 0, 7), (f"next-{life}", "h", 2, 7)])
        assert ledger.forget_claims_from(0, 8) == 0
        ledger.seal_claims(0)
    # Of the partition that was made anew nothing is open, of the others everything.
    assert ledger.forget_claims_from(0, 0) == 0
    assert ledger.forget_claims_from(2, 0) == 4
    asked = [("first", "h", 0, 7), ("life-0", "h", 0, 7), ("life-3", "h", 0, 7), ("life-4", "h", 0, 7)]
    positions = {key: first[1:] for key, first in ledger.claim_first("event", asked).items()}
    assert positions == {"first": (-1, 7), "life-0": (-1, 7), "life-3": (-1, 7), "life-4": (0, 7)}


def test_no_name_and_no_content_is_kept_in_plain_text(ledger: Ledger) -> None:
    ledger.claim_first("object", [("audio/jane-doe/2026-01-31/call.wav", "0123456789abcdef" * 4, 0, 1)])
    tables = ("claims", "lake")
    kept = repr([row for table in tables for row in ledger._database.query(f"select * from {table}")])
    assert "jane" not in kept and "0123456789abcdef" not in kept


def test_two_ledgers_keep_the_same_key_in_different_ways(ledger: Ledger, tmp_path: Path) -> None:
    other = open_ledger(f"sqlite:///{tmp_path}/other.db")
    for each in (ledger, other):
        each.claim_first("object", [("audio/jane-doe/2026-01-31/call.wav", "h", 0, 1)])
    ours, theirs = (each._database.query("select key, content from claims") for each in (ledger, other))
    assert set(ours[0]).isdisjoint(theirs[0])


def make_old_claims(ledger: Ledger, rows: Sequence[tuple[str, str, str, int, int]]) -> None:
    """As format 3 kept them."""
    with ledger._database.transaction() as run:
        run(
            """create table first_seen (kind text not null, key text not null, content_hash text not null,
            log_partition integer not null, log_offset bigint not null, primary key (kind, key))"""
        )
        run("create index first_seen_position on first_seen (log_partition, log_offset)")
        for row in rows:
            run("insert into first_seen values (?, ?, ?, ?, ?)", row)


_UPGRADE = """
import sys
from headwater.storage.ledger import claims_upgrade
from headwater.storage.ledger.ledger import open_ledger
claims_upgrade._STEP = 7
claims_upgrade.upgrade_claims(open_ledger(sys.argv[1]))
"""


def test_claims_in_plain_text_are_brought_over_in_steps_that_a_kill_does_not_undo(
    ledger: Ledger, ledger_uri: str
) -> None:
    keys = [f"chat/acme/m{n:02}\n" for n in range(25)]
    old = [("event", key, f"h{n}", n % 2, n) for n, key in enumerate(keys)] + [("object", keys[3], "o", -1, 3)]
    make_old_claims(ledger, old)
    assert count_claims(ledger) == len(old), "a ledger that is yet to be upgraded is not an empty one"
    for kill in ("upgrade.claims", "upgrade.claims:2"):
        environment = {**os.environ, "HEADWATER_FAULT": kill}
        killed = subprocess.run([sys.executable, "-c", _UPGRADE, ledger_uri], env=environment, check=False)
        assert killed.returncode == -signal.SIGKILL
    assert ledger._database.query("select count(*) from claims") == [(21,)]
    assert upgrade_claims(ledger) == 5
    assert upgrade_claims(ledger) == 0
    firsts = ledger.claim_first("event", [(key, f"h{n}", 3, 99) for n, key in enumerate(keys)])
    assert firsts == {key: (f"h{n}", n % 2, n) for n, key in enumerate(keys)}
    assert ledger.claim_first("object", [(keys[3], "o", 3, 99)]) == {keys[3]: ("o", -1, 3)}
    assert ledger.forget_claims_from(0, 20) == 3
    assert not ledger._database.has_table("first_seen")
    assert "acme" not in repr(ledger._database.query("select * from lake"))


def test_a_copy_of_a_ledger_answers_as_the_ledger_does(ledger: Ledger, tmp_path: Path) -> None:
    ledger.claim_first("event", [("a", "h", 0, 1), ("b", "h", 1, 1)])
    ledger.seal_claims(0)
    ledger.claim_first("event", [("c", "h", 0, 1)])
    ledger.start_run("run", NOW)
    copy = open_ledger(f"sqlite:///{tmp_path}/copy.db")
    copy.claim_first("event", [("z", "h", 0, 1)])
    for _ in range(2):
        # Rows go through JSON, as in a backup.
        rows = json.loads(json.dumps(list(read_ledger(ledger))))
        assert write_ledger(copy, rows)["claims"] == 3 == count_claims(copy)
    asked = [(key, "h", 5, 5) for key in "abc"]
    assert copy.claim_first("event", asked) == ledger.claim_first("event", asked)
    assert [run.started_at for run in copy.unfinished("run")] == [NOW]
    assert copy.claim_first("event", [("z", "h", 0, 9)]) == {"z": ("h", 0, 9)}


def test_a_backup_with_claims_in_plain_text_is_written_hashed(ledger: Ledger) -> None:
    rows = [
        ("lake", ("format", "2")),
        ("first_seen", ("event", "a", "h", 0, 1)),
        ("first_seen", ("object", "a", "o", -2, 1)),
    ]
    assert write_ledger(ledger, rows)["claims"] == 2
    assert ledger.claim_first("event", [("a", "h", 3, 3)]) == {"a": ("h", 0, 1)}
    assert ledger.claim_first("object", [("a", "o", 3, 3)]) == {"a": ("o", -2, 1)}


def test_ten_thousand_keys_are_claimed_in_seconds_however_many_are_known(ledger: Ledger) -> None:
    seconds = []
    for round_ in range(4):
        rows = [(f"audio/acme/2026-01-31/{round_}-{n * 7919 % 10_000}.wav", "0" * 64, 0, n) for n in range(10_000)]
        begun = time.perf_counter()
        assert len(ledger.claim_first("event", rows)) == 10_000
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 5
    assert min(seconds[2:]) < 3 * min(seconds[:2])


def test_threads_share_one_ledger(ledger: Ledger) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: ledger.claim_first("event", [("same", str(n), 0, n)]), range(40)))
    assert len({answer["same"][1:] for answer in answers}) == 1


def test_the_journal_tells_runs_latest_first_and_shows_the_unfinished(ledger: Ledger) -> None:
    first = ledger.start_run("run", NOW, {"once": True})
    second = ledger.start_run("maintain", NOW + MINUTE)
    ledger.finish_run(first, "done", NOW + MINUTE, {"rows": 3})
    latest, earlier = ledger.runs(10)
    assert (latest.id, latest.outcome, latest.finished_at) == (second, None, None)
    assert (earlier.outcome, earlier.finished_at, earlier.detail) == ("done", NOW + MINUTE, {"once": True, "rows": 3})
    assert ledger.runs(1) == [latest]
    assert ledger.unfinished("maintain") == [latest]
    assert ledger.unfinished("run") == []
    with pytest.raises(NotFound):
        ledger.finish_run(99, "done", NOW)


def test_what_is_unfinished_is_found_without_reading_the_whole_journal(ledger: Ledger, ledger_uri: str) -> None:
    for number in range(20):
        ledger.finish_run(ledger.start_run("run", NOW), "done", NOW, {"number": number})
    unfinished = ledger.start_run("run", NOW)
    assert [run.id for run in ledger.unfinished("run")] == [unfinished]
    explain = "explain" if ledger_uri.startswith("postgres") else "explain query plan"
    plan = ledger._database.query(f"{explain} select id from runs where kind = ? and outcome is null", ("run",))
    assert "runs_unfinished" in repr(plan)
