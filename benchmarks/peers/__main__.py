"""Headwater beside its peers, in one table: cold, no-op, +1 %, one step changed.

3,000 calls, 3,000 pictures and 20,000 chat lines go through the same step functions in plain Python, Daft, DataChain,
Pixeltable, two kinds of PySpark, and Headwater; arms take turns in every phase, each cell is a cold process, CPU and
memory are those of everything it starts, and the rows are proven equal to the floor's. An arm that fails is shown so.

    make bench-peers                                     # all of it: about 25 minutes on 2 cores, quiet
    make bench-peers ARGS="--scale 0.05 --only floor,daft,headwater"
"""

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from headwater.storage.io.cache import cache_directory
from headwater.storage.spark.jars import resolve_jars
from peers import table, tree
from peers.arms import ARMS, HEADWATER, PHASES, Arm, Phase
from peers.environments import PATHS, python_for

FULL: Final = (3_000, 3_000, 20_000)
CELL_SECONDS: Final = 1_800.0
QUIET: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "DO_NOT_TRACK": "true",
    "SCARF_NO_ANALYTICS": "true",
    "DAFT_ANALYTICS_ENABLED": "0",
    "DATACHAIN_NO_ANALYTICS": "1",
    "TQDM_DISABLE": "1",
}


@dataclasses.dataclass(slots=True)
class Bench:
    """One round: where everything lies, and what was measured so far."""

    scratch: Path
    pythons: dict[str, Path]
    results: table.Results

    def run(self, arm: Arm, verb: str, given: Path) -> tree.Cell:
        state = self.scratch / "state" / arm.name
        state.mkdir(parents=True, exist_ok=True)
        command = [str(self.pythons[arm.name]), "-m", "peers.arm", arm.module, verb, str(given), str(state)]
        log = self.scratch / f"{arm.name}.log"
        return tree.measure(command, self._environment(arm, state), self.scratch, log, CELL_SECONDS)

    def cell(self, arm: Arm, phase: str, verb: str, given: Path) -> bool:
        """Measure and keep; a failure is kept as its reason. False where there is nothing to go on with."""
        print(f"{arm.title}: {PHASES.get(phase, phase)}", file=sys.stderr, flush=True)  # type: ignore[call-overload]
        try:
            self.results.keep(arm, phase, self.run(arm, verb, given))
        except RuntimeError as error:
            self.results.fail(arm, phase, str(error))
            return False
        return True

    def prove(self, arm: Arm, phase: Phase, given: Path) -> None:
        try:
            self.results.proofs[arm.name, phase] = self.run(arm, "rows", given).told
        except RuntimeError as error:
            self.results.proofs[arm.name, phase] = {"rows": 0, "hash": str(error)}

    def _environment(self, arm: Arm, state: Path) -> dict[str, str]:
        environment = {**os.environ, **QUIET, "PIXELTABLE_HOME": str(state), "DATACHAIN_ROOT_DIR": str(state)}
        environment.pop("PYTHONPATH", None)
        if not arm.packages:
            environment["PYTHONPATH"] = os.pathsep.join(map(str, PATHS))
        return environment


def one_round(bench: Bench, chosen: list[Arm], size: tuple[int, ...]) -> None:
    from peers.drops import Size, make_drops

    shutil.rmtree(bench.scratch / "state", ignore_errors=True)
    drops = make_drops(bench.scratch / "drops", Size(*size))
    alive = dict.fromkeys(chosen, True)
    for phase in PHASES:
        drop = {"cold": drops.base, "more": drops.more}.get(phase)
        if drop is not None:
            drops.deliver(drop)
        for arm in chosen:
            verb = arm.verb(phase)
            if verb is None or not alive[arm]:
                continue
            if drop is not None and arm.lands:
                bench.cell(arm, f"land {phase}", "land", drop)
            went = bench.cell(arm, phase, verb, drops.inbox)
            alive[arm] = went or phase == "changed"
            if went:
                bench.prove(arm, phase, drops.inbox)
    if alive.get(HEADWATER):
        bench.cell(HEADWATER, "imports", "imports", drops.inbox)
        bench.cell(HEADWATER, "stream", "stream", drops.stream)


def prepare(chosen: list[Arm], scratch: Path, results: table.Results) -> dict[str, Path]:
    pythons = {}
    for arm in chosen:
        try:
            pythons[arm.name] = python_for(arm.packages, scratch)
        except RuntimeError as error:
            results.fail(arm, "cold", str(error))
    return pythons


def _scratch() -> Path:
    """In the user's cache; root's is elsewhere, since Pixeltable's Postgres opens every directory above it to all."""
    return Path(tempfile.gettempdir()) / "headwater-peers" if os.geteuid() == 0 else cache_directory() / "peers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, default=_scratch(), help="for environments, corpus and states")
    parser.add_argument("--scale", type=float, default=1.0, help="of the corpus: 0.05 for a quick look")
    parser.add_argument("--rounds", type=int, default=1, help="medians are shown")
    parser.add_argument("--only", default=",".join(arm.name for arm in ARMS), help="names of arms, by commas")
    options = parser.parse_args()
    scratch = options.scratch.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["HEADWATER_BENCH"] = str(scratch / "corpus")  # read when the corpus is imported
    os.environ["PEERS_ICEBERG_JAR"] = str(resolve_jars()[0])
    tree.adopt_orphans()
    size = tuple(max(2, round(count * options.scale)) for count in FULL)
    chosen = [arm for arm in ARMS if arm.name in options.only.split(",")]
    results = table.Results(size, os.getloadavg()[0])
    pythons = prepare(chosen, scratch, results)
    ready = [arm for arm in chosen if arm.name in pythons]
    try:
        for _ in range(options.rounds):
            one_round(Bench(scratch, pythons, results), ready, size)
    finally:
        tree.end_orphans()
    (scratch / "results.json").write_text(json.dumps(results.to_dict(), indent=1))
    print(table.render(results, chosen))


if __name__ == "__main__":
    main()
