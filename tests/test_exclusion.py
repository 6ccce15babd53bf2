"""Who may be at work beside whom, pair by pair, in real processes: refused by a sentence, or both end well."""

from itertools import combinations_with_replacement
from pathlib import Path

import forked
import matrix
import pytest
import zombies
from lakes import small_lake

from headwater import lake as lakes
from headwater.clock import to_text, utc_now
from headwater.errors import Conflict
from headwater.storage.ledger.ledger import open_ledger
from headwater.upkeep.exclusion import HOLD_NOTHING, KINDS, LEASES, alone, may_be_beside
from headwater.upkeep.format import FORMAT

# What needs no Spark is tried beside everybody at once.
QUICK = ("rescan", "event", "backup", "activate", "dismiss", "label", "tag", "untag", *HOLD_NOTHING)
ASLEEP_WITHOUT_SPARK = (*QUICK[:8], "maintain", "restore", "upgrade", "migrate", "put")
# Asleep between a file that is written and its commit; who rewrites that table meanwhile is met by both.
ASLEEP_IN_A_COMMIT = ("run", "replay", "retry", "retire")


def beside(kind: str, others: tuple[str, ...]) -> list[str]:
    return [other for other in others if may_be_beside(kind, other)]


@pytest.fixture(scope="module")
def still_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all who are refused: they change nothing, and who is at work is killed before it does."""
    return matrix.make_lake(tmp_path_factory.mktemp("still"))


@pytest.mark.parametrize("kind", LEASES)
def test_who_must_not_be_beside_it_is_refused_by_a_sentence_and_writes_nothing(
    kind: str, still_lake: Path, forks: forked.Forks
) -> None:
    lake = still_lake
    with matrix.at_work(lake, kind) as sleeper:
        ledger = open_ledger(f"sqlite:///{lake}/ledger.db")
        leases = [lease for name in LEASES[kind] if (lease := ledger.held(name)) is not None]
        assert {lease.process.pid for lease in leases} == {sleeper.pid}
        by = f"headwater {kind} is already at work on this lake: process {sleeper.pid} on {leases[0].process.host}, "
        sentences = {f"{by}since {to_text(lease.since)}. Stop it, or let it finish." for lease in leases}
        before = matrix.written(lake.parent)
        for other in LEASES:
            if not may_be_beside(kind, other):
                refused = forks.call("--lake", lake, *matrix.command(other, lake))
                assert refused.code == Conflict.exit_code, (other, refused)
                assert any(sentence in refused.err for sentence in sentences), (other, refused.err)
                assert not refused.spark, f"{other} imported Spark before it asked"
                assert matrix.written(lake.parent) == before, f"{other} wrote"


def work_while_it_sleeps(lake: Path, kind: str, point: str, others: list[str], forks: forked.Forks) -> None:
    """All end well: those beside it, then it."""
    with matrix.at_work(lake, kind, point) as sleeper:
        for other in others:
            answer = forks.call("--lake", lake, *matrix.command(other, lake))
            assert answer.code == 0, (other, answer)
        errors = zombies.wake(sleeper)
        assert sleeper.returncode == 0, errors


@pytest.mark.parametrize("kind", ASLEEP_WITHOUT_SPARK)
def test_who_may_be_beside_it_ends_well_and_so_does_it(kind: str, tmp_path: Path, forks: forked.Forks) -> None:
    lake = matrix.make_lake(tmp_path)
    others = beside(kind, QUICK)
    work_while_it_sleeps(lake, kind, "land.stored" if kind == "put" else "work.begun", others, forks)
    with lakes.open(lake) as opened:
        assert [each for each in (kind, *others) if not matrix.has_done(each, opened)] == []
        matrix.check_journal(opened, {kind, *others} - {"upgrade"})  # which finds nothing to do


def test_a_lake_of_an_older_format_lets_in_neither_who_puts_nor_who_reads_until_it_is_upgraded(
    tmp_path: Path, forks: forked.Forks
) -> None:
    lake = matrix.make_lake(tmp_path)
    open_ledger(f"sqlite:///{lake}/ledger.db").set_fact("format", str(FORMAT - 1))
    with matrix.at_work(lake, "upgrade") as sleeper:
        for other in HOLD_NOTHING:
            refused = forks.call("--lake", lake, *matrix.command(other, lake))
            assert refused.code == Conflict.exit_code and f"must be upgraded to {FORMAT} first" in refused.err
        errors = zombies.wake(sleeper)
        assert sleeper.returncode == 0, errors
    for other in HOLD_NOTHING:
        assert forks.call("--lake", lake, *matrix.command(other, lake)).code == 0
    with lakes.open(lake) as opened:
        matrix.check_journal(opened, ["upgrade"])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak] if kind != "run" else []) for kind in ASLEEP_IN_A_COMMIT]
)
def test_who_may_be_beside_who_is_about_to_commit_ends_well_and_so_does_it(
    kind: str, tmp_path: Path, engine: None, forks: forked.Forks
) -> None:
    lake = matrix.make_full_lake(tmp_path)
    others = beside(kind, ("maintain", *QUICK))
    work_while_it_sleeps(lake, kind, "commit.written", others, forks)
    with lakes.open(lake) as opened:
        opened.run()
        assert [each for each in (kind, *others) if not matrix.has_done(each, opened)] == []
        matrix.check_journal(opened, (kind, *others))
        matrix.check_rows(opened)
        assert matrix.count_compactions(opened) > 0


def test_every_pair_that_may_be_is_tried() -> None:
    tried = {frozenset((kind, other)) for kind in ASLEEP_WITHOUT_SPARK for other in beside(kind, QUICK)}
    tried |= {frozenset((kind, other)) for kind in ASLEEP_IN_A_COMMIT for other in beside(kind, ("maintain", *QUICK))}
    pairs = {frozenset(pair) for pair in combinations_with_replacement(KINDS, 2) if may_be_beside(*pair)}
    assert pairs - tried == {frozenset(["reading"])}, "who only reads never sleeps here; two of them write nothing"


def test_who_was_refused_half_way_keeps_no_lease(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    with alone(ledger, "backup", utc_now), pytest.raises(Conflict), alone(ledger, "restore", utc_now):
        pass
    with alone(ledger, "run", utc_now), alone(ledger, "maintain", utc_now), alone(ledger, "rescan", utc_now):
        pass


def test_a_lake_that_was_opened_before_it_moved_is_not_worked_on_where_it_was(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake")
    with lakes.open(lake) as opened:
        open_ledger(f"sqlite:///{lake}/ledger.db").set_fact("moved_to", "somewhere else")
        for work in (opened.run, opened.maintain, opened.rescan):
            with pytest.raises(Conflict, match="has moved to somewhere else"):
                work()
