"""The map drives the run: what is not in it is not run, its order is the order of the drain, and it has every name."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
import rounds
from lakes import parts_of
from waiting import wait_until

from headwater import lake as lakes
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import InternalError, InvalidRequest, Unavailable
from headwater.flow.drive.account import Account
from headwater.flow.drive.pending import find_pending
from headwater.flow.drive.run import Run
from headwater.flow.log.identity import find_unread
from headwater.flow.map import (
    BRONZE,
    DEFAULT_POOL,
    DERIVE,
    EMBED,
    FLOW,
    INDEX,
    LAND,
    Flow,
    Stage,
    names_counted,
    stages_by_pool,
)
from headwater.flow.runner import Committed, StageRunner
from headwater.lake import Lake
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.tables.read_progress import read_progress
from headwater.upkeep import work

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        made.put_text("my parcel is late", customer="acme", id="m1", at=AT)
        yield made


@contextmanager
def run_by(lake: Lake, flow: Flow) -> Iterator[Run]:
    parts = parts_of(lake)
    with work.alone(parts, "run") as held, work.recorded(parts, "run") as entry:
        yield run_of(lake, held, Account(entry.done, entry.models, entry.save), flow)


def run_of(lake: Lake, held: Held, account: Account, flow: Flow) -> Run:
    parts = parts_of(lake)
    writer = work.new_writer(parts, held)
    return Run(writer, held.ledger, parts.log, parts.index, parts.clock, threading.Event(), account, flow)


def rows(lake: Lake) -> dict[str, int]:
    counted = {name: lake.table(name).to_arrow().num_rows for name in ("events", "messages", "embeddings")}
    return counted | {"index": parts_of(lake).index.count()}


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        (BRONZE, {"events": 0, "messages": 0, "embeddings": 0, "index": 0}),
        (DERIVE, {"events": 1, "messages": 0, "embeddings": 0, "index": 0}),
        (EMBED, {"events": 1, "messages": 1, "embeddings": 0, "index": 0}),
        (INDEX, {"events": 1, "messages": 1, "embeddings": 1, "index": 0}),
    ],
    ids=lambda value: value.name if isinstance(value, Stage) else "",
)
def test_a_stage_that_is_taken_out_of_the_map_is_not_run(lake: Lake, gone: Stage, left: dict[str, int]) -> None:
    with run_by(lake, tuple(stage for stage in FLOW if stage is not gone)) as run:
        done = run.once()
    assert rows(lake) == left and gone.name not in done
    lake.run()
    assert rows(lake) == dict.fromkeys(left, 1), "and what it left is done when it is there again"


def test_a_stage_that_rests_is_not_run_and_the_others_are(lake: Lake) -> None:
    with run_by(lake, FLOW) as run, run.interruptible():
        run.begin()
        run.follow(resting=EMBED)
        wait_until(lambda: rows(lake)["messages"] == 1 or run.take_turn())
        run.finish()
    assert rows(lake) == {"events": 1, "messages": 1, "embeddings": 0, "index": 0}


class Noted(StageRunner):
    """A stage of somebody else's, in a file of its own: it notes each of its turns."""

    turns: ClassVar[list[str]] = []
    name = "noted"

    def run_batch(self) -> Committed | None:
        if self.name in Noted.turns:
            return None
        Noted.turns.append(self.name)
        return Committed(1)


class Gold(Noted):
    """On a thread of its own, where it has something to do when the index has."""

    name = "gold"

    def run_batch(self) -> Committed | None:
        return super().run_batch() if self.context.index.position() else None


def noted(name: str, pool: str, kind: type[Noted], reads: str = EMBEDDINGS.name) -> Stage:
    globals()[f"Runner_{name}"] = type(f"Runner_{name}", (kind,), {"name": name})
    return Stage(name, (reads,), ("files",), "", 1, "", runner=f"test_map:Runner_{name}", pool=pool)


