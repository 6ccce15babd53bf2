"""Who may write for which customer: what breaks the rule is set aside with the rule's name, nothing comes of it, and a
retry takes it once the rule allows it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import rounds
from calling import answer
from lakes import parts_of

import headwater
from headwater import lake as lakes
from headwater.domain.line import read_line
from headwater.domain.producers import Rules, hashed, refused_producer
from headwater.errors import InvalidRequest
from headwater.lake import Lake
from headwater.settings import FILE_NAME, load, resolve

TOKEN = hashed("s3cret of the call centre")
RULES = f"""
[producers.calls]
customers = ["acme", "beta-*"]
token_sha256 = ["{TOKEN}"]

[producers.portal]
customers = ["globex"]
"""


def line(number: int, customer: str, **more: object) -> str:
    fields = {"event_id": f"e{number}", "customer": customer, "occurred_at": "2026-03-01T09:30:00Z"}
    return json.dumps({**fields, "text": f"line {number}", **more})


def rules(text: str = RULES, tmp: Path = Path("/lake")) -> Rules:
    return Rules.of(resolve(tmp, tomllib.loads(text), {}, {}))


def set_rules(lake: Path, text: str) -> None:
    file = lake / FILE_NAME
    file.write_text(file.read_text().partition("\n[producers")[0] + text)


@pytest.fixture
def directory(engine: None, tmp_path: Path) -> Path:
    made = tmp_path / "lake"
    rounds.use_cheap_models(made)
    lakes.init(made).close()
    set_rules(made, RULES)
    return made


def publish(lake: Lake, *lines: str) -> None:
    parts_of(lake).log.publish_raw(list(lines))  # type: ignore[attr-defined]


def held(lake: Lake) -> list[tuple[str, str]]:
    return sorted((row["event_id"], row["reason"]) for row in lake.quarantine()["rows"])


def texts(lake: Lake) -> list[str]:
    return sorted(lake.table("messages").to_arrow()["text"].to_pylist())


def test_a_producer_is_known_by_its_token_else_by_a_word_that_none_with_a_token_can_be_taken_for() -> None:
    of, named = rules().producer_of, b'{"producer": "%s"}'
    assert of(b"{}", TOKEN) == "calls" and of(named % b"portal", TOKEN) == "calls"
    assert of(named % b"portal", None) == "portal" and of(named % b"portal", hashed("another")) == "portal"
    assert of(named % b"calls", None) == "*", "who has a token must show it"
    assert of(b'{"producer": ["portal"]}', None) == of(b"{}", None) == of(named % b"stranger", None) == "*"


def test_a_rule_names_customers_a_star_is_any_letters_and_nothing_else_is_a_pattern() -> None:
    found = rules('[producers.a]\ncustomers = ["x.y", "beta-*", "[z]"]\n[producers."*"]\ncustomers = "open"')
    allowed = [
        name for name in ("x.y", "xzy", "beta-", "beta-\n1", "Beta-1", "[z]", "z") if not found.problem("a", name)
    ]
    assert allowed == ["x.y", "beta-", "beta-\n1", "[z]"]
    assert not found.problem("*", "open") and found.problem("*", "x.y")
    assert str(found.problem("a", "z")) == 'producer: a may not write for "z": [producers.a] has x.y, beta-*, [z]'
    nobody = rules().problem("*", "acme")
    assert str(nobody) == 'producer: nobody may not write for "acme": [producers."*"] is not there'
    assert refused_producer(str(nobody)) == "*" and refused_producer(str(found.problem("a", "z"))) == "a"
    assert not Rules({}).problem("*", "anybody's")


def test_a_line_that_is_no_event_is_told_so_before_any_rule_is_asked() -> None:
    assert rules().judged(read_line(b"{"), b"{", None).reason == "BAD_EVENT"
    long = line(1, "acme", text="word " * 5_000).encode()
    judged = rules().judged(read_line(long), long, None)
    assert (judged.sound, judged.reason, judged.payload) == (False, "FORBIDDEN", long.decode())
    longer = line(1, "acme", text="word " * 50_000).encode()
    assert longer.decode().startswith(kept := rules().judged(read_line(longer), longer, None).payload or "") and kept
    assert len(kept) == 64_000


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("[producers]\ncustomers = ['a']", "stands in a section"),
        ("[producers.a]\ncustomer = ['a']", "has customer; it may have customers and token_sha256"),
        ("[producers.a]", "must say for whom"),
        ("[producers.a]\ncustomers = [1]", "must be a list of texts"),
        ("[producers.a]\ncustomers = []\ntoken_sha256 = 'abc'", "no token itself"),
        ("[producers.nobody]\ncustomers = []", "needs a name"),
        ("[producers.'a b']\ncustomers = []", "needs a name"),
        (f"[producers.'*']\ncustomers = []\ntoken_sha256 = '{TOKEN}'", "whoever has no token"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_its_section(section: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        rules(section)


def test_without_a_rule_all_is_as_ever(directory: Path) -> None:
    set_rules(directory, "")
    with headwater.open(directory) as lake:
        publish(lake, line(1, "acme"), line(2, "globex", producer="whoever"))
        lake.run()
        assert texts(lake) == ["line 1", "line 2"] and held(lake) == []


@pytest.mark.parametrize("long", [False, True])
def test_what_breaks_a_rule_waits_in_quarantine_and_is_taken_by_a_retry_once_the_rule_allows_it(
    directory: Path, long: bool
) -> None:
    padding = {"meta": {"pad": ["x" * 1_000] * 12}} if long else {}
    with headwater.open(directory) as lake:
        publish(lake, line(1, "globex", producer="portal"), line(2, "acme", producer="portal", **padding))
        publish(lake, line(2, "acme", producer="portal", **padding), line(3, "beta-7", **padding), "no event")
        assert lake.run().done["bronze"] == 1
        assert texts(lake) == ["line 1"]
        assert held(lake)[:3] == [("e2", "FORBIDDEN"), ("e2", "FORBIDDEN"), ("e3", "FORBIDDEN")]
        details = [row["detail"] for row in lake.quarantine("FORBIDDEN")["rows"]]
        assert any('portal may not write for "acme": [producers.portal] has globex (log' in each for each in details)
        assert (lake.retry().tried, len(held(lake)), texts(lake)) == (3, 4, ["line 1"]), "the rule is what it was"

    set_rules(directory, RULES.replace('"globex"', '"globex", "acme"'))
    with headwater.open(directory) as lake:
        retried = lake.retry()
        assert (retried.tried, retried.recovered, retried.still_quarantined) == (3, 2, 1)
        assert texts(lake) == ["line 1", "line 2"] and held(lake)[0] == ("e3", "FORBIDDEN")
        assert lake.status()["duplicates"] == 1, "sent twice, it is one event"
        assert lake.pending().bronze == 0 and lake.run().started is False
        publish(lake, line(2, "acme", producer="portal", **padding), line(2, "acme", producer="portal", text="other"))
        lake.run()
        assert ("e2", "CONFLICT") in held(lake) and texts(lake) == ["line 1", "line 2"]
        rounds.check_raw_is_counted(lake)


def test_a_line_too_long_to_be_kept_is_taken_from_the_log_while_that_has_it(directory: Path) -> None:
    text = "word " * 20_000
    with headwater.open(directory) as lake:
        publish(lake, line(1, "acme", text=text), line(2, "acme", text=text))
        lake.run()
    set_rules(directory, "")
    with headwater.open(directory) as lake:
        assert lake.retry().recovered == 2 and texts(lake) == [text, text]
    set_rules(directory, RULES)
    with headwater.open(directory) as lake:
        publish(lake, line(3, "acme", text=text), line(4, "acme"))
        lake.run()
    shutil.rmtree(directory / "log")
    set_rules(directory, "")
    with headwater.open(directory) as lake:
        assert (lake.retry().still_quarantined, texts(lake)) == (1, ["line 4", text, text])
        assert held(lake) == [("e3", "FORBIDDEN")]


def test_a_forbidden_line_takes_nobodys_id_and_contradicts_who_came_meanwhile(directory: Path) -> None:
    with headwater.open(directory) as lake:
        publish(lake, line(1, "globex", text="a thief's"), line(1, "globex", producer="portal"))
        lake.run()
        assert texts(lake) == ["line 1"] and held(lake) == [("e1", "FORBIDDEN")]
    set_rules(directory, "")
    with headwater.open(directory) as lake:
        lake.retry("FORBIDDEN")
        assert texts(lake) == ["line 1"] and held(lake) == [("e1", "CONFLICT")]


def test_what_was_let_go_is_not_taken(directory: Path) -> None:
    with headwater.open(directory) as lake:
        publish(lake, line(1, "acme"))
        lake.run()
        lake.quarantine.dismiss("e1", because="a thief", by="Ada")
    set_rules(directory, "")
    with headwater.open(directory) as lake:
        assert lake.retry().tried == 0 and texts(lake) == []


def test_who_puts_by_a_name_is_known_by_it(directory: Path) -> None:
    with headwater.open(directory, {"put.producer": "portal"}) as lake:
        lake.put_text("hello there", customer="globex", id="mine")
        lake.put_text("hello there", customer="acme", id="theirs")
        lake.run()
        assert texts(lake) == ["hello there"] and held(lake) == [("theirs", "FORBIDDEN")]


RETRY = """
import sys
import headwater
with headwater.open(sys.argv[1]) as lake:
    lake.retry()
