"""A file is its name and its bytes: put again, from any folder of it, touched or by two at once, it is one object."""

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from calling import Answer, answer
from lakes import CALL, parts_of, small_lake

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.errors import Conflict
from headwater.flow.known_files import KnownFiles, _identity
from headwater.flow.land import land_many
from headwater.lake import Lake
from headwater.storage.raw.store import KEY_BYTES_MAX

MARCH, APRIL = (datetime(2026, month, 2, 9, tzinfo=UTC).timestamp() for month in (3, 4))
DAY = "2026-03-02"
JAPANESE = "録音した会議の音声を文字に起こしたい時に使う長い名前"


def write(path: Path, data: bytes = b"RIFF", written: float = MARCH) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (written, written))
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "lake")]) == 0
    return tmp_path / "lake"


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    return tmp_path / "inbox"


def put(capsys: pytest.CaptureFixture[str], lake: Path, *what: str | Path) -> Answer:
    return answer(capsys, "put", *what, "--lake", lake, "--customer", "acme", "--json")


def objects(lake: Lake) -> set[str]:
    return {found.path for found in parts_of(lake).raw_store.list()}


def test_a_file_that_was_touched_is_already_there(lake: Path, inbox: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        write(inbox / f"{number}.wav", b"%d" % number)
    assert put(capsys, lake, inbox).json["summary"]["stored"] == 12
    for number in range(12):
        write(inbox / f"{number}.wav", b"%d" % number, APRIL)
    again = put(capsys, lake, inbox).json
    assert again["summary"] == {"stored": 0, "already_there": 12, "failed": 0}
    assert {result["path"] for result in again["results"]} == {f"audio/acme/{DAY}/{n}.wav" for n in range(12)}
    with lakes.open(lake) as opened:
        assert len(objects(opened)) == 12
    write(inbox / "0.wav", b"another recording", APRIL)
    assert put(capsys, lake, inbox).json["summary"] == {"stored": 1, "already_there": 11, "failed": 0}
    told = put(capsys, lake, inbox / "1.wav", "--at", "2026-05-05").json
    assert told["summary"]["stored"] == 1, "a time that is told is another occasion"


def test_files_of_one_name_in_two_folders_are_two_objects(
    lake: Path, inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("march", "april", "april/late"):
        write(inbox / folder / "a.wav", folder.encode())
    told = put(capsys, lake, inbox).json
    assert sorted(result["path"] for result in told["results"]) == [
        f"audio/acme/{DAY}/april/a.wav",
        f"audio/acme/{DAY}/april/late/a.wav",
        f"audio/acme/{DAY}/march/a.wav",
    ]
    assert told["summary"]["failed"] == 0
    assert put(capsys, lake, f"{inbox}/**/a.wav").json["summary"]["already_there"] == 3


@pytest.mark.parametrize(
    "name", ["Zoë und Jürgen.wav", f"{JAPANESE}.wav", "x" * 250 + ".wav", "録" * 83 + ".wav", "Zoe\u0308.wav"]
)
def test_a_name_that_a_file_system_takes_is_taken_and_shown_as_it_was_written(
    lake: Path, inbox: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write(inbox / ("深" * 60) / "Büro" / name, name.encode())
    shown = answer(capsys, "put", inbox, "--lake", lake, "--customer", JAPANESE[:25])
    assert shown.code == 0 and "%" not in shown.out and JAPANESE[:25] in shown.out
    (result,) = answer(capsys, "put", inbox, "--lake", lake, "--customer", JAPANESE[:25], "--json").json["results"]
    assert result["status"] == "already_there" and result["path"].isascii() and result["path"].endswith(".wav")
    assert len(result["path"]) < KEY_BYTES_MAX - 100
    assert max(map(len, result["path"].split("/"))) <= 255


def test_folders_that_are_too_deep_for_a_key_are_told_apart_all_the_same(
    lake: Path, inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for end in ("left", "right"):
        write(inbox.joinpath(*["a folder of many letters"] * 40, end) / "a.wav", end.encode())
    told = put(capsys, lake, inbox).json
    assert told["summary"] == {"stored": 2, "already_there": 0, "failed": 0}
    assert all(len(result["path"]) < KEY_BYTES_MAX - 100 for result in told["results"])


def test_other_content_under_a_known_id_is_told_at_once(
    lake: Path, inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = write(inbox / "a.wav", b"one"), write(inbox / "b.wav", b"two", APRIL)
    assert put(capsys, lake, first, "--id", "call-1").code == 0
    write(first, b"one", APRIL)
    assert put(capsys, lake, first, "--id", "call-1").json["summary"]["already_there"] == 1
    refused = put(capsys, lake, other, "--id", "call-1")
    assert refused.code == Conflict.exit_code
    (error,) = [result["error"]["message"] for result in refused.json["results"]]
    assert "call-1 is the id of another event of acme" in error and "--id" in error
    with lakes.open(lake) as opened:
        assert objects(opened) == {f"audio/acme/{DAY}/call-1.wav"}, "nothing is stored that nobody announces"
        opened.put_text("yes", customer="acme", id="m-1")
        opened.put_text("yes", customer="acme", id="m-1")
        opened.put_text("no", customer="globex", id="m-1")
        with pytest.raises(Conflict, match="m-1 is the id of another event"):
            opened.put_text("no", customer="acme", id="m-1")
        assert opened.pending().bronze == 5


def test_files_of_kinds_that_are_not_taken_are_told_in_one_line(
    lake: Path, inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(33):
        write(inbox / f"{number}{('.xyz', '.XYZ', '')[number % 3]}")
    write(inbox / "call.wav")
    shown = answer(capsys, "put", inbox, "--lake", lake, "--customer", "acme")
    assert shown.code == 2 and "33 files of kinds that are not taken: 22 .xyz, 11 no ending." in shown.out
    assert "--skip-unsupported" in shown.out and len(shown.out.splitlines()) == 3
    skipped = answer(capsys, "put", inbox, "--lake", lake, "--customer", "acme", "--skip-unsupported")
    assert skipped.code == 0 and "1 already there, 33 skipped" in skipped.out
    told = put(capsys, lake, inbox, "--skip-unsupported")
    assert told.code == 0 and told.json["unsupported"] == {".xyz": 22, "no ending": 11}
    with lakes.open(lake) as opened:
        assert Counter(one.status for one in opened.put(inbox, customer="acme", skip_unsupported=True))["skipped"] == 33


_PUT = """
import sys
from headwater import lake as lakes
with lakes.open(sys.argv[1]) as lake:
    for landed in lake.iter_put(sys.argv[2], customer="acme"):
        assert landed.error is None, landed.error
"""


def start_put(lake: Path, inbox: Path, fault: str = "") -> "subprocess.Popen[bytes]":
    line = [sys.executable, "-c", _PUT, str(lake), str(inbox)]
    return subprocess.Popen(line, env={**os.environ, "HEADWATER_FAULT": fault}, stderr=subprocess.PIPE)


def announced(lake: Lake) -> set[tuple[str, str]]:
    lines: list[Any] = [json.loads(line.value) for line in parts_of(lake).log.read(0, 0, 1_000_000)]  # type: ignore[attr-defined]
    return {(line["event_id"], line["pointer"]["path"]) for line in lines}


def test_two_puts_at_once_and_a_killed_one_repeated_store_each_file_once(lake: Path, inbox: Path) -> None:
    for number in range(60):
        write(inbox / f"{number % 3}" / f"{number}.wav", b"%d" % number)
    killed = start_put(lake, inbox, "land.stored:20")
    killed.wait(60)
    assert killed.returncode == -9
    for number in range(60):  # and what is put again is touched meanwhile
        write(inbox / f"{number % 3}" / f"{number}.wav", b"%d" % number, APRIL)
    both = [start_put(lake, inbox) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    with lakes.open(lake) as opened:
        stored = objects(opened)
        assert len(stored) == 60 and {Path(path).name for path in stored} == {f"{number}.wav" for number in range(60)}
        assert announced(opened) == {(path, path) for path in stored}


def test_an_old_lake_s_files_are_known_with_and_without_their_folder(tmp_path: Path, inbox: Path) -> None:
    directory = small_lake(tmp_path / "lake")
    with lakes.open(directory) as lake:
        parts_of(lake).ledger.set_fact("format", "5")
    assert main(["--lake", str(directory), "upgrade"]) == 0
    with lakes.open(directory) as lake:
        parts = parts_of(lake)
        data = b"".join(parts.raw_store.chunks(CALL))
        for at in (inbox / "call.wav", inbox / "deep" / "call.wav"):
            write(at, data, APRIL)
        known = KnownFiles(parts.ledger)
        landed = list(land_many(parts.raw_store, parts.log_to_write, [inbox], "acme", known=known))
        assert [(one.status, one.event.object_id) for one in landed if one.event] == [("already there", CALL)] * 2


def test_a_file_that_was_read_keeps_its_meta_and_says_how_to_say_more(
    lake: Path, inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(inbox / "call.wav")
    with lakes.open(lake) as opened:
        (landed,) = opened.put(inbox / "call.wav", customer="acme", meta={"agent": "Zoe"})
        assert landed.event is not None
        parts_of(opened).ledger.claim_first("event", [(*_identity(landed.event), 0, 0)])  # as a run does
        (again,) = opened.put(inbox / "call.wav", customer="acme", meta={"agent": "Zoe"})
        assert again.status == "already there"
        with pytest.raises(Conflict, match=r"other meta or in another thread, and these stay.*headwater label audio"):
            opened.put(inbox / "call.wav", customer="acme", meta={"agent": "Max"})
        with pytest.raises(Conflict):
            opened.put(inbox / "call.wav", customer="acme", meta={"agent": "Zoe"}, thread="t1")
