"""One unusable answer costs one row, whatever it is: everybody else is served, and nothing of it is remembered."""

import hashlib
import json
import struct
import subprocess
import sys
import wave
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bad_models import GOOD, SPOKEN, WRITTEN
from lakes import parts_of

from headwater import lake as lakes
from headwater.errors import Unavailable
from headwater.flow.derive.plan import plan_work
from headwater.flow.drive.register_models import settle_models
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.storage.ledger.model_book import read_book
from headwater.storage.memo.memo import open_memo

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MODELS = """\
[models]
transcribe = "strange"
embed = "{embed}"

[model.strange]
kind = "bad_models:StrangeSpeech"
mended = "{mended}"

[model.unfinished]
kind = "bad_models:UnfinishedEmbedder"
mended = "{mended}"

[model.stranger]
kind = "bad_models:StrangeEmbedder"
mended = "{mended}"
"""


def make_lake(tmp_path: Path, embed: str = "stranger") -> Path:
    directory = tmp_path / "lake"
    directory.mkdir()
    written = MODELS.format(embed=embed, mended=tmp_path / "mended")
    (directory / FILE_NAME).write_text(written, encoding="utf-8")
    return directory


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(make_lake(tmp_path)) as made:
        yield made


def call(directory: Path, loudness: int) -> Path:
    file = directory / f"call-{loudness}.wav"
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(struct.pack("<h", loudness) * 1_600)
    return file


def put_all(lake: Lake, tmp_path: Path) -> None:
    for number, name in enumerate({**SPOKEN, **GOOD}, 1):
        lake.put(call(tmp_path, number), customer="acme", id=name, at=AT)
    for name in ("all is well", *WRITTEN):
        lake.put_text(name, customer="acme", id=f"text: {name}", at=AT)


def test_every_kind_of_nonsense_is_set_aside_alone_and_recovers_with_its_model(lake: Lake, tmp_path: Path) -> None:
    put_all(lake, tmp_path)
    lake.run()
    held = {row["event_id"]: row for row in lake.quarantine()["rows"]}
    assert set(held) == {*SPOKEN, *(f"text: {name}" for name in WRITTEN)}
    assert {row["reason"] for row in held.values()} == {"BAD_OUTPUT", "CRASHED", "TOO_LARGE"}
    assert "\\ud800" in held["half a character in an error"]["detail"]
    assert "MOOD" in held["a reason that nobody knows"]["detail"]
    assert {row["step"] for row in held.values()} == {"transcribe", "embed"}
    heard = lake.table("transcripts").to_arrow().to_pylist()
    assert {row["event_id"] for row in heard} == set(GOOD)
    assert {row["confidence"] for row in heard} == {None, 0.5}
    assert len(lake.table("messages").to_arrow()) == 1 + len(WRITTEN)
    assert len(lake.table("embeddings").to_arrow()) == len(GOOD) + 1
    assert not lake.pending()

    (tmp_path / "mended").touch()
    again = lake.retry()
    assert (again.tried, again.still_quarantined) == (len(held), 0)
    assert len(lake.table("embeddings").to_arrow()) == len(SPOKEN) + len(GOOD) + 1 + len(WRITTEN)


def test_a_bad_answer_that_the_memo_kept_is_asked_for_anew(lake: Lake, tmp_path: Path) -> None:
    number = 1 + len(SPOKEN)
    file = call(tmp_path, number)
    parts = parts_of(lake)
    settle_models(lake.settings, parts.ledger, parts.clock)
    memo, work = open_memo(lake.settings), plan_work(lake.settings, read_book(parts.ledger), now=AT)
    (step,) = (step for step in work.steps["audio"] if step.name == "transcribe")
    far = {"text": "from the memo", "segments": [{"text": "x", "start_ms": 0, "end_ms": int(1e20)}], "tokens": 0}
    checksum = hashlib.sha256(file.read_bytes()).hexdigest()
    memo.shelf("transcribe", step.fingerprint).put({checksum: {"row": far}})
    (embedder,) = read_book(parts.ledger).kept("embed")
    texts = {hashlib.sha256(text.encode()).hexdigest(): text for text in ("hello", "all is well")}
    junk = {"vector": "AAAA", "tokens": 10**30, "cost": 0, "model_seconds": 0, "attempts": 1}
    memo.shelf("embed", embedder.fingerprint).put(dict.fromkeys(texts, junk))

    lake.put(file, customer="acme", at=AT)
    lake.put_text("all is well", customer="acme", at=AT)
    lake.run()
    assert lake.quarantine()["rows"] == []
    assert lake.table("transcripts").to_arrow()["text"].to_pylist() == ["hello"]
    assert lake.table("embeddings").to_arrow()["vector"].to_pylist() == [[1.0] * 4] * 2


def test_texts_wait_for_a_model_that_cannot_be_loaded_and_it_says_why(engine: None, tmp_path: Path) -> None:
    with lakes.init(make_lake(tmp_path, embed="unfinished")) as lake:
        lake.put_text("hello", customer="acme", at=AT)
        with pytest.raises(Unavailable, match="of the weights are missing"):
            lake.run()
        assert (lake.pending().embed, lake.quarantine()["rows"]) == (1, [])
        (tmp_path / "mended").touch()
        lake.run()
        assert len(lake.table("embeddings").to_arrow()) == 1


def test_what_breaks_a_worker_all_the_same_is_told_in_a_sentence_and_in_a_document(tmp_path: Path) -> None:
    directory = make_lake(tmp_path, embed="bad_models:BrokenInWorkers")
    with lakes.init(directory) as lake:
        lake.put_text("hello", customer="acme", at=AT)
    command = [sys.executable, "-m", "headwater", "--lake", str(directory), "run", "--once", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"], error["retryable"]) == (5, "Unavailable", True)
    assert "worker" in error["message"] and "\n" not in error["message"]
    assert "Traceback" not in done.stderr
