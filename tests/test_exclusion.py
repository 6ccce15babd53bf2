"""Who may work on a lake beside whom: what must not be is refused by a sentence that names who is at work."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from calling import Answer, answer
from lakes import small_lake

from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.errors import Conflict
from headwater.storage.ledger.ledger import Ledger, open_ledger
from headwater.upkeep.exclusion import LEASES, alone
from headwater.upkeep.models.retire import RetirePlan

# In a process of its own, until its input ends.
_HOLDER = """
import sys
from headwater.clock import utc_now
from headwater.storage.ledger.ledger import open_ledger
from headwater.upkeep.exclusion import alone

with alone(open_ledger(sys.argv[1]), sys.argv[2], utc_now):
    print("at work", flush=True)
    sys.stdin.read()
"""
OTHER = RetirePlan("transcribe", "other", "f" * 16, "beside", {}, 0)
EXCLUSIVE = {"restore", "upgrade", "migrate"}
ONE_OF_FOUR = {"run", "replay", "retry", "retire"}


def may_be_beside(one: str, other: str) -> bool:
    """As docs/runbook.md has it."""
    if EXCLUSIVE & {one, other} or one == other:
        return False
    return not {one, other} <= ONE_OF_FOUR and not {one, other} <= {"activate", "dismiss"}


@contextmanager
def at_work(uri: str, kind: str) -> Iterator[None]:
    line = [sys.executable, "-c", _HOLDER, uri, kind]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "at work\n"
        yield
        holder.stdin.close()
        assert holder.wait(30) == 0


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake(tmp_path / "lake")


@pytest.fixture
def ledger_uri(lake: Path) -> str:
    return f"sqlite:///{lake}/ledger.db"


def test_the_table_of_the_runbook_is_what_leases_do(ledger_uri: str) -> None:
    ledger: Ledger = open_ledger(ledger_uri)
    for one in LEASES:
        for other in LEASES:
            with alone(ledger, one, utc_now):
                try:
                    with alone(ledger, other, utc_now):
                        beside = True
                except Conflict as refused:
                    assert f"headwater {one} is already at work" in str(refused)
                    beside = False
            assert beside == may_be_beside(one, other), (one, other)


def test_who_was_refused_half_way_keeps_no_lease(ledger_uri: str) -> None:
    ledger: Ledger = open_ledger(ledger_uri)
    with alone(ledger, "backup", utc_now), pytest.raises(Conflict), alone(ledger, "restore", utc_now):
        pass
    with alone(ledger, "run", utc_now), alone(ledger, "maintain", utc_now), alone(ledger, "rescan", utc_now):
        pass


def test_every_task_is_refused_while_a_restore_is_at_work(
    lake: Path, ledger_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup, elsewhere = tmp_path / "lake.backup", tmp_path / "other.toml"
    elsewhere.write_text(f'[raw]\nuri = "{tmp_path}/raw"\n')
    assert answer(capsys, "backup", backup, "--lake", lake).code == 0
    commands: list[tuple[str | Path, ...]] = [
        ("run", "--once"),
        ("retry",),
        ("maintain",),
        ("rescan",),
        ("backup", tmp_path / "second.backup"),
        ("restore", backup, "--force"),
        ("migrate", "--to", elsewhere),
        ("upgrade",),
    ]
    with at_work(ledger_uri, "restore"):
        for command in commands:
            _check_refused(answer(capsys, *command, "--lake", lake), "restore")
        with lakes.open(lake) as opened:
            calls: list[Callable[[], object]] = [
                lambda: opened.models.retire("transcribe", "other", plan=OTHER),
                lambda: opened.models.replay("transcribe", "cheap_models:CheapSpeech"),
            ]
            for call in calls:
                with pytest.raises(Conflict, match="headwater restore is already at work"):
                    call()
    assert not (tmp_path / "second.backup").exists()


@pytest.mark.parametrize("kind", ["run", "maintain", "rescan", "backup"])
def test_what_replaces_the_lake_is_refused_while_anybody_is_at_work(
    lake: Path, ledger_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    backup, elsewhere = tmp_path / "lake.backup", tmp_path / "other.toml"
    elsewhere.write_text(f'[raw]\nuri = "{tmp_path}/raw"\n')
    assert answer(capsys, "backup", backup, "--lake", lake).code == 0
    with at_work(ledger_uri, kind):
        for command in (("restore", backup, "--force"), ("migrate", "--to", elsewhere)):
            _check_refused(answer(capsys, *command, "--lake", lake), kind)
        ledger = open_ledger(ledger_uri)
        ledger.set_fact("format", "2")
        _check_refused(answer(capsys, "upgrade", "--lake", lake), kind)
        assert ledger.fact("format") == "2", "nothing was upgraded under it"
    assert answer(capsys, "upgrade", "--lake", lake).code == 0
    assert ledger.runs(1)[0].kind == "upgrade" and ledger.runs(1)[0].outcome == "done"


def test_a_lake_that_was_opened_before_it_moved_is_not_worked_on_where_it_was(lake: Path, ledger_uri: str) -> None:
    with lakes.open(lake) as opened:
        open_ledger(ledger_uri).set_fact("moved_to", "somewhere else")
        for work in (opened.run, opened.maintain, opened.rescan):
            with pytest.raises(Conflict, match="has moved to somewhere else"):
                work()


def _check_refused(refused: Answer, by: str) -> None:
    assert refused.code == Conflict.exit_code, refused
    assert f"headwater {by} is already at work on this lake" in refused.err, refused