def test_the_order_of_the_map_is_the_order_of_the_drain(lake: Lake) -> None:
    """Across pools, and of stages that take turns; a stage of one's own is one file and one line."""
    Noted.turns.clear()
    mine = [noted("first", DEFAULT_POOL, Noted), noted("second", DEFAULT_POOL, Noted)]
    mine += [noted("gold", "gold", Gold, reads="index")]
    with run_by(lake, (*FLOW[:2], mine[0], DERIVE, mine[1], EMBED, INDEX, mine[2])) as run:
        assert list(run._lanes) == list(stages_by_pool(run.flow).values())
        done = run.once()
    assert Noted.turns == ["first", "second", "gold"]
    lines = map(json.loads, (lake.settings.lake / "logs" / "headwater.jsonl").read_text().splitlines())
    told = [line["stage"] for line in lines if line["event"] == "stage.committed"]
    assert told == ["bronze", "first", "derive", "second", "embed", "index", "gold"], "each when the one before it had"
    assert done["gold"] == 1 and rows(lake)["index"] == 1


def test_what_is_pending_is_told_stage_by_stage_of_the_map(lake: Lake) -> None:
    parts = parts_of(lake)
    assert list(lake.pending().to_dict()) == [stage.name for stage in FLOW if stage.runner]
    assert (lake.pending().bronze, lake.pending().by_stage["index"]) == (1, 0)
    gold = replace(EMBED, name="gold", runner="test_map:Gold")
    progress = lambda table: read_progress(lake.settings, table)  # noqa: E731
    found = find_pending(progress, find_unread(parts.log, parts.ledger, {}), 0, flow=(*FLOW, gold))
    assert found.to_dict() == {**lake.pending().to_dict(), "gold": 0}
    with pytest.raises(AttributeError):
        assert lake.pending().silver


def test_a_commit_wakes_who_reads_what_it_writes() -> None:
    woken = {stage.name: [other.name for other in FLOW if other.is_woken_by(stage)] for stage in FLOW}
    assert woken == {
        "land": ["bronze", "derive"],
        "bronze": ["derive"],
        "derive": ["embed", "index"],
        "embed": ["index"],
        "index": [],
    }


def test_what_a_replay_embeds_is_indexed_while_it_goes_on(lake: Lake) -> None:
    """A replay embeds on the thread of who called it: the lane that embed and index share hears of it all the same."""
    with run_by(lake, FLOW) as run:
        woken: list[str] = []
        for stages, lane in run._lanes.items():
            lane.wake = lambda names=[stage.name for stage in stages]: woken.extend(names)  # type: ignore[method-assign]
        run.wake_readers(EMBED)
        assert woken == ["embed", "index"]
        run.wake_readers(INDEX)
        assert woken == ["embed", "index"], "nobody reads the index"


def test_what_was_committed_is_counted_though_the_catalog_goes_down_right_after(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise Unavailable("The catalog did not answer.")

    with run_by(lake, FLOW) as run, run.interruptible():
        run.begin()
        for place in ("intake", "embed_runner"):
            monkeypatch.setattr(f"headwater.flow.drive.{place}.read_progress", down)
        for intake in run.intakes:
            intake.drain()
        run.follow()
        run.finish()
    assert (run.account.done["bronze"], run.account.done["embed"]) == (1, 1)


def test_a_run_counts_under_names_of_the_map_alone(lake: Lake) -> None:
    account = Account()
    with pytest.raises(InternalError, match="counts silver, which no stage"):
        account.count("silver", 1)
    for name in ("bronze", "lost", "quarantine", "derive", "straggler", "retry", "replay", "embed", "index"):
        account.count(name, 0)
    assert names_counted((LAND,)) == frozenset()
    assert set(lake.run().done) <= names_counted(FLOW)


def test_a_map_that_names_what_is_not_there_is_refused_before_anything_is_done(lake: Lake) -> None:
    nowhere = replace(INDEX, runner="headwater.flow.nowhere:Runner")
    with pytest.raises(InvalidRequest, match="Nothing stands at"), run_by(lake, (BRONZE, nowhere)):
        pass
    assert rows(lake)["events"] == 0