"""


@pytest.mark.parametrize("point", ["bronze.staged", "bronze.published"])
def test_a_retry_that_is_killed_takes_each_line_once(directory: Path, point: str) -> None:
    with headwater.open(directory) as lake:
        publish(lake, *(line(number, "acme") for number in range(5)))
        lake.run()
    set_rules(directory, "")
    line_of_python, environment = (
        [sys.executable, "-c", RETRY, str(directory)],
        {**os.environ, "HEADWATER_FAULT": point},
    )
    assert subprocess.run(line_of_python, env=environment, check=False).returncode == -signal.SIGKILL
    with headwater.open(directory) as lake:
        lake.retry()
        assert texts(lake) == [f"line {number}" for number in range(5)] and held(lake) == []
        assert sorted(lake.table("events").to_arrow()["seq"].to_pylist()) == list(range(5))


def test_the_settings_show_the_rules_and_no_token(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {each["name"]: each for each in load(directory).shown()}
    assert shown["producers.calls.customers"]["value"] == "acme, beta-*"
    assert shown["producers.calls.token_sha256"]["value"] == TOKEN
    printed = answer(capsys, "--lake", directory, "settings", "--json").json["settings"]
    assert any(each["name"] == "producers.portal.customers" for each in printed)
    told = answer(capsys, "--lake", directory, "doctor", "--json").json["findings"]
    assert [each["state"] for each in told if each["about"] == "producers"] == ["warn", "ok", "warn"]


def test_a_producer_asks_before_it_publishes(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(f"{line(1, 'globex')}\n{line(2, 'acme')}\n{{\n")
    found = answer(capsys, "--lake", directory, "check-event", file, "--producer", "portal", "--json")
    says = [problem["says"] for each in found.json["faulty"] for problem in each["problems"]]
    assert found.code and len(says) == 2 and says[0].startswith('portal may not write for "acme"')
    assert answer(capsys, "--lake", directory, "check-event", file, "--producer", "*").code
    assert (
        "These are there: calls, portal"
        in answer(capsys, "--lake", directory, "check-event", file, "--producer", "me").err
    )
    with headwater.open(directory) as lake:
        assert not lake.upkeep.check_event(json.loads(line(1, "beta-1")), producer="calls", in_store=False)
