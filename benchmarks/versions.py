"""This version beside one before it, in turns: the first derivation, nothing to do, a hundredth more, a step changed.

The phases are those of `replay.py`, and of Headwater's arm beside peers. Each version is checked out of git, runs with
its own code and its own copy of the benchmark's on a lake of its own, and each phase is a process of its own; who goes
first alternates by round. Rows of their lakes are proven equal. Goal: no figure worse by more than 5 %.

    python benchmarks/versions.py [--before COMMIT] [--scale 0.3] [--rounds 3] [--unsynced]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEFORE = "d575a9f"  # the last before commits were Headwater's own
GOAL = 1.05
PHASES = ("first derivation", "nothing new", "1 % more", "call step changed")
ADD = "import sys, replay; from pathlib import Path; replay.add(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])"
MAKE = """
import sys, replay
from pathlib import Path
from headwater import lake as lakes
Path(sys.argv[1]).mkdir(parents=True)
(Path(sys.argv[1]) / "headwater.toml").write_text(replay.SETTINGS)
lakes.init(sys.argv[1]).close()
"""
PHASE = """
import dataclasses, json, sys, replay
from pathlib import Path
print(json.dumps(dataclasses.asdict(replay.phase(Path(sys.argv[1]), sys.argv[2]))))
"""
ROWS = """
import hashlib, sys, framework
from pathlib import Path
rows = sorted(map(repr, framework.lake_rows(Path(sys.argv[1]))))
print(len(rows), hashlib.sha256("\\n".join(rows).encode()).hexdigest())
"""
CORPUS = "import sys, corpus; print(corpus.make_corpus(*map(int, sys.argv[1:])))"


@dataclass(frozen=True, slots=True)
class Version:
    """One version's code. `environment` is what its processes get besides."""

    name: str
    directory: Path
    environment: dict[str, str]

    def call(self, code: str, *arguments: object) -> str:
        path = os.pathsep.join(str(self.directory / part) for part in ("src", "benchmarks"))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **self.environment}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(
            command, env=environment, cwd=self.directory, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def checked_out(commit: str, into: Path) -> Path:
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return into


def measure(version: Version, lake: Path, corpora: dict[str, str]) -> tuple[dict[str, dict[str, Any]], str]:
    """What each phase cost, and a digest of the rows."""
    shutil.rmtree(lake, ignore_errors=True)
    version.call(MAKE, lake)
    told = {}
    for phase, added, work in zip(
        PHASES, ("first", "", "more", ""), ("run", "run", "run", "replay-newer"), strict=True
    ):
        if added:
            version.call(ADD, corpora[added], lake, added)
        told[phase] = json.loads(version.call(PHASE, lake, work))
        print(
            f"  {version.name:<16}{phase:<20}{told[phase]['wall']:>8.2f} s{told[phase]['cpu']:>8.1f} CPU s", flush=True
        )
    return told, version.call(ROWS, lake)


def show(found: dict[str, list[dict[str, dict[str, Any]]]], first: str) -> None:
    """Medians of every version, and how the first stands to the others."""
    for phase in PHASES:
        print(phase)
        medians = {
            name: [statistics.median(one[phase][what] for one in told) for what in ("wall", "cpu")]
            for name, told in found.items()
        }
        for name, (wall, cpu) in medians.items():
            ratios = medians[first][0] / wall, medians[first][1] / cpu
            beside = "" if name == first else f"   {first}: {ratios[0]:.2f} × the wall, {ratios[1]:.2f} × the CPU"
            print(f"  {name:<24}{wall:>8.2f} s{cpu:>8.1f} CPU s{beside}{'  (worse)' if max(ratios) > GOAL else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help="the commit to compare with")
    parser.add_argument("--scale", type=float, default=0.3, help="of 3,000 calls, 3,000 pictures and 20,000 lines")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unsynced", action="store_true", help="a third arm: this version with catalog.sync = false")
    options = parser.parse_args()
    calls, lines = max(10, round(3_000 * options.scale)), max(50, round(20_000 * options.scale))
    with tempfile.TemporaryDirectory(prefix="headwater-versions-") as scratch:
        old = Version(options.before, checked_out(options.before, Path(scratch) / "before"), {})
        new = Version("this version", ROOT, {})
        arms = [old, new]
        if options.unsynced:
            arms.append(Version("this without syncs", ROOT, {"HEADWATER_CATALOG_SYNC": "false"}))
        corpora = {
            "first": new.call(CORPUS, calls, calls, lines),
            "more": new.call(CORPUS, calls // 100 or 1, calls // 100 or 1, lines // 100, 9),
        }
        found: dict[str, list[dict[str, dict[str, Any]]]] = {version.name: [] for version in arms}
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
            digests = set()
            for version in reversed(arms) if number % 2 else arms:
                told, digest = measure(version, Path(scratch) / "lake", corpora)
                found[version.name].append(told)
                digests.add(digest)
            assert len(digests) == 1, f"rows differ: {digests}"
        show(found, new.name)
        print("rows proven equal")


if __name__ == "__main__":
    main()
