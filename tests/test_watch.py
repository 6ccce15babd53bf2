"""A directory that is watched: each file is put when it has stopped growing, and again when it is another."""

import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from lakes import parts_of
from waiting import wait_until

from headwater import lake as lakes
from headwater.cli.main import main


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "lake")]) == 0
    return tmp_path / "lake"


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def test_a_file_is_put_when_it_has_stopped_growing_and_again_when_it_is_another(lake: Path, inbox: Path) -> None:
    growing = inbox / "deep" / "call.wav"
    growing.parent.mkdir()
    (inbox / "notes.xyz").write_bytes(b"?")

    class Looks(threading.Event):
        """Each wait between two looks is one step of this test."""

        steps = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.steps += 1
            if self.steps < 5:  # it grows from look to look
                growing.write_bytes(b"RIFF" * self.steps)
                os.utime(growing, (self.steps, self.steps))
            elif self.steps == 9:
                growing.write_bytes(b"RIFF, another")
                os.utime(growing, (10**6, 10**6))
            elif self.steps == 14:
                self.set()
            return self.is_set()

    stop = Looks()
    with lakes.open(lake) as opened:
        found = [
            (one.status, Path(one.source).name, stop.steps) for one in opened.watch(inbox, stop=stop, customer="a")
        ]
        assert found == [("failed", "notes.xyz", 1), ("stored", "call.wav", 5), ("stored", "call.wav", 10)]
        assert [one.path for one in parts_of(opened).raw_store.list()] == [
            "audio/a/1970-01-01/deep/call.wav",
            "audio/a/1970-01-12/deep/call.wav",
        ]
        assert parts_of(opened).raw_store.head("audio/a/1970-01-01/deep/call.wav").size == 16  # type: ignore[union-attr]


def test_an_archive_is_put_as_the_files_in_it(lake: Path, inbox: Path) -> None:
    class TwoLooks(threading.Event):
        steps = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.steps += 1
            if self.steps == 3:
                self.set()
            return self.is_set()

    with zipfile.ZipFile(inbox / "calls.zip", "w") as archive:
        archive.writestr("march/one.wav", b"RIFF")
    os.utime(inbox / "calls.zip", (1, 1))
    with lakes.open(lake) as opened:
        landed = [one.event.pointer.path for one in opened.watch(inbox, stop=TwoLooks(), customer="a") if one.event]
    assert landed == ["audio/a/1970-01-01/calls.zip/march/one.wav"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_goes_on_until_it_is_stopped_and_ends_well(lake: Path, inbox: Path, number: int) -> None:
    line = [sys.executable, "-m", "headwater", "put", str(inbox), "--watch", "--customer", "a", "--json"]
    process = subprocess.Popen([*line, "--lake", str(lake)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    (inbox / "one.wav").write_bytes(b"RIFF one")
    with lakes.open(lake) as opened:
        wait_until(lambda: opened.pending().bronze == 1 or process.poll() is not None)
        (inbox / "two.wav").write_bytes(b"RIFF two")
        wait_until(lambda: opened.pending().bronze == 2 or process.poll() is not None)
    process.send_signal(number)
    out, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert json.loads(out)["summary"] == {"stored": 2, "already_there": 0, "failed": 0}
    assert b"stored" in told and b"two.wav" in told
