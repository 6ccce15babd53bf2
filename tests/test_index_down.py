"""An index that is down or wiped holds up nobody: tables go on, search says what it lacks, and it catches up."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rounds
from lakes import parts_of
from waiting import wait_until

from headwater import lake as lakes
from headwater.components import Components
from headwater.errors import Unavailable
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.storage.index.lance_index import LanceIndex

PATIENCE_SECONDS = 120


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        rounds.put_round(made, rounds.make_media(tmp_path, 0), 0)
        yield made


@contextmanager
def stream(lake: Lake) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), "run"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.wait()


def is_derived(lake: Lake) -> bool:
    pending = lake.pending()
    return not (pending.bronze or pending.derive or pending.embed)


def is_found(lake: Lake) -> bool:
    return not lake.pending()


def assert_index_is_the_table(lake: Lake) -> None:
    index, embedded = parts_of(lake).index, lake.table("embeddings").to_arrow()["chunk_id"].to_pylist()
    assert index.present(embedded) == set(embedded)
    assert index.count() == len(embedded)


def test_tables_go_on_while_the_index_is_down_or_wiped_and_it_is_equal_to_them_afterwards(
    lake: Lake, tmp_path: Path
) -> None:
    index, away = lake.settings.lake / "index", tmp_path / "away"
    with stream(lake) as process:
        wait_until(lambda: is_found(lake), process)
        index.rename(away)
        index.write_text("here was an index")  # so that nothing can be made in its place
        rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
        wait_until(lambda: is_derived(lake), process)
        assert lake.table("messages").to_arrow().num_rows == 6
        embedded = lake.table("embeddings").to_arrow().num_rows
        assert lake.status()["index"]["stale_by"] == embedded
        with pytest.raises(Unavailable, match="index"):
            lake.search("invoice")
        index.unlink()
        away.rename(index)
        assert lake.search("round 1").stale_by > 0, "it says that it lacks some"
        wait_until(lambda: is_found(lake), process)
        assert_index_is_the_table(lake)
        shutil.rmtree(index)
        rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)
        wait_until(lambda: is_found(lake), process)
    assert_index_is_the_table(lake)
    assert lake.search("round 2").stale_by == 0


def test_a_run_that_ends_by_itself_brings_tables_up_to_date_and_says_that_the_index_is_down(lake: Lake) -> None:
    index = lake.settings.lake / "index"
    shutil.rmtree(index, ignore_errors=True)
    index.write_text("no index")
    done = headwater(lake, "run", "--once")
    assert done.returncode == Unavailable.exit_code
    assert "index" in done.stderr and "Traceback" not in done.stderr
    assert is_derived(lake)
    assert lake.table("messages").to_arrow().num_rows == 3


def headwater(lake: Lake, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headwater", "--lake", str(lake.settings.lake), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def unreachable(engine: None, lake: Lake) -> Iterator[Lake]:
    """The same lake with its index on an S3 server that is not there: nobody listens at a port that is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with (lake.settings.lake / FILE_NAME).open("a") as file:
            file.write('\n[index]\nuri = "s3://bucket/index"\n[s3]\naccess_key = "a"\nsecret_key = "b"\n')
            file.write(f'endpoint = "http://127.0.0.1:{taken.getsockname()[1]}"\n')
        with lakes.open(lake.settings.lake) as opened:
            yield opened


def test_an_s3_server_of_the_index_that_is_down_ends_no_run_and_search_says_so(unreachable: Lake) -> None:
    with pytest.raises(Unavailable, match="The index at s3://bucket/index did not answer"):
        unreachable.run()
    assert is_derived(unreachable)
    assert unreachable.table("messages").to_arrow().num_rows == 3
    embedded = unreachable.table("embeddings").to_arrow().num_rows
    shown = unreachable.status()["index"]
    assert (shown["entries"], shown["stale_by"]) == (0, embedded) and "did not answer" in shown["down"]
    asked = headwater(unreachable, "search", "invoice")
    assert asked.returncode == Unavailable.exit_code
    assert "The index at s3://bucket/index did not answer" in asked.stderr and "Traceback" not in asked.stderr
    assert len(asked.stderr) < 600, "what a library prints for its developers is left out"


class Fleeting(LanceIndex):
    """An index whose server goes away as soon as it has noted what was brought in."""

    def __init__(self, lake: Lake, away: LanceIndex) -> None:
        super().__init__(str(lake.settings.lake / "index"), lake.settings)
        self._away = away

    def set_position(self, seq: int, identity: str | None = None) -> None:
        super().set_position(seq, identity)
        self.__dict__["_store"] = self._away._store


def test_an_index_that_goes_down_once_it_was_written_is_told_of_as_any_other(unreachable: Lake) -> None:
    told: list[str] = []
    parts = Components(unreachable.settings)
    away = LanceIndex(unreachable.settings.text("index.uri"), unreachable.settings)
    parts.__dict__["index"] = Fleeting(unreachable, away)
    with Lake(parts) as lake, pytest.raises(Unavailable, match="index"):
        lake.run(listen=told.append)
    events = [json.loads(line) for line in told]
    (indexed,) = [event for event in events if event["event"] == "stage.committed" and event["stage"] == "index"]
    assert indexed["next_seq"] is None
    assert [event["event"] for event in events].count("index.down") == 1
    assert is_derived(unreachable)
