"""A mistake can be corrected: an event stands in the place of another one, and what was made of that one is gone."""

import hashlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rounds
import zombies
from calling import Answer, answer
from hypothesis import given
from hypothesis import strategies as st
from lakes import parts_of

from headwater import lake as lakes
from headwater.domain.line import read_line
from headwater.domain.tables import EMBEDDINGS, METADATA, QUARANTINE, TEXT_TABLES
from headwater.errors import Unavailable
from headwater.flow.corrections import BatchLine, Claimed, Corrected
from headwater.flow.derive.corrected import Corrections
from headwater.lake import Lake

Calling = Callable[..., Answer]
CALL = "audio/acme/2026-03-01/call.wav"
MESSAGE = {"event_id": "m-1", "customer": "acme", "occurred_at": "2026-03-01T00:00:00Z", "text": "a wrong word"}
_DRIVE = "import sys, headwater.lake as lakes; lake = lakes.open(sys.argv[1]); lake.run(); lake.close()"


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Calling:
    return partial(answer, capsys)


def send(lake: Lake, *events: Mapping[str, Any]) -> None:
    parts_of(lake).log.publish_raw([json.dumps(event) for event in events])  # type: ignore[attr-defined]


def announced_call(lake: Lake, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """A recording that is in the store, as an event that may be wrong about it."""
    folder = tmp_path / "media" / "round-1"
    data = (
        (folder if folder.exists() else rounds.make_media(tmp_path / "media", 1)).joinpath("call-1-0.wav").read_bytes()
    )
    if parts_of(lake).raw_store.head(CALL) is None:
        parts_of(lake).raw_store.put_stream(CALL, io.BytesIO(data), "audio/wav")
    place = {"path": CALL, "size": len(data), "checksum": hashlib.sha256(data).hexdigest()}
    about = {"event_id": "c-1", "customer": "acme", "modality": "audio", "occurred_at": "2026-03-01T00:00:00Z"}
    pointer = {**place, **{name: changes.pop(name) for name in (*place, "content_type") if name in changes}}
    return {**about, "pointer": pointer, **changes}


def rows_of(lake: Lake, *names: str) -> list[dict[str, Any]]:
    """Of every table of silver, by event and object."""
    found = []
    for table in (METADATA, *TEXT_TABLES, EMBEDDINGS, QUARANTINE):
        rows = lake.sql(f"SELECT event_id, object_id FROM all_models.{table.short_name}")["rows"]
        found += [{"table": table.short_name, **row} for row in rows]
    return [row for row in found if not names or row["table"] in names]


def made_of(lake: Lake) -> set[str]:
    return {row["event_id"] for row in rows_of(lake)}


def marks(lake: Lake) -> dict[str, bool]:
    rows = lake.sql("SELECT event_id, first_of_object FROM bronze.events")["rows"]
    return {row["event_id"]: row["first_of_object"] for row in rows}


def test_a_wrong_checksum_no_longer_bars_the_path(lake: Lake, tmp_path: Path, call: Calling) -> None:
    send(lake, announced_call(lake, tmp_path, checksum="ab" * 32))
    lake.run()
    assert [row["event_id"] for row in rows_of(lake, "quarantine")] == ["c-1"] and made_of(lake) == {"c-1"}
    send(lake, announced_call(lake, tmp_path, event_id="c-2", corrects="c-1"))
    assert lake.run().done["corrected"] == 1
    assert made_of(lake) == {"c-2"} and rows_of(lake, "quarantine") == [] and len(rows_of(lake, "transcripts")) == 1
    assert [hit.entry.object_id for hit in lake.search("loudness").hits] == [CALL]
    assert marks(lake) == {"c-1": False, "c-2": True}
    told = lake.trace("c-1")["event"]
    assert (told["event_id"], told["corrected_by"], told["corrected"]) == ("c-1", "c-2", [])
    told = lake.trace(CALL)["event"]
    assert (told["event_id"], told["corrects"], told["corrected"], told["corrected_by"]) == (
        "c-2",
        "c-1",
        ["c-1"],
        None,
    )
    assert "corrected by c-2" in call("--lake", tmp_path / "lake", "trace", "c-1").out
    # Who announces the object once more says the same as the correction, or contradicts it.
    send(lake, announced_call(lake, tmp_path, event_id="c-3"))
    send(lake, announced_call(lake, tmp_path, event_id="c-4", checksum="ab" * 32))
    send(lake, announced_call(lake, tmp_path, event_id="c-2", corrects="c-1"))
    lake.run()
    assert marks(lake) == {"c-1": False, "c-2": True, "c-3": False}
    assert lake.quarantine()["rows"][0]["event_id"] == "c-4"
    assert lake.status()["raw"]["objects"] == 1 and lake.status()["duplicates"] == 1


def test_what_was_derived_of_the_wrong_event_is_gone_from_every_table_and_from_the_index(lake: Lake) -> None:
    send(lake, MESSAGE, {**MESSAGE, "event_id": "m-9", "text": "another matter"})
    lake.run()
    assert lake.search("wrong").hits and made_of(lake) == {"m-1", "m-9"}
    send(
        lake, {**MESSAGE, "event_id": "m-2", "corrects": "m-1", "text": "the right word", "occurred_at": 1_772_500_000}
    )
    lake.run()
    assert made_of(lake) == {"m-2", "m-9"}
    assert [hit.entry.text for hit in lake.search("word").hits] == ["the right word"]
    assert parts_of(lake).index.count() == 2
    # A correction may be corrected, and any event about the object may be named.
    send(lake, {**MESSAGE, "event_id": "m-3", "corrects": "m-1", "text": "the last word"})
    lake.run()
    assert {row["event_id"] for row in rows_of(lake, "messages")} == {"m-9", "m-3"} == made_of(lake)
    assert marks(lake) == {"m-1": False, "m-2": False, "m-3": True, "m-9": True}
    assert lake.trace("m-2")["event"]["corrected_by"] == "m-3"
    assert sorted(lake.trace("m-3")["event"]["corrected"]) == ["m-1", "m-2"]
    assert lake.sql("SELECT text FROM messages ORDER BY text")["rows"] == [
        {"text": "another matter"}, {"text": "the last word"},
    ]  # fmt: skip


def test_a_correction_in_one_batch_with_what_it_corrects_leaves_the_right_one_alone(lake: Lake) -> None:
    right = {**MESSAGE, "event_id": "a-2", "corrects": "m-1", "text": "the right word"}
    send(lake, MESSAGE, {**right, "event_id": "z-2", "text": "a worse word"}, right, MESSAGE)
    lake.run()
    assert made_of(lake) == {"a-2"} and marks(lake) == {"m-1": False, "z-2": False, "a-2": True}
    assert lake.status()["duplicates"] == 1


def test_a_correction_that_comes_first_stays_and_what_it_corrects_comes_second(lake: Lake, tmp_path: Path) -> None:
    send(lake, announced_call(lake, tmp_path, event_id="c-2", corrects="c-1"))
    lake.run()
    send(lake, announced_call(lake, tmp_path, content_type="audio/mpeg"))
    lake.run()
    assert marks(lake) == {"c-1": False, "c-2": True} and made_of(lake) == {"c-2"}
    send(lake, announced_call(lake, tmp_path, event_id="c-0", checksum="ab" * 32))
    lake.run()
    assert [row["reason"] for row in lake.quarantine()["rows"]] == ["CONFLICT"]


def test_nobody_corrects_what_is_not_theirs_or_not_there(lake: Lake, tmp_path: Path) -> None:
    send(lake, MESSAGE, announced_call(lake, tmp_path))
    lake.run()
    pointed = {"path": "chat/acme/m-1", "size": 4, "checksum": hashlib.sha256(b"mine").hexdigest()}
    send(
        lake,
        {**MESSAGE, "event_id": "x-1", "customer": "thief", "corrects": "m-1", "text": "mine"},
        {**MESSAGE, "event_id": "x-2", "customer": "thief", "modality": "chat", "pointer": pointed, "corrects": "m-1"},
        announced_call(lake, tmp_path, event_id="x-3", corrects="m-1"),
        announced_call(lake, tmp_path, event_id="x-4", corrects="nobody"),
        {**MESSAGE, "event_id": "x-5", "corrects": "x-5"},
    )
    lake.run()
    told = {row["event_id"]: (row["reason"], row["detail"].split(":")[0]) for row in lake.quarantine()["rows"]}
    assert told == {
        "x-2": ("WRONG_CUSTOMER", "pointer.path"), "x-3": ("CONFLICT", "corrects"), "x-4": ("CONFLICT", "corrects"),
        "x-5": ("BAD_EVENT", "corrects"),
    }  # fmt: skip
    # The id of the thief's own message m-1, which nobody has seen.
    assert marks(lake) == {"m-1": True, "c-1": True, "x-1": True}
    assert lake.trace("m-1", customer="acme")["event"]["corrected_by"] is None


KILLS = (
    "bronze.published",
    "corrected.removed",
    *(
        pytest.param(kill, marks=pytest.mark.soak)
        for kill in ("corrected.found", "corrected.unindexed", "corrected.marked", "derive.published:2")
    ),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kill", KILLS)
def test_killed_anywhere_a_correction_comes_to_the_same(lake: Lake, tmp_path: Path, kill: str) -> None:
    send(lake, MESSAGE, announced_call(lake, tmp_path, checksum="ab" * 32))
    lake.run()
    send(lake, {**MESSAGE, "event_id": "m-2", "corrects": "m-1", "text": "the right word"})
    send(lake, announced_call(lake, tmp_path, event_id="c-2", corrects="c-1"))
    line = [sys.executable, "-c", _DRIVE, str(tmp_path / "lake")]
    assert subprocess.run(line, env={**os.environ, "HEADWATER_FAULT": kill}, check=False).returncode == -9
    lake.run()
    assert made_of(lake) == {"m-2", "c-2"} and rows_of(lake, "quarantine") == []
    assert sorted(row["table"] for row in rows_of(lake) if row["event_id"] == "m-2") == ["embeddings", "messages"]
    made = ["embeddings", "metadata", "transcripts"]
    assert sorted(row["table"] for row in rows_of(lake) if row["event_id"] == "c-2") == made
    assert parts_of(lake).index.count() == 2
    assert [hit.entry.text for hit in lake.search("word").hits] == ["the right word"]
    send(lake, announced_call(lake, tmp_path, event_id="c-3"))
    lake.run()
    assert marks(lake)["c-3"] is False and lake.quarantine()["rows"] == []


@pytest.mark.timeout(600)
def test_who_slept_while_another_settled_a_correction_takes_nothing_of_the_right_event(lake: Lake) -> None:
    send(lake, MESSAGE)
    lake.run()
    send(lake, {**MESSAGE, "event_id": "m-2", "corrects": "m-1", "text": "the right word"})
    zombie = zombies.freeze(lake, "corrected.found")
    try:
        zombies.let_the_lease_run_out(lake)
        lake.run()
        errors = zombies.wake(zombie)
    finally:
        zombie.kill()
        zombie.wait()
    assert zombie.returncode == 4, errors
    assert [hit.entry.text for hit in lake.search("word").hits] == ["the right word"]
    assert made_of(lake) == {"m-2"} and marks(lake) == {"m-1": False, "m-2": True}


def test_the_whole_log_again_in_another_lake_comes_to_the_same(lake: Lake, tmp_path: Path) -> None:
    sent = [
        MESSAGE,
        {**MESSAGE, "event_id": "m-2", "corrects": "m-1", "text": "the right word"},
        {**MESSAGE, "event_id": "m-3", "corrects": "m-2", "text": "not of m-1"},
        {**MESSAGE, "event_id": "m-4", "corrects": "m-1", "text": "the last word"},
    ]
    for event in sent:
        send(lake, event)
        lake.run()
    rounds.use_cheap_models(tmp_path / "again")
    with lakes.init(tmp_path / "again") as again:
        send(again, *sent)
        again.run()
        told = "SELECT event_id, object_id, text FROM messages"
        assert again.sql(told)["rows"] == lake.sql(told)["rows"]
        assert {row["reason"] for row in again.quarantine()["rows"]} == {"CONFLICT"}
        ids = "SELECT event_id FROM bronze.events ORDER BY event_id"
        assert again.sql(ids)["rows"] == lake.sql(ids)["rows"]


def test_where_the_index_is_down_a_correction_waits_and_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    send(lake, MESSAGE)
    lake.run()
    send(lake, {**MESSAGE, "event_id": "m-2", "corrects": "m-1", "text": "the right word"})
    index = type(parts_of(lake).index)

    def is_down(*_: object) -> None:
        raise Unavailable("The index does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(index, "delete", is_down)
        with pytest.raises(Unavailable, match="does not answer"):
            lake.run()
    assert made_of(lake) == {"m-1"}
    lake.run()
    assert made_of(lake) == {"m-2"}


def test_what_was_begun_before_a_correction_is_not_published_after_it() -> None:
    """As a straggler may be, of which nothing is in quarantine any more."""
    made = pa.table({"object_id": ["p", "p", "q"], "event_id": ["old", "new", "other"]})
    corrections = Corrections(None, None, None, nullcontext, _counts={"p": "new"})  # type: ignore[arg-type]
    with corrections.publishing(made) as left:
        assert left.to_pydict() == {"object_id": ["p", "q"], "event_id": ["new", "other"]}  # type: ignore[union-attr]


def test_a_message_that_corrects_another_is_about_its_object_and_both_are_content() -> None:
    first = read_line(json.dumps(MESSAGE).encode())
    second = read_line(json.dumps({**MESSAGE, "event_id": "m-2", "corrects": "m-1"}).encode())
    assert (second.sound, second.corrects, second.path) == (True, "m-1", first.path)
    plain = read_line(json.dumps({**MESSAGE, "event_id": "m-2"}).encode())
    assert plain.path != second.path and plain.content_hash != second.content_hash


@dataclass
class Lakelet:
    """What bronze and the ledger know, as far as corrections go."""

    claims: dict[str, tuple[str, tuple[int, int]]] = field(default_factory=dict)
    about: dict[tuple[str, str], str] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    counting: dict[str, str] = field(default_factory=dict)

    def take(self, lines: Sequence[BatchLine]) -> None:
        corrected = {line.object_id for line in lines if line.corrects is not None}
        lines = [line._replace(judged=line.object_id in corrected) for line in lines]
        plain = {line.position: self.claim(line) for line in lines if not line.judged}
        lies = {position for position, claimed in plain.items() if claimed == "lie"}
        echoes = {position for position, claimed in plain.items() if claimed == "echo"}
        made = Corrected([line for line in lines if line.position not in lies], self.claim, self.read)
        refused = lies | made.lies | made.not_seen | made.elsewhere
        for line in lines:
            if line.position not in refused:
                self.accepted.add(line.event_id)
                self.about[line.customer, line.event_id] = line.object_id
                if line.position not in echoes | made.echoes:
                    self.counting[line.object_id] = line.event_id
                    if line.corrects is not None:  # as `settle_claims` does after the commit
                        self.claims[line.object_id] = (line.checksum, self.claims[line.object_id][1])

    def claim(self, line: BatchLine) -> Claimed:
        content, position = self.claims.setdefault(line.object_id, (line.checksum, line.position))
        return "lie" if content != line.checksum else "first" if position == line.position else "echo"

    def read(self, named: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        return {name: self.about[name] for name in named if name in self.about}


LINES = st.lists(
    st.tuples(st.sampled_from("pq"), st.none() | st.integers(0, 7).map(str), st.sampled_from("xy")), max_size=8
)


@given(lines=LINES, cuts=st.sets(st.integers(1, 7)))
def test_however_the_log_is_cut_into_batches_its_lines_come_to_the_same(
    lines: list[tuple[str, str | None, str]], cuts: set[int]
) -> None:
    made = [
        BatchLine((0, number), "acme", str(number), object_id, corrects, checksum, judged=False)
        for number, (object_id, corrects, checksum) in enumerate(lines)
        if corrects != str(number)
    ]
    one_by_one, batched = Lakelet(), Lakelet()
    for line in made:
        one_by_one.take([line])
    bounds = [0, *sorted(cut for cut in cuts if cut < len(made)), len(made)]
    for begin, end in itertools.pairwise(bounds):
        batched.take(made[begin:end])
    assert batched == one_by_one
