"""Pages are drawn whatever state the lake is in, and say what a person can do."""

from pathlib import Path

import pytest
from lakes import parts_of, small_lake
from served import client_of

import headwater
from headwater.clock import utc_now

PAGE = {"Accept": "text/html"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return small_lake(tmp_path / "lake")


def test_runs_that_are_at_work_were_killed_or_failed_are_drawn(directory: Path) -> None:
    with headwater.open(directory) as lake:
        ledger = parts_of(lake).ledger
        ledger.start_run("run", utc_now())
        ledger.finish_run(ledger.start_run("run", utc_now()), "failed", utc_now(), {"error": "NotFound: gone <b>"})
        told = {"done": {"bronze": 3}, "models": {"embed/print": {"model": "static", "calls": 2}}}
        ledger.finish_run(ledger.start_run("maintain", utc_now()), "done", utc_now(), told)
    with client_of(directory) as client:
        for path in ("/", "/runs"):
            drawn = client.get(path, headers=PAGE)
            assert drawn.status_code == 200, drawn.text
            assert "at work, or killed" in drawn.text and "failed" in drawn.text
        assert "bronze 3" in drawn.text and "NotFound: gone &lt;b&gt;" in drawn.text


def test_what_was_dismissed_is_told_with_the_way_back(directory: Path) -> None:
    with headwater.open(directory) as lake:
        lake.quarantine.dismiss("e3", because="it is cut", by="ann")
    with client_of(directory) as client:
        drawn = client.get("/quarantine", headers=PAGE).text
        assert "1 dismissed" in drawn and "it is cut" in drawn and "--undo" in drawn


def test_an_upload_is_refused_without_a_word_of_where_it_lay(directory: Path) -> None:
    with client_of(directory) as client:
        sent = {"files": ("rows.csv", b"a,b\n")}
        (result,) = client.post("/api/v1/objects", data={"customer": "acme"}, files=sent).json()["results"]
        assert result["status"] == "failed" and "put --from rows.csv" in result["error"]["message"]
        assert "headwater-upload" not in str(result)
