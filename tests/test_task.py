"""The one way to tend data: what is explained is what is applied, and a kill at any step costs one more call."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import forked
import matrix
import pytest
import rounds
from cheap_models import FormerSpeech
from former_lake import HEARD, former_lake
from lakes import CALL, parts_of, small_lake
from pyiceberg.table import Table as IcebergTable
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.cli.main import COMMANDS
from headwater.components import Components
from headwater.domain.model_book import KnownModel, State
from headwater.domain.tables import TABLES, TRANSCRIPTS, Table
from headwater.errors import Conflict, NotFound
from headwater.settings import load
from headwater.storage.ledger.copy import RUNS
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.ledger import Ledger, open_ledger
from headwater.storage.ledger.model_book import change_book
from headwater.storage.ledger.plans import unfinished_plans
from headwater.upkeep.backup.backup import Backup
from headwater.upkeep.backup.file import read_backup
from headwater.upkeep.backup.restore import Restore
from headwater.upkeep.events import TendEvent
from headwater.upkeep.exclusion import LEASES
from headwater.upkeep.history.tags import TagLake, UntagLake
from headwater.upkeep.journal import DONE
from headwater.upkeep.maintenance.compaction import FILES_MIN
from headwater.upkeep.maintenance.maintain import Maintain
from headwater.upkeep.migration.migrate import Migrate
from headwater.upkeep.models.retire import Retire
from headwater.upkeep.rescan import Rescan
from headwater.upkeep.task import Applied, Result, Step, Task, apply
from headwater.upkeep.upgrade import UpgradeLake

TASKS: tuple[type[Task[Any]], ...] = (
    Backup,
    Restore,
    Maintain,
    Migrate,
    Retire,
    Rescan,
    TendEvent,
    TagLake,
    UntagLake,
    UpgradeLake,
)
# Their positions in the tables are their journal; they share leases and records with the tasks.
DRIVEN = {"run", "retry", "replay", "submit", "demo"}
# One transaction of the ledger each, under the lease for edits.
EDITS = {"activate", "quarantine", "label"}
# New objects and new lakes, and the machine's own servers.
MAKES = {"init", "put", "up", "down"}
# Files outside the lake; and the Java and servers around it.
LOOKS_ROUND = {"export", "preview", "check-event", "doctor"}
# Who may look in, and where: what they do goes by the methods that the commands call.
DOORS = {"token", "serve", "mcp"}
READS: dict[str, tuple[str, ...]] = {
    "search": ("refund",), "trace": ("e1",), "get": ("e1", "-o", "call.wav"), "status": (), "flow": (), "metrics": (),
    "show": ("transcripts",), "sql": ("select count(*) from transcripts",), "models": (), "settings": (),
    "ls": (), "customers": (), "kinds": (), "schema": (), "thread": ("t1",), "connect": ("--duckdb",),
    "snapshots": ("transcripts",), "tags": (),
    "compare": ("transcribe", "cheap_models:CheapSpeech", "cheap_models:LouderSpeech"),
}  # fmt: skip
ORPHAN = "documents/acme/2026-03-02/lost.pdf"


def test_every_command_that_changes_data_goes_the_one_way() -> None:
    kinds = {task.kind for task in TASKS}
    assert {*COMMANDS} == kinds | DRIVEN | EDITS | MAKES | LOOKS_ROUND | DOORS | {*READS}
    assert {*LEASES} - kinds == {"run", "retry", "replay", "activate", "dismiss", "label"}
    for kind in kinds:
        source = (Path(lakes.__file__).parent / "cli" / "commands" / f"{kind}.py").read_text()
        assert '"--dry-run"' in source, f"{kind} has no --dry-run"


def test_a_command_that_only_reads_changes_no_file_and_no_row_of_the_lake(tmp_path: Path, forks: forked.Forks) -> None:
    """So that no command is among those that read and changes data past the one way."""
    lake = matrix.make_lake(tmp_path)
    assert forks.call("--lake", lake, *matrix.command("put", lake)).code == 0  # the first look at a log names it
    before = matrix.written(lake)
    for name, arguments in READS.items():
        given = [str(tmp_path / word) if word == "call.wav" else word for word in arguments]
        answer = forks.call("--lake", lake, name, *given)
        assert answer.code in ({NotFound.exit_code} if name == "thread" else {0}), (name, answer)  # there is none
        assert matrix.written(lake) == before, f"{name} wrote"
    assert forks.call("--lake", lake, "rescan").code == 0
    assert matrix.written(lake) != before, "what writes is noticed"


def test_the_tasks_in_the_docs_are_those_that_there_are_with_their_steps() -> None:
    page = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    for task in TASKS:
        steps = ", ".join(step.action for step in task.step_types)
        assert f"| {task.kind} | {steps} |" in page


def ledger_of(lake: Path) -> Ledger:
    return open_ledger(f"sqlite:///{lake}/ledger.db")


def stored_steps(lake: Path, kind: str) -> list[dict[str, Any]]:
    """Of the latest plan; and every one is over, with all its steps."""
    ledger = ledger_of(lake)
    assert unfinished_plans(ledger) == []
    ((plan, steps),) = ledger._database.query(
        "select id, steps from plans where kind = ? order by id desc limit 1", (kind,)
    )
    noted = ledger._database.query("select number, ended_at from plan_steps where plan = ? order by number", (plan,))
    found: list[dict[str, Any]] = json.loads(steps)
    assert [number for number, ended_at in noted if ended_at] == list(range(len(found)))
    return found


@dataclass(frozen=True)
class Case:
    """A lake that has something to do, the command that does it, and what the lake must be afterwards."""

    lake: Path
    command: tuple[str | Path, ...]
    is_done: Callable[[], object]


def to_rescan(tmp: Path) -> Case:
    lake = small_lake(tmp / "lake")
    with lakes.open(lake) as opened:
        parts_of(opened).raw_store.put_bytes(ORPHAN, b"%PDF", "application/pdf")
        parts_of(opened).log.publish([])
    old = 1_700_000_000
    os.utime(lake / "raw" / ORPHAN, (old, old))

    def announced() -> bool:
        log = Components(load(lake)).log
        return any(ORPHAN in line.value for line in log.read(0, 0, 100))

    return Case(lake, ("rescan",), announced)


def to_correct(tmp: Path) -> Case:
    lake = small_lake(tmp / "lake")
    sent = lambda: len({line.value for line in Components(load(lake)).log.read(0, 0, 100)}) == 1  # noqa: E731
    return Case(lake, ("event", "correct", "e1", "--content-type", "audio/x-wav"), sent)


def to_upgrade(tmp: Path) -> Case:
    """Two steps that change nothing more, and the one from its own format."""
    lake = former_lake(tmp / "lake")
    ledger_of(lake).set_fact("format", "2")

    def tells_speakers() -> bool:
        with lakes.open(lake) as opened:
            (row,) = opened.sql("select text, segments[1].speaker as speaker from transcripts")["rows"]
            return row == {"text": HEARD, "speaker": None}

    return Case(lake, ("upgrade",), tells_speakers)


def to_back_up(tmp: Path) -> Case:
    lake, file = small_lake(tmp / "lake"), tmp / "lake.backup"
    tags = lambda: {  # noqa: E731
        ref for table in ("bronze.events",) for ref in Components(load(lake)).catalog.load_table(table).metadata.refs
    }
    return Case(lake, ("backup", file), lambda: file.exists() and len(tags() - {"main"}) == 1)


def to_tag(tmp: Path) -> Case:
    lake = small_lake(tmp / "lake")
    return Case(lake, ("tag", "then", "--by", "ann"), lambda: _tags(lake) == ["then"])


def to_untag(tmp: Path) -> Case:
    lake = small_lake(tmp / "lake")
    with lakes.open(lake) as opened:
        opened.history.tag("then", by="ann")
    return Case(lake, ("untag", "then", "--by", "ann"), lambda: _tags(lake) == [])


def _tags(lake: Path) -> list[str]:
    """Those that every table has too, and no table another."""
    with lakes.open(lake) as opened:
        names = [tag["name"] for tag in opened.history.tags()]
    refs = [{*_table(lake, table).metadata.refs} - {"main"} for table in TABLES]
    assert all(each == {*names} for each in refs), refs
    return names


def to_restore(tmp: Path) -> Case:
    lake, file = small_lake(tmp / "lake"), tmp / "lake.backup"
    with lakes.open(lake) as opened:
        opened.backup(file)
    for name in ("catalog", "ledger"):
        for each in lake.glob(f"{name}.db*"):
            each.unlink()

    def whole() -> bool:
        with lakes.open(lake) as opened:
            return len(opened.search("refund").hits) > 0 and len(parts_of(opened).ledger.runs(9)) >= 1

    return Case(lake, ("restore", file), whole)


def to_maintain(tmp: Path) -> Case:
    lake = small_lake(tmp / "lake")
    for number in range(FILES_MIN):
        row = {"object_id": CALL, "text": f"and then, {number}"}
        append(_table(lake, TRANSCRIPTS), rows(TRANSCRIPTS, [row], first_seq=1 + number))
    return Case(lake, ("maintain",), lambda: len(list(_table(lake, TRANSCRIPTS).scan().plan_files())) == 1)


def to_retire(tmp: Path) -> Case:
    lake, fingerprint = matrix.make_lake(tmp), FormerSpeech.card.fingerprint
    row = {"object_id": CALL, "text": "hello", "fingerprint": fingerprint}
    append(_table(lake, TRANSCRIPTS), rows(TRANSCRIPTS, [row], first_seq=1))

    def is_gone() -> bool:
        with lakes.open(lake) as opened:
            return matrix.has_done("retire", opened)

    return Case(lake, matrix.command("retire", lake), is_gone)


def to_migrate(tmp: Path) -> Case:
    lake, file = small_lake(tmp / "lake"), tmp / "other.toml"
    file.write_text(f'[raw]\nuri = "{tmp}/raw"\n[ledger]\nuri = "sqlite:///{tmp}/other.db"\n')
    return Case(lake, ("migrate", "--to", file), lambda: load(lake).text("raw.uri") == f"{tmp}/raw")


def _table(lake: Path, table: Table) -> IcebergTable:
    return Components(load(lake)).catalog.load_table(table.name)


WITHOUT_SPARK = {
    "rescan": to_rescan,
    "event": to_correct,
    "upgrade": to_upgrade,
    "backup": to_back_up,
    "restore": to_restore,
    "tag": to_tag,
    "untag": to_untag,
}
CASES = {**WITHOUT_SPARK, "maintain": to_maintain, "retire": to_retire, "migrate": to_migrate}


@pytest.mark.parametrize("kind", WITHOUT_SPARK)
def test_killed_at_every_step_a_task_is_finished_by_the_same_command(
    kind: str, tmp_path: Path, forks: forked.Forks
) -> None:
    case = CASES[kind](tmp_path)
    kills = 0
    # Killed when a step is done and nobody knows, then when it is noted; so each process gets one step further.
    for fault in ("task.begun", *["task.done", "task.ended"] * 12, ""):
        ended = forks.call("--lake", case.lake, *case.command, fault=fault)
        if ended.code != -signal.SIGKILL:
            assert ended.code == 0, ended.err
            break
        kills += 1
    assert case.is_done()
    assert kills > 2 * len(stored_steps(case.lake, kind))


def test_a_backup_that_is_killed_before_its_file_is_there_leaves_one_tag_when_it_is_made(
    tmp_path: Path, forks: forked.Forks
) -> None:
    case = to_back_up(tmp_path)
    for _ in range(2):
        assert forks.call("--lake", case.lake, *case.command, fault="backup.pinned").code == -signal.SIGKILL
    assert forks.call("--lake", case.lake, *case.command).code == 0
    assert case.is_done()
    outcomes = [row[3] for name, row in read_backup(Path(case.command[1])) if name == RUNS and row[0] == "backup"]
    assert sorted(outcomes, key=str) == [None, None, DONE], "those that were killed are not told as done"


def test_every_task_has_a_case() -> None:
    assert {task.kind for task in TASKS} == {*CASES}


@pytest.mark.parametrize("kind", CASES)
def test_what_a_dry_run_prints_is_what_is_applied(kind: str, tmp_path: Path, forks: forked.Forks) -> None:
    case = CASES[kind](tmp_path)
    printed = forks.call("--lake", case.lake, *case.command, "--dry-run", "--json")
    assert printed.code == 0 and not printed.spark, printed
    applied = forks.call("--lake", case.lake, *case.command)
    assert applied.code == 0, applied.err
    assert case.is_done()
    # When it is, and which tag that makes, a second plan cannot know.
    by_chance = {"from", "tag", "made_at", "serves_until", "started_at", "older_than"}
    known = [
        [{name: value for name, value in step.items() if name not in by_chance} for step in steps]
        for steps in (json.loads(printed.out)["steps"], stored_steps(case.lake, kind))
    ]
    assert known[0] == known[1] != []


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Step):
    action: ClassVar[str] = "add"
    number: int


@dataclass(frozen=True, slots=True)
class Sum:
    steps: tuple[Add, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"steps": [step.to_dict() for step in self.steps]}


class Adding(Task[Sum]):
    """Adds numbers to a fact, each expecting what the one before has left; somebody else may add in between."""

    kind = "maintain"
    step_types = (Add,)

    def __init__(self, parts: Components, until: int, meddle: Callable[[], None] = lambda: None) -> None:
        self._parts = parts
        self._until = until
        self._meddle = meddle

    def plan(self) -> Sum:
        begin = self._sum()
        return Sum(tuple(Add(about="the sum", expects=str(n), number=1) for n in range(begin, self._until)))

    def _sum(self) -> int:
        return int(self._parts.ledger.fact("sum") or 0)

    def state(self, step: Step) -> str:
        self._meddle()
        return str(self._sum())

    def do(self, step: Step, held: Held) -> Result:
        held.ledger.set_fact("sum", str(int(step.expects) + 1))
        return {"sum": int(step.expects) + 1}


@pytest.fixture
def parts(tmp_path: Path) -> Components:
    return Components(load(small_lake(tmp_path / "lake")))


def test_a_lake_that_moved_is_told_and_planned_for_anew(parts: Components) -> None:
    once = [True]

    def meddle() -> None:
        if once and parts.ledger.fact("sum") == "2":
            once.clear()
            parts.ledger.set_fact("sum", "3")

    said: list[str] = []
    applied: Applied[Sum] = apply(Adding(parts, 5, meddle), parts, report=said.append)
    assert parts.ledger.fact("sum") == "5"
    assert said == ["the sum moved: expected 2, found 3. Planned anew."]
    assert [result["sum"] for _, result in applied.results] == [1, 2, 4, 5]
    assert [run.outcome for run in parts.ledger.runs(1)] == ["done"] and unfinished_plans(parts.ledger) == []


def test_a_lake_that_never_rests_is_refused_with_what_moved(parts: Components) -> None:
    def meddle() -> None:
        parts.ledger.set_fact("sum", str(int(parts.ledger.fact("sum") or 0) + 1))

    with pytest.raises(Conflict, match="the sum moved: expected"):
        apply(Adding(parts, 100, meddle), parts)
    assert unfinished_plans(parts.ledger) == [] and parts.ledger.runs(1)[0].outcome == "failed"


def test_who_lost_any_of_its_leases_begins_no_further_step(parts: Components) -> None:
    """A task of several leases that slept: another took one of them, be it not the first."""

    class Slow(Adding):
        kind = "upgrade"  # which holds them all
        any_format = True

        def do(self, step: Step, held: Held) -> Result:
            if step.expects == "1":
                with self._parts.ledger._database.transaction() as run:
                    run("update leases set epoch = epoch + 1 where name = 'backup'")
            return super().do(step, held)

    with pytest.raises(Conflict, match="lost"):
        apply(Slow(parts, 5), parts)
    assert parts.ledger.fact("sum") == "1"


def test_a_plan_of_a_newer_headwater_is_refused_and_left_to_it(parts: Components) -> None:
    class Newer(Adding):
        def do(self, step: Step, held: Held) -> Result:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(Newer(parts, 2), parts)
    with parts.ledger._database.transaction() as run:
        run("update plans set steps = replace(steps, 'add', 'multiply')")
    with pytest.raises(Conflict, match="a step that this Headwater does not know: multiply"):
        apply(Adding(parts, 2), parts)
    assert len(unfinished_plans(parts.ledger)) == 1


def test_a_plan_that_was_refused_at_its_first_step_is_not_gone_on_with_and_a_later_fault_is(parts: Components) -> None:
    class Refusing(Adding):
        at = "0"

        def do(self, step: Step, held: Held) -> Result:
            if step.expects == self.at:
                raise Conflict("Not now.")
            return super().do(step, held)

    refusing = Refusing(parts, 3)
    for at, left in (("0", 0), ("1", 1)):
        refusing.at = at
        with pytest.raises(Conflict, match="Not now"):
            apply(refusing, parts)
        assert len(unfinished_plans(parts.ledger)) == left
    applied = apply(Adding(parts, 3), parts)
    assert [result["sum"] for _, result in applied.resumed] == [1, 2, 3]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["maintain", "retire"])
def test_killed_at_every_step_a_task_that_needs_spark_is_finished_too(
    kind: str, tmp_path: Path, engine: None, forks: forked.Forks
) -> None:
    lake = tmp_path / "lake"
    rounds.use_cheap_models(lake)
    with lakes.init(lake) as opened:
        for number in range(6):
            rounds.put_round(opened, rounds.make_media(tmp_path, number), number)
            opened.run()
        before = rounds.contents(opened)
        known: KnownModel = opened.models.book().find("transcribe", "ACTIVE")
        other = replace(known, fingerprint="0" * 16, label="other", state=State.STANDBY)
        change_book(parts_of(opened).ledger, lambda book: book.with_model(other))
    command = ("maintain",) if kind == "maintain" else ("retire", "transcribe", "0" * 16)
    kills = 0
    for fault in [*["task.done", "task.ended"] * 40, ""]:
        ended = forks.call("--lake", lake, *command, fault=fault)
        if ended.code != -signal.SIGKILL:
            assert ended.code == 0, ended.err
            break
        kills += 1
    assert kills >= 2 * len(stored_steps(lake, kind))
    with lakes.open(lake) as opened:
        assert rounds.contents(opened) == before
        if kind == "retire":
            assert opened.models.book().get("transcribe", "0" * 16) is None
