"""The demo: the whole flow on real media, what it shows is true, and what it tells to try next works."""

import json
import shlex
from pathlib import Path

import pytest

from headwater.cli.commands import demo
from headwater.cli.main import main
from headwater.domain.tables import TABLES


def test_the_demo_shows_the_whole_flow_and_its_commands_can_be_pasted(
    engine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "demo-lake"
    assert main(["demo", "--lake", str(lake), "--json"]) == 0
    tour = json.loads(capsys.readouterr().out)
    assert len(tour["arrived"]) == 4
    assert set(tour["derived"]) == {table.name for table in TABLES} and all(tour["derived"].values())
    assert len(tour["heard"]) == 6 and all(0 < line["confidence"] <= 1 for line in tour["heard"])
    assert tour["word_error"] <= 0.08, tour["heard"]
    assert len(tour["read"]) == 4
    assert all(screen["read"].split() == screen["truth"].split() for screen in tour["read"])
    assert tour["character_error"] == 0
    assert [len(answer["hits"]) > 0 for answer in tour["searches"]] == [True] * 4
    by_meaning = tour["searches"][3]
    assert "My router loses the connection" in by_meaning["hits"][0]["text"] and not by_meaning["shared"]
    assert tour["trace"]["object"]["exists"] and tour["trace"]["object"]["path"].startswith("audio/")
    assert {row["reason"] for row in tour["quarantine"]["rows"]} == {"TRUNCATED", "UNREADABLE"}
    demo._draw(tour, lake)
    drawn = capsys.readouterr().out
    assert "word error" in drawn and "The file ends too early." in drawn
    tries, _, last = drawn.partition("Try next\n")[2].strip().partition("Look at it\n")
    assert last.endswith(f"--lake {lake} serve --open")
    for line in tries.strip().splitlines():
        assert main(shlex.split(line)[1:]) == 0, line
