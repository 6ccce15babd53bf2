"""Names of the whole lake: what they keep, whom they belong to, and that they are one consistent cut."""

import signal
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import forked
import pytest
from calling import answer
from lakes import parts_of, small_lake
from sample_rows import append, rows

from headwater import clock
from headwater import lake as lakes
from headwater.components import Components
from headwater.domain.lake_tag import EMPTY_AT
from headwater.domain.model_book import State
from headwater.domain.tables import EVENTS, MESSAGES, QUARANTINE, TABLES
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.lake import Lake
from headwater.storage.ledger.model_book import change_book
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import Keep
from headwater.storage.tables.refs import list_refs

TEXTS = "select text from messages order by seq"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return small_lake(tmp_path / "lake")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    return partial(answer, capsys)


def say(lake: Lake, number: int) -> None:
    chat = {"customer": "acme", "modality": "chat", "event_id": f"n{number}", "object_id": f"chat/acme/n{number}"}
    catalog = parts_of(lake).catalog
    append(catalog.load_table(EVENTS.name), rows(EVENTS, [{**chat, "text": str(number)}], 100 + number), EVENTS.day)
    made = {"step": "message", "model": "inline 1", "fingerprint": "message-print", "text": str(number)}
    append(catalog.load_table(MESSAGES.name), rows(MESSAGES, [{**chat, **made}], 100 + number), MESSAGES.day)


def expire_all(lake: Lake) -> None:
    committer = Committer(lake.settings)
    for table in TABLES:
        committer.expire(table.name, Keep(0.0, newest=1))


def texts(lake: Lake, **how: Any) -> list[str]:
    return [row["text"] for row in lake.sql(TEXTS, **how)["rows"]]


def test_a_tag_is_what_the_whole_lake_was_whatever_comes_and_expires(directory: Path) -> None:
    with lakes.open(directory) as lake:
        before, shown = texts(lake), lake.show("events")["rows"]
        told = lake.history.tag("before-import", by="ann", note="nothing yet")
        assert {row["table"] for row in told["snapshots"]} == {table.name for table in TABLES}
        for number in range(3):
            say(lake, number)
        expire_all(lake)
        assert texts(lake) == [*before, "0", "1", "2"]
        assert texts(lake, as_of="before-import") == before
        assert lake.show("events", as_of="before-import")["rows"] == shown
        assert len(lake.table("messages", as_of="before-import").to_arrow()) == len(before)
        with pytest.raises(NotFound):
            lake.trace("n1", as_of="before-import")
        lake.history.untag("before-import", by="bob")
        expire_all(lake)
        with pytest.raises(NotFound, match="no tag or branch before-import"):
            lake.sql(TEXTS, as_of="before-import")
        assert lake.history.tags() == []


def test_a_table_that_had_nothing_yet_is_empty_at_the_tag(tmp_path: Path) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        lake.history.tag("empty", by="ann")
        say(lake, 1)
        assert texts(lake) == ["1"]
        assert texts(lake, as_of="empty") == []
        assert lake.sql("select count(*) as n from messages join events using (object_id)", as_of="empty")["rows"] == [
            {"n": 0}
        ]
        lake.history.untag("empty", by="ann")
        properties = parts_of(lake).catalog.load_table(MESSAGES.name).properties
        assert not [name for name in properties if name.startswith(EMPTY_AT)]


def test_models_are_those_of_the_tag(directory: Path) -> None:
    with lakes.open(directory) as lake:
        ledger = parts_of(lake).ledger
        change_book(ledger, lambda book: book)
        lake.history.tag("then", by="ann")
        heard = lake.table("transcripts").to_arrow()["fingerprint"].to_pylist()
        active = lake.models.book().active("transcribe")
        assert active is not None
        # Readers of now see nobody's transcripts.
        hidden = replace(active, fingerprint=heard[0], state=State.STANDBY)
        change_book(ledger, lambda book: book.with_model(hidden))
        assert len(lake.table("transcripts").to_arrow()) == 0
        assert len(lake.table("transcripts", as_of="then").to_arrow()) == len(heard)
        assert lake.sql("select count(*) as n from transcripts", as_of="then")["rows"] == [{"n": len(heard)}]


def test_no_row_of_a_tag_lacks_what_it_came_from_while_others_write(directory: Path) -> None:
    stop, names = threading.Event(), [f"cut-{number}" for number in range(6)]

    def write() -> None:
        with lakes.open(directory) as writer:
            number = 0
            while not stop.is_set():
                say(writer, number := number + 1)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        with lakes.open(directory) as lake:
            for name in names:
                lake.history.tag(name, by="ann")
    finally:
        stop.set()
        writing.join()
    counts = []
    with lakes.open(directory) as lake:
        for name in names:
            events, messages = (lake.table(table, as_of=name).to_arrow() for table in ("events", "messages"))
            assert {*messages["object_id"].to_pylist()} <= {*events["object_id"].to_pylist()}, name
            counts.append(len(messages))
    assert counts == sorted(counts)
    assert counts[-1] > counts[0], "somebody wrote meanwhile"


