"""A running stream, watched, stopped by SIGTERM and started again as for an upgrade: nothing lost, nothing repeated."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rounds
from waiting import wait_until

from headwater import lake as lakes

PATIENCE_SECONDS = 240


@contextmanager
def streaming(lake: Path, calls: Path) -> Iterator[str]:
    """`headwater run` until the block ends, then SIGTERM; gives the address of its metrics."""
    line = [sys.executable, "-m", "headwater", "run", "--metrics-port", "0", "--lake", str(lake)]
    environment = {**os.environ, "HEADWATER_CALLS": str(calls)}
    process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert process.stderr is not None
        found = re.match(r"Metrics: (http://\S+)", process.stderr.readline())
        assert found
        yield found[1]
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
    finally:
        process.kill()
        process.wait()


def await_metrics(address: str, *wanted: str) -> None:
    """Until each line is there."""

    def are_there() -> bool:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return {*wanted} <= {*answer.read().decode().splitlines()}

    wait_until(are_there, seconds=PATIENCE_SECONDS, every=1)


def test_a_stream_stopped_for_an_upgrade_goes_on_where_it_was(tmp_path: Path) -> None:
    lake, calls = tmp_path / "lake", tmp_path / "calls"
    rounds.use_cheap_models(lake)
    with lakes.init(lake) as producer:
        rounds.put_round(producer, rounds.make_media(tmp_path / "media", 0), 0)
        with streaming(lake, calls) as address:
            await_metrics(address, "headwater_at_work 1", 'headwater_last_run{kind="run",outcome="running"} 1')
            await_metrics(address, 'headwater_table_rows{table="bronze.events"} 11', "headwater_index_entries 9")
        # Producers go on while the stream is down.
        rounds.put_round(producer, rounds.make_media(tmp_path / "media", 1), 1)
        assert 'headwater_last_run{kind="run",outcome="done"} 1' in producer.metrics()
        with streaming(lake, calls) as address:
            await_metrics(address, 'headwater_table_rows{table="bronze.events"} 22', "headwater_index_entries 18")
        contents = rounds.contents(producer)
        assert [len(contents[f"silver.{name}"]) for name in ("transcripts", "captions", "messages")] == [8, 4, 6]
        assert producer.status()["duplicates"] == 2
    # Two calls and a picture a round, for two customers each: equal bytes are asked about once.
    assert set(Counter(calls.read_text().split()).values()) == {1}
