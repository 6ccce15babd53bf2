"""The published schema of events: the docs have it, our own events are of it, and what it takes bronze takes."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from calling import Answer, answer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from lakes import parts_of

import headwater
from headwater.domain.event_schema import event_schema
from headwater.domain.line import read_line
from headwater.errors import InvalidRequest, NotFound
from headwater.flow.land_text import text_event

Calling = Callable[..., Answer]
PAGE = (Path(__file__).parent.parent / "docs" / "events.md").read_text(encoding="utf-8")
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
SCHEMA = Draft202012Validator(event_schema())
PLACE = {"path": "audio/c/2026-03-01/a.wav", "size": 5, "checksum": "a" * 64}
CALL: dict[str, Any] = {
    "event_id": "e", "modality": "audio", "customer": "c", "occurred_at": "2026-03-01T00:00:00Z", "pointer": PLACE,
}  # fmt: skip
MESSAGE = {"event_id": "e", "customer": "c", "occurred_at": "2026-03-01T00:00:00Z", "text": "hello"}
# What JSON Schema cannot say, in the words of its description.
BESIDES = ("pointer.path", "meta", "corrects", "line")

WORDS = st.none() | st.text(max_size=300) | st.sampled_from(["x" * 1024, "é" * 300, "nul\0", "a\n", ""])
LEAVES = WORDS | st.booleans() | st.integers() | st.sampled_from([2**63, 2**63 - 1, -1, 0.5])
TIMES = st.sampled_from(
    ["2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2026-02-30", "2026-04-31", "2026-03-01T24:00", "soon",
     "2026-03-01T09:30Z", "2026-03-01T09:30:00.123456789+05:30", "2026-03-01\n", "0001-01-01", "9999-12-31T23:59-01:00",
     0, 253_370_764_800, 253_370_764_801, -1, None, 10**20]
) | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)  # fmt: skip
POINTERS = st.none() | LEAVES | st.fixed_dictionaries(
    {}, optional={
        "path": WORDS
        | st.sampled_from(["audio/c/a.wav", "audio/c/..", "audio/c/", "/c/a", "a/c/b\n", "audio/d/a.wav", None]),
        "size": LEAVES, "offset": LEAVES, "etag": LEAVES, "content_type": WORDS, "version_id": WORDS,
        "checksum": st.sampled_from(["a" * 64, "a" * 63, "A" * 64, "a" * 64 + "\n", None, 5]),
    }
).map(lambda given: {**PLACE, **given})  # fmt: skip
CHANGES = st.fixed_dictionaries(
    {}, optional={
        "event_id": WORDS, "customer": WORDS, "thread": LEAVES, "occurred_at": TIMES,
        "corrects": LEAVES | st.just("e"), "text": LEAVES,
        "modality": st.sampled_from(["chat", "audio", "image", "fax", None, 5]), "pointer": POINTERS,
        "meta": st.none() | LEAVES | st.dictionaries(st.sampled_from(["k", "", "k" * 101]), LEAVES | st.lists(LEAVES)),
        "of_ours": LEAVES,
    },
)  # fmt: skip


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Calling:
    return partial(answer, capsys)


@unhurried
@given(base=st.sampled_from([CALL, MESSAGE]), change=CHANGES)
def test_what_the_schema_takes_bronze_takes(base: dict[str, Any], change: dict[str, Any]) -> None:
    event = {**base, **change}
    problems = headwater.check_event(event)
    if SCHEMA.is_valid(event):
        assert all(problem.field in BESIDES for problem in problems), problems
        assert read_line(json.dumps(event).encode()).sound == (not problems)
    if not problems:
        assert read_line(json.dumps(event).encode()).sound


FEWER = st.fixed_dictionaries(
    {},
    optional={
        "text": LEAVES,
        "modality": st.sampled_from(["chat", "audio", "fax", None]),
        "pointer": POINTERS,
        "event_id": LEAVES,
    },
)


@unhurried
@given(base=st.sampled_from([CALL, MESSAGE]), change=FEWER)
def test_what_is_no_event_by_its_fields_the_schema_refuses(base: dict[str, Any], change: dict[str, Any]) -> None:
    event = {**base, **change}
    if any(problem.field not in BESIDES for problem in headwater.check_event(event)):
        assert not SCHEMA.is_valid(event)


@unhurried
@given(text=st.text(min_size=1), customer=st.text("abc é", min_size=1, max_size=20))
def test_every_message_that_put_sends_is_of_the_schema(text: str, customer: str) -> None:
    try:
        event = text_event(f"said {text}", customer, "e", datetime(2026, 3, 1, tzinfo=UTC)).to_dict()
    except InvalidRequest:
        return
    assert SCHEMA.is_valid(event) and headwater.check_event(event) == []


def test_a_file_that_put_announces_is_of_the_schema_and_its_bytes_are_found(tmp_path: Path, call: Calling) -> None:
    (tmp_path / "page.pdf").write_bytes(b"%PDF-1.4 not much of one")
    with headwater.init(tmp_path / "lake") as lake:
        (landed,) = lake.put(tmp_path / "page.pdf", customer="ac me")
        assert landed.event is not None
        event = landed.event.to_dict()
        assert SCHEMA.is_valid(event) and lake.upkeep.check_event(event) == []
        pointer = event["pointer"]
        wrong: dict[str, dict[str, Any]] = {
            "pointer.path": {"path": pointer["path"] + "x"},
            "pointer.size": {"size": pointer["size"] + 1},
            "pointer.checksum": {"checksum": "ab" * 32},
        }
        for field, change in wrong.items():
            told = {**event, "pointer": {**pointer, **change}}
            assert headwater.check_event(told) == []
            assert [problem.field for problem in lake.upkeep.check_event(told)] == [field]
        line = json.dumps(told).encode()
        (tmp_path / "events.jsonl").write_bytes(line + b"\n")
        done = call("--lake", tmp_path / "lake", "check-event", tmp_path / "events.jsonl", "--against-store", "--json")
        assert (done.code, done.json["faulty"][0]["problems"][0]["field"]) == (6, "pointer.checksum")
        assert parts_of(lake).raw_store.head(pointer["path"]) is not None


def test_the_docs_have_the_schema_and_their_examples_are_events() -> None:
    *examples, last = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    assert last == event_schema()
    Draft202012Validator.check_schema(last)
    assert len(examples) >= 3
    for example in examples:
        assert SCHEMA.is_valid(example) and headwater.check_event(example) == []


def test_the_command_prints_the_schema_and_knows_its_versions(call: Calling) -> None:
    assert call("schema").json == call("schema", "--version", "1", "--json").json == event_schema()
    assert call("schema", "--version", "9").code == NotFound.exit_code
    with pytest.raises(NotFound, match="Take version 1"):
        headwater.event_schema(9)


def test_a_producer_is_told_every_problem_of_every_line_by_its_field(tmp_path: Path, call: Calling) -> None:
    bad = {**CALL, "pointer": {**PLACE, "checksum": "a" * 63}, "customer": 5}
    lines = [json.dumps(MESSAGE).encode(), b"", json.dumps(bad).encode(), b"{", b'{"text": "caf\xe9"}']
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines))
    done = call("check-event", tmp_path / "events.jsonl", "--json")
    assert (done.code, done.json["checked"], done.json["sound"]) == (6, 4, 1)
    told = {found["line"]: [problem["field"] for problem in found["problems"]] for found in done.json["faulty"]}
    assert told == {3: ["customer", "pointer.checksum"], 4: ["line"], 5: ["line"]}
    assert "line 3" in call("check-event", tmp_path / "events.jsonl").out
    assert call("check-event", tmp_path / "gone.jsonl").code == 3


def test_an_event_from_python_need_not_be_text() -> None:
    assert headwater.check_event(MESSAGE) == headwater.check_event(json.dumps(MESSAGE)) == []
    assert [problem.field for problem in headwater.check_event({"event_id": {1, 2}})] == ["line"]
    assert [str(problem) for problem in headwater.check_event({**MESSAGE, "text": "\ud800"})] == [
        "line: holds half a character, \\ud800, which UTF-8 cannot spell"
    ]


def test_a_producer_is_told_of_half_a_character_that_bronze_would_replace() -> None:
    line = json.dumps({**MESSAGE, "text": "x\ud83dy"})
    assert [str(problem) for problem in headwater.check_event(line)] == [
        "line: holds half a character, \\ud83d, in whose place ? would be kept"
    ]


def test_what_is_sent_beside_is_of_the_schema_and_a_size_that_is_missing_is_told() -> None:
    beside = {**CALL, "shift": "night", "pointer": {**PLACE, "bucket": "calls"}}
    assert SCHEMA.is_valid(beside) and headwater.check_event(beside) == []
    sizeless = {**CALL, "pointer": {name: value for name, value in PLACE.items() if name != "size"}}
    assert not SCHEMA.is_valid(sizeless)
    assert [str(problem) for problem in headwater.check_event(sizeless)] == [
        "pointer.size: missing, needs the number of the object's bytes, as the store that took them says"
    ]
