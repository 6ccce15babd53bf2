"""What it costs to do nothing, and to do one hundredth more: run and replay over a lake that has been derived.

3,000 calls, 3,000 pictures and 20,000 chat lines go through cheap models that count their own calls. Every figure is of
a process of its own, from the moment Spark's session stands where one is needed; what is left out is told beside it.
Goals: a run or replay with nothing to do calls no model and takes at most 1/50 of the first derivation; one hundredth
more takes at most 3 % of it on top of what each stage costs for a single object of each kind.

    python benchmarks/replay.py [--scale 0.05]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import corpus
from counted import CALLS
from measure import Meter

from headwater import lake as lakes
from headwater.clock import parse_time
from headwater.components import Components
from headwater.domain.event import Event
from headwater.flow.land_text import text_event

HERE: Final = Path(__file__).parent
ACTIVE, NEWER = "counted:CountedCalls", "counted:NewerCalls"
SETTINGS: Final = f'[models]\ntranscribe = "{ACTIVE}"\ncaption = "counted:CountedPictures"\nembed = "lexical"\n'
NOTHING_SHARE: Final = 1 / 50
MORE_SHARE: Final = 0.03
STAGES: Final = ("bronze", "derive", "embed", "index")  # some of them at the same time


@dataclass(frozen=True, slots=True)
class Phase:
    """`stages` are seconds by stage; `start` is the JVM and its session, 0 where none was needed.

    `cpu` is of the whole process and all that it started, the JVM's start included.
    """

    wall: float
    cpu: float
    start: float
    calls: int
    stages: dict[str, float]


def add(media: Path, lake: Path, batch: str) -> None:
    """Land a corpus; each batch has a customer of its own, so that equal names do not meet."""
    at = parse_time("2026-03-01")
    with lakes.open(lake) as opened:
        for folder in ("calls", "pictures"):
            opened.put(media / folder, customer=batch, at=at)
        texts = (media / "chat.txt").read_text().splitlines()
        events: list[Event] = [text_event(text, batch, f"{batch}-{text.split()[0]}", at) for text in texts]
        Components(opened.settings).log.publish(events)


def phase(lake: Path, work: str) -> Phase:
    """In a process of its own, as a user's command would be."""
    calls = corpus.SCRATCH / "calls"
    calls.write_bytes(b"")
    command = [sys.executable, __file__, "--arm", work, str(lake)]
    told = {CALLS: str(calls), "HEADWATER_LIMITS_CHILD_VARIABLES": CALLS}
    environment = {**os.environ, **told, "PYTHONPATH": _path(), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    meter = Meter(process.pid)
    output, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"{command} failed")
    told = json.loads(output.splitlines()[-1])
    return Phase(told["wall"], meter.stop().cpu, told["start"], calls.stat().st_size, told["stages"])


def _path() -> str:
    return os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))


def arm(work: str, lake: Path) -> None:
    """Times the work and, apart, the start of Spark that happens within it."""
    stages: dict[str, float] = {}

    def listen(line: str) -> None:
        told = json.loads(line)
        if told.get("event") == "stage.committed":
            stages[told["stage"]] = stages.get(told["stage"], 0.0) + told["seconds"]

    begun = time.monotonic()
    with lakes.open(lake) as opened, spark_timed() as start:
        WORK[work](opened, listen)
        wall = time.monotonic() - begun - start()
    print(json.dumps({"wall": wall, "start": start(), "stages": stages}))


@contextmanager
def spark_timed() -> Iterator[Callable[[], float]]:
    """How long Spark took to start, wherever that happens; 0 as long as it has not."""
    from headwater.storage.spark import session as spark

    spent, started = [0.0], spark.start_spark

    def timed(*args: Any, **options: Any) -> Any:
        begun = time.monotonic()
        session = started(*args, **options)
        spent[0] += time.monotonic() - begun
        return session

    spark.start_spark = timed
    try:
        yield lambda: spent[0]
    finally:
        spark.start_spark = started


def _run(lake: lakes.Lake, listen: Callable[[str], None]) -> None:
    lake.run(listen=listen)


def _replay(model: str) -> Callable[[lakes.Lake, Callable[[str], None]], None]:
    def replay(lake: lakes.Lake, listen: Callable[[str], None]) -> None:
        assert lake.models.replay("transcribe", model).finished

    return replay


WORK: Final = {"run": _run, "replay-active": _replay(ACTIVE), "replay-newer": _replay(NEWER)}


def bench(scale: float) -> list[tuple[str, bool]]:
    calls, lines = max(10, round(3_000 * scale)), max(50, round(20_000 * scale))
    lake = corpus.SCRATCH / "replay"
    shutil.rmtree(lake, ignore_errors=True)
    lake.mkdir(parents=True)
    (lake / "headwater.toml").write_text(SETTINGS)
    lakes.init(lake).close()
    add(corpus.make_corpus(calls, calls, lines), lake, "first")
    print(f"{2 * calls + lines:,} objects on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<34}{'wall s':>8}{'CPU s':>8}{'calls':>8}{'start s':>9}   seconds by stage", flush=True)
    first = shown("first derivation", phase(lake, "run"))
    nothing = [shown("run, nothing new", phase(lake, "run"))]
    nothing.append(shown("replay of the active model", phase(lake, "replay-active")))
    add(corpus.make_corpus(1, 1, 1, seed=8), lake, "single")
    single = shown("one object of each kind more", phase(lake, "run"))
    add(corpus.make_corpus(calls // 100 or 1, calls // 100 or 1, lines // 100, seed=9), lake, "more")
    more = shown("1 % more", phase(lake, "run"))
    newer = shown("replay of a newer call model", phase(lake, "replay-newer"))
    nothing.append(shown("the same again", phase(lake, "replay-newer")))
    return list(goals(first, nothing, single, more, newer, calls))


def shown(name: str, done: Phase) -> Phase:
    stages = ", ".join(f"{stage} {done.stages[stage]:.2f}" for stage in STAGES if stage in done.stages)
    print(f"{name:<34}{done.wall:>8.2f}{done.cpu:>8.1f}{done.calls:>8}{done.start:>9.1f}   {stages}", flush=True)
    return done


def goals(
    first: Phase, nothing: list[Phase], single: Phase, more: Phase, newer: Phase, calls: int
) -> Iterator[tuple[str, bool]]:
    most = max(done.wall for done in nothing)
    yield "nothing to do: no call of a model", sum(done.calls for done in nothing) == 0
    yield f"nothing to do: 1/{first.wall / most:.0f} of the first (goal 1/50)", most <= first.wall * NOTHING_SHARE
    share = (more.wall - single.wall) / first.wall
    fixed = ", ".join(f"{stage} {single.stages.get(stage, 0):.2f}" for stage in STAGES)
    yield f"1 % more: {share:.1%} of the first on top of {single.wall:.1f} s, fixed ({fixed})", share <= MORE_SHARE
    yield "first derivation: one call an object", first.calls == 2 * calls
    yield "newer model: one call a call", newer.calls == calls + 1 + (calls // 100 or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--arm", nargs=2, help="internal: one phase")
    options = parser.parse_args()
    if options.arm:
        arm(options.arm[0], Path(options.arm[1]))
        return
    for goal, met in bench(options.scale):
        print(f"{'reached' if met else 'NOT reached':<12} {goal}")


if __name__ == "__main__":
    main()
