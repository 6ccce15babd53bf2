"""Maintenance beside a run under load: both end well, and the index has what the embeddings have."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import rounds
from lakes import parts_of
from waiting import wait_until

from headwater import lake as lakes
from headwater.lake import Lake

PATIENCE_SECONDS = 600
# Small files and a short tail are enough to organise for, as in a lake of millions at its worst moment.
_EAGER = """
import sys
from headwater.storage.index import lance_optimize as lance_organise
lance_organise.TAIL_ROWS, lance_organise.TAIL_SHARE = 1, 1 << 30
lance_organise.SMALL_FILES, lance_organise.ROWS_PER_SMALL_FILE = 0, 1 << 30
from headwater.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(lake: Path, *arguments: str) -> "subprocess.Popen[str]":
    line = [sys.executable, "-c", _EAGER, "--lake", str(lake), *arguments]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until_followed(lake: Lake, running: "subprocess.Popen[str]", events: int) -> None:
    def followed() -> bool:
        return lake.table("events").to_arrow().num_rows >= events and not lake.pending()

    wait_until(followed, running, seconds=PATIENCE_SECONDS, every=0.5)


@pytest.mark.soak
def test_maintenance_beside_a_stream_ends_neither_and_the_index_equals_the_embeddings(tmp_path: Path) -> None:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as lake:
        put, fed = 0, threading.Event()
        running = start(lake.settings.lake, "run", "--set", "run.trigger_seconds=0.2", "--set", "run.batch_rows=20")

        def feed() -> None:
            nonlocal put
            while not fed.wait(0.2):
                lake.put_text(f"line {put}: my invoice is wrong", customer="acme", id=f"m{put}")
                put += 1

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            wait_until(lambda: parts_of(lake).index.position() > 0, running, seconds=PATIENCE_SECONDS)
            for _ in range(3):
                maintained = start(lake.settings.lake, "maintain", "--json")
                said, _ = maintained.communicate(timeout=PATIENCE_SECONDS)
                assert maintained.returncode == 0, said
        finally:
            fed.set()
            feeder.join()
        wait_until_followed(lake, running, put)
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=PATIENCE_SECONDS)
        assert running.returncode == 0, said
        chunks = lake.table("embeddings").to_arrow()["chunk_id"].to_pylist()
        assert len(chunks) == len(set(chunks)) == put
        index = parts_of(lake).index
        assert index.count() == put and index.present(chunks) == set(chunks)
