"""A stream that nobody maintains: how long a commit takes and how large metadata is, over twenty thousand commits.

A real stream (`lake.run(once=False)`) takes in chat that trickles in, a few lines at a time, and commits to its tables
through bronze, derive, embed and index. Every commit of every table is timed in the process. Printed for windows along
the way: median and p95 of commits with rows and of moves without, the bytes of the newest metadata file and of the list
of manifests of the table that was committed to most, snapshots kept, and resident memory of Python and of the JVM.
Goal: at the end at most 1.5 times what it is after 500 commits; memory flat.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from headwater import lake as lakes
from headwater.components import Components
from headwater.domain.tables import EVENTS
from headwater.flow.land_text import text_event
from headwater.lake import Lake
from headwater.settings import FILE_NAME, load
from headwater.storage.io.local_path import local_path
from headwater.storage.tables import commit
from headwater.storage.tables.metadata import Edit, find_snapshot

SETTINGS = "[run]\ntrigger_seconds = 0.1\nfreshness_seconds = {freshness}\n[maintain]\nkeep_hours = 168\n"
GOAL = 1.5


class Clockwork:
    """Times every commit, with rows and without."""

    def __init__(self) -> None:
        self.rows: list[float] = []
        self.moves: list[float] = []
        self._lock = threading.Lock()
        inner = commit.Committer.commit

        def timed(committer: commit.Committer, table: str, propose: commit.Propose) -> Any:
            edits: list[Edit] = []

            def noting() -> Any:
                proposal = propose()
                edits[:] = [proposal[1]] if proposal else []
                return proposal

            begun = time.perf_counter()
            done = inner(committer, table, noting)
            with self._lock:
                if edits:
                    (self.rows if edits[0].snapshot else self.moves).append(time.perf_counter() - begun)
            return done

        commit.Committer.commit = timed  # type: ignore[method-assign]

    @property
    def count(self) -> int:
        return len(self.rows) + len(self.moves)


def window(times: list[float], begin: int) -> dict[str, float]:
    some = sorted(times[begin:]) or [0.0]
    return {"p50_ms": round(1000 * statistics.median(some), 1), "p95_ms": round(1000 * some[int(len(some) * 0.95)], 1)}


def sizes(lake: Lake) -> dict[str, int]:
    base = commit.Committer(lake.settings).tables.base(EVENTS.name)
    current = find_snapshot(base.metadata, base.metadata.get("current-snapshot-id"))
    lists = Path(local_path(current["manifest-list"])).stat().st_size if current else 0
    folder = Path(local_path(base.location)).parent
    return {
        "metadata_bytes": Path(local_path(base.location)).stat().st_size,
        "list_bytes": lists,
        "snapshots": len(base.metadata["snapshots"]),
        "files_in_metadata": sum(1 for _ in folder.iterdir()),
    }


def memory() -> dict[str, int]:
    own = psutil.Process()
    java = [child for child in own.children() if child.name() == "java"]
    return {
        "python_mb": own.memory_info().rss >> 20,
        "jvm_mb": sum(child.memory_info().rss for child in java) >> 20,
    }


def trickle(parts: Components, stop: threading.Event) -> None:
    number = 0
    while not stop.wait(0.05):
        at = parts.clock()
        parts.log.publish([text_event(f"line {number}: my parcel is late", "acme", f"m{number}", at)])
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument(
        "--freshness", type=float, default=0, help="run.freshness_seconds; 0 commits as often as can be"
    )
    parser.add_argument("--embed", default="lexical", help="an embedder with short vectors tells what the index takes")
    options = parser.parse_args()
    wanted = options.commits
    directory = Path(tempfile.mkdtemp(prefix="headwater-commits-"))
    (directory / "lake").mkdir()
    (directory / "lake" / FILE_NAME).write_text(
        f'{SETTINGS.format(freshness=options.freshness)}[models]\nembed = "{options.embed}"\n'
    )
    clockwork, stop = Clockwork(), threading.Event()
    lakes.init(directory / "lake").close()
    parts = Components(load(directory / "lake"))
    with Lake(parts) as lake:
        stream = threading.Thread(target=lambda: lake.run(once=False, stop=stop))
        feeding = threading.Thread(target=trickle, args=(parts, stop), daemon=True)
        # Spark is started by the main thread, or it would outlive it.
        _ = parts.spark_and_index()
        stream.start()
        feeding.start()
        first: dict[str, Any] | None = None
        marks = [500, *(wanted * part // 20 for part in range(1, 21))]
        rows = moves = 0
        for mark in sorted({mark for mark in marks if 500 <= mark <= wanted}):
            while clockwork.count < mark and stream.is_alive():
                time.sleep(0.2)
            told = {"commits": clockwork.count, "rows": window(clockwork.rows, rows), **sizes(lake), **memory()}
            told["moves"] = window(clockwork.moves, moves)
            rows, moves = len(clockwork.rows), len(clockwork.moves)
            first = first or told
            print(json.dumps(told), flush=True)
            if not stream.is_alive():
                raise SystemExit("the stream ended by itself")
        stop.set()
        stream.join(120)
        assert first is not None
        ratio = {
            "commit_time": told["rows"]["p50_ms"] / first["rows"]["p50_ms"],
            "metadata_bytes": told["metadata_bytes"] / first["metadata_bytes"],
            "python_mb": told["python_mb"] / first["python_mb"],
            "jvm_mb": told["jvm_mb"] / first["jvm_mb"],
        }
        print(json.dumps({name: round(value, 2) for name, value in ratio.items()} | {"goal": GOAL}))
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
