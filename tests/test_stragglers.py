"""An object that takes long is done beside the others: nobody waits for it, and it is not lost."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import hostile
import media
from waiting import wait_until

from headwater import lake as lakes
from headwater.demo.drawing import wav_bytes
from headwater.lake import Lake
from headwater.settings import FILE_NAME

SETTINGS = """\
[models]
transcribe = "waiting"
caption = "cheap_models:CheapReader"
embed = "lexical"

[model.waiting]
kind = "cheap_models:WaitingSpeech"
sign = "{sign}"
calls = "{calls}"

[run]
patience_seconds = 2
"""
PATIENCE_SECONDS = 120


def open_lake(tmp_path: Path) -> Lake:
    """One whose speech model waits on loud calls until the file `sign` is there."""
    directory = tmp_path / "lake"
    directory.mkdir()
    written = SETTINGS.format(sign=tmp_path / "sign", calls=tmp_path / "calls")
    (directory / FILE_NAME).write_text(written, encoding="utf-8")
    (tmp_path / "calls").touch()
    return lakes.init(directory)


def put_sound(lake: Lake, tmp_path: Path, name: str, loudness: int) -> None:
    file = tmp_path / f"{name}.wav"
    file.write_bytes(wav_bytes((media.tone(0.5) // 8_000 + loudness).astype("int16")))
    lake.put(file, customer="acme")


def transcripts(lake: Lake) -> set[str]:
    return {row["object_id"].rpartition("/")[2] for row in lake.sql("select object_id from transcripts")["rows"]}


def test_a_slow_object_is_set_aside_and_the_others_are_committed_while_it_is_at_work(
    engine: None, tmp_path: Path
) -> None:
    with open_lake(tmp_path) as lake:
        put_sound(lake, tmp_path, "loud", 9_000)
        for number in range(4):
            put_sound(lake, tmp_path, f"quiet-{number}", 100 + number)
        lake.put_text("is anybody there?", customer="acme")
        running = threading.Thread(target=lake.run)
        running.start()
        try:
            with lakes.open(lake.settings.lake) as reader:
                wait_until(lambda: len(transcripts(reader)) == 4)
                wait_until(lambda: "loud at work" in (tmp_path / "calls").read_text())
                assert [row["reason"] for row in reader.quarantine()["rows"]] == ["SLOW"]
                assert reader.pending().retry_due
                wait_until(lambda: bool(reader.search("anybody there").hits))
        finally:
            (tmp_path / "sign").touch()
            running.join(PATIENCE_SECONDS)
        assert not running.is_alive()
        assert transcripts(lake) == {"loud.wav", *(f"quiet-{number}.wav" for number in range(4))}
        assert lake.quarantine()["rows"] == [] and not lake.pending()
        assert lake.search("call of loudness", modality="audio", limit=10).stale_by == 0


def test_an_object_that_was_set_aside_is_done_by_the_next_run_when_one_is_killed(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        put_sound(lake, tmp_path, "loud", 9_000)
        put_sound(lake, tmp_path, "quiet", 100)
    drive = "import sys, headwater; headwater.open(sys.argv[1]).run()"
    process = subprocess.Popen([sys.executable, "-c", drive, str(lake.settings.lake)])
    try:
        wait_until(lambda: (tmp_path / "calls").read_text().count("loud at work") == 2)  # in its batch, then beside it
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (tmp_path / "sign").touch()
    with lakes.open(lake.settings.lake) as again:
        assert again.pending().retry_due
        again.run()
        assert transcripts(again) == {"loud.wav", "quiet.wav"}
        assert again.quarantine()["rows"] == [] and not again.pending()


def test_a_flood_of_hostile_files_is_refused_and_everybody_else_is_served(engine: None, tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        folder = tmp_path / "hostile"
        folder.mkdir()
        for number in range(8):
            (folder / f"hz-{number}.wav").write_bytes(hostile.slow_wav(1, 7_000 + number))
            (folder / f"frames-{number}.mp4").write_bytes(hostile.many_frames(100_000 + number, 13))
        lake.put(folder, customer="mallory")
        put_sound(lake, tmp_path, "quiet", 100)
        lake.put_text("is anybody there?", customer="acme")
        started = time.monotonic()
        lake.run()
        print(f"sixteen hostile files and a call: {time.monotonic() - started:.1f} s")
        assert time.monotonic() - started < 120
        assert transcripts(lake) == {"quiet.wav"} and lake.search("anybody there").hits
        assert {row["reason"] for row in lake.quarantine()["rows"]} == {"UNREADABLE"}
        assert {row["customer"] for row in lake.quarantine()["rows"]} == {"mallory"}


def test_a_slow_object_that_is_never_done_ends_at_the_operators_limit(engine: None, tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        lake.close()
        file = lake.settings.lake / FILE_NAME
        file.write_text(file.read_text() + "\n[limits]\nobject_seconds = 5\n", encoding="utf-8")
    with lakes.open(lake.settings.lake) as lake:
        put_sound(lake, tmp_path, "loud", 9_000)
        lake.run()
        (row,) = lake.quarantine()["rows"]
        assert row["reason"] == "TIMEOUT" and "limits.object_seconds" in row["detail"]
        assert not lake.pending()