@pytest.mark.parametrize("point", ["task.begun", "task.done", "task.ended"])
@pytest.mark.parametrize("at", [1, 3, 8])
def test_a_tag_that_was_cut_short_is_finished_as_it_was_begun(
    directory: Path, forks: forked.Forks, point: str, at: int
) -> None:
    killed = forks.call("--lake", directory, "tag", "cut", "--by", "ann", fault=f"{point}:{at}")
    assert killed.code == -signal.SIGKILL, killed
    with lakes.open(directory) as lake:
        before = texts(lake)
        say(lake, 1)
        lake.history.tag("cut", by="ann")
        assert texts(lake, as_of="cut") == before
        committer = Committer(lake.settings)
        assert all([ref.name for ref in list_refs(committer, table.name)] == ["cut"] for table in TABLES)
    killed = forks.call("--lake", directory, "untag", "cut", "--by", "ann", fault=f"{point}:{at}")
    assert killed.code == -signal.SIGKILL, killed
    again = forks.call("--lake", directory, "untag", "cut", "--by", "ann")
    assert again.code == 0, again
    with lakes.open(directory) as lake:
        assert lake.history.tags() == []
        assert not any(list_refs(Committer(lake.settings), table.name) for table in TABLES)


def test_a_pin_ends_and_a_hold_is_lifted_by_its_owner_alone(directory: Path) -> None:
    with lakes.open(directory) as lake:
        lake.history.tag("trained", by="ann", until=clock.utc_now() + timedelta(days=30))
        lake.history.tag("case-7", by="law", hold=True)
        kinds = {tag["name"]: (tag["kind"], tag["ended"]) for tag in lake.history.tags()}
        assert kinds == {"trained": ("pin", False), "case-7": ("hold", False)}
        with pytest.raises(Conflict, match="hold of law, who alone may lift it: --by law"):
            lake.history.untag("case-7", by="ann")
        lake.history.untag("case-7", by="law")
        lake.history.tag("case-8", by="law", hold=True)
        later = datetime.now(UTC) + timedelta(days=31)
        with Lake(Components(lake.settings, lambda: later)) as then:
            assert {tag["name"]: tag["ended"] for tag in then.history.tags()} == {"trained": True, "case-8": False}
            with pytest.raises(NotFound, match=r"The pin trained ended on .* There is still case-8"):
                then.sql(TEXTS, as_of="trained")


def test_what_cannot_be_is_refused_and_nothing_is_changed(directory: Path) -> None:
    with lakes.open(directory) as lake:
        lake.history.tag("known", by="ann")
        for name in ("4711", "2026-03-01", "main", "backup-x", " a", "", "a\nb", "x" * 201):
            with pytest.raises(InvalidRequest):
                lake.history.tag(name, by="ann")
        with pytest.raises(Conflict, match="There is a tag known already"):
            lake.history.tag("known", by="ann")
        with pytest.raises(InvalidRequest, match="is over"):
            lake.history.tag("late", by="ann", until="2001-01-01")
        with pytest.raises(InvalidRequest, match="A hold has no end"):
            lake.history.tag("both", by="ann", until=clock.utc_now() + timedelta(days=1), hold=True)
        with pytest.raises(NotFound, match=r"There is no tag other of the lake\. There is known"):
            lake.history.untag("other", by="ann")
        plan = lake.history.plan_tag("planned", by="ann")
        assert len(plan.steps) == len(TABLES) + 1
        assert [tag["name"] for tag in lake.history.tags()] == ["known"]
        assert all(ref.name == "known" for ref in list_refs(Committer(lake.settings), QUARANTINE.name))


def test_the_commands_tell_snapshots_and_tags(call: Any, directory: Path) -> None:
    told = call("--lake", str(directory), "tag", "first", "--by", "ann", "--note", "a start")
    assert told.code == 0 and "first" in told.out and "a start" in told.out
    assert "Nothing was changed." in call("--lake", str(directory), "tag", "x", "--by", "ann", "--dry-run").out
    assert "first  tag of ann" in call("--lake", str(directory), "tags").out
    shown = call("--lake", str(directory), "snapshots", "messages")
    assert "+1 rows, 1 in all" in shown.out and "first main" in shown.out
    assert call("--lake", str(directory), "snapshots", "nothing").code == 3
    assert "first would go" in call("--lake", str(directory), "untag", "first", "--dry-run").out
    assert "first is gone" in call("--lake", str(directory), "untag", "first").out
    assert "No tag yet" in call("--lake", str(directory), "tags").out
