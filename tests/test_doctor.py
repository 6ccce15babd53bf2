"""`headwater doctor`: one line for each thing that a lake needs, with the next move; it changes nothing."""

import shutil
from pathlib import Path

import pytest
from calling import answer

import headwater
from headwater import lake as lakes


def states(directory: Path, **options: str) -> dict[str, str]:
    found = headwater.doctor(directory, {name.replace("__", "."): value for name, value in options.items()})
    return {finding.about: finding.state for finding in found}


def tables(directory: Path) -> list[str]:
    return sorted(map(str, (directory / "warehouse").rglob("*")))


def test_a_lake_that_is_well_has_nothing_bad_and_is_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lakes.init(tmp_path).close()
    before = tables(tmp_path)
    told = answer(capsys, "--lake", tmp_path, "doctor", "--json")
    findings = {finding["about"]: finding for finding in told.json["findings"]}
    assert {"java", "disk", "sync", "clock", "loopback", "ledger", "catalog", "raw", "log", "index"} <= findings.keys()
    assert findings["model of transcribe"]["state"] == "ok"
    assert told.json["well"] and told.code == 0
    assert tables(tmp_path) == before
    assert "ok   java" in answer(capsys, "--lake", tmp_path, "doctor").out


def test_what_is_wrong_is_a_line_with_the_next_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lakes.init(tmp_path).close()
    shutil.rmtree(tmp_path / "raw", ignore_errors=True)
    (tmp_path / "catalog.db").unlink()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("HEADWATER_RUN_TRIGER_SECONDS", "1")
    found = states(tmp_path, models__transcribe="nowhere:Model")
    assert {found[about] for about in ("java", "catalog", "model of transcribe")} == {"bad"}
    assert found["variables"] == "warn"
    told = answer(capsys, "--lake", tmp_path, "doctor")
    assert told.code == 5 and "Headwater needs Java 17" in told.out
