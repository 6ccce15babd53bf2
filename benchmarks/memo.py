"""The memo with a million vectors: what putting, packing and looking take, beside a tenth of it and the version before.

Vectors have 384 dimensions and are put 512 at a time, as an embedder's worker puts them. Each phase is a process of its
own: put all, pack, look for 1,000 of them and for 1,000 that nobody has put, put 5,000 more, pack again, look again.
Seconds, CPU and peak memory are the process's own, with its imports; bytes are what it read from files in the phase.
The version before is taken from git, at 40,000 vectors, because more would not fit into memory.
Goal: packing and looking below 500 MB whatever the size.
"""

import argparse
import base64
import importlib.util
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headwater.settings import resolve
from headwater.storage.memo.memo import open_memo

BEFORE, BEFORE_VECTORS = "1c48ba4", 40_000
DIMENSION, AT_ONCE, LOOKED, MORE = 384, 512, 1_000, 5_000
GOAL_MB = 500
PHASES = ("put", "pack", "look", "unknown", "put more", "pack again", "look again")


def keys_of(begin: int, end: int) -> Iterator[list[str]]:
    for start in range(begin, end, AT_ONCE):
        rng = np.random.default_rng(start)
        rows = rng.integers(0, 256, (min(AT_ONCE, end - start), 32), dtype=np.uint8)
        yield [bytes(row).hex() for row in rows]


class Arm:
    """One version of the memo, on a directory."""

    def __init__(self, directory: Path, source: str) -> None:
        settings = resolve(directory, {}, {}, {})
        self.old = bool(source)
        self.memo: Any = _module(source).open_memo(settings) if source else open_memo(settings)
        self.shelf = self.memo.shelf("embed", "feed0123feed0123")

    def put(self, begin: int, end: int) -> None:
        rng = np.random.default_rng(5)
        effort = {"model_seconds": 0.002, "tokens": None, "cost": 0.0, "attempts": 1}
        for keys in keys_of(begin, end):
            vectors = rng.standard_normal((AT_ONCE, DIMENSION), dtype=np.float32)
            self.shelf.put({key: {**effort, "vector": self._kept(vectors[n])} for n, key in enumerate(keys)})

    def _kept(self, vector: Any) -> Any:
        return base64.b64encode(vector.tobytes()).decode() if self.old else vector

    def look(self, count: int) -> None:
        """Keys from all over, in batches as a worker asks for them."""
        wanted = [keys[0] for keys in keys_of(0, count)][:LOOKED]
        wanted += [key for keys in keys_of(0, AT_ONCE * 2) for key in keys[1:]][: LOOKED - len(wanted)]
        found = sum(len(self.shelf.find(wanted[start : start + 100])) for start in range(0, LOOKED, 100))
        assert found == LOOKED, found

    def unknown(self) -> None:
        wanted = [key for keys in keys_of(1 << 40, (1 << 40) + LOOKED) for key in keys]
        assert not any(self.shelf.find(wanted[start : start + 100]) for start in range(0, LOOKED, 100))


def _module(source: str) -> Any:
    spec = importlib.util.spec_from_file_location("memo_before", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["memo_before"] = module
    spec.loader.exec_module(module)
    return module


def run_phase(directory: Path, source: str, phase: str, count: int) -> dict[str, float]:
    arm = Arm(directory, source)
    work: dict[str, Callable[[], object]] = {
        "put": lambda: arm.put(0, count),
        "pack": arm.memo.pack,
        "look": lambda: arm.look(count),
        "unknown": arm.unknown,
        "put more": lambda: arm.put(1 << 32, (1 << 32) + MORE),
        "pack again": arm.memo.pack,
        "look again": lambda: arm.look(count),
    }
    begun, read = time.perf_counter(), _read_bytes()
    work[phase]()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.perf_counter() - begun,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
        "read_mb": (_read_bytes() - read) / (1 << 20),
    }


def _read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def measure(name: str, count: int, source: str) -> dict[str, dict[str, float]]:
    directory = Path(tempfile.mkdtemp(prefix="headwater-memo-"))
    told = {}
    try:
        for phase in PHASES:
            command = [sys.executable, __file__, "--phase", phase, str(directory), source, str(count)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            told[phase] = json.loads(done.stdout)
            files = list((directory / "memo").rglob("*.*"))
            told[phase]["files"] = len(files)
            told[phase]["disk_mb"] = sum(file.stat().st_size for file in files) / (1 << 20)
            figures = ", ".join(f"{what} {value:,.1f}" for what, value in told[phase].items())
            print(f"{name}, {count:,}: {phase}: {figures}", flush=True)
    finally:
        shutil.rmtree(directory)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", default="40000,100000,1000000")
    parser.add_argument("--before", default=BEFORE, help="the commit of the version before")
    parser.add_argument("--phase", nargs=4)
    options = parser.parse_args()
    if options.phase:
        phase, directory, source, count = options.phase
        print(json.dumps(run_phase(Path(directory), source, phase, int(count))))
        return
    with tempfile.NamedTemporaryFile(suffix=".py") as source:
        show = ["git", "show", f"{options.before}:src/headwater/storage/memo/memo.py"]
        source.write(subprocess.run(show, check=True, capture_output=True, cwd=Path(__file__).parent).stdout)
        source.flush()
        before = measure("before", BEFORE_VECTORS, source.name)
    now = {count: measure("now", count, "") for count in map(int, options.vectors.split(","))}
    few, *_, many = sorted(now)
    for phase in PHASES[1:]:
        print(
            f"{phase}: peak {now[many][phase]['peak_mb']:.0f} MB (goal {GOAL_MB}), "
            f"{now[many][phase]['peak_mb'] / now[few][phase]['peak_mb']:.2f} × that at {many // few} times fewer; "
            f"at {few:,} {now[few][phase]['peak_mb'] / before[phase]['peak_mb']:.2f} × the memory, "
            f"{now[few][phase]['cpu'] / before[phase]['cpu']:.2f} × the CPU and "
            f"{now[few][phase]['read_mb'] / max(0.01, before[phase]['read_mb']):.2f} × the bytes of the version before"
        )


if __name__ == "__main__":
    main()
