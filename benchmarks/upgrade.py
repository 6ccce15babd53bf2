"""An embedder is replaced while others search: does anybody ever see two models in one answer, and how long is a flip?

A lake of 50,000 chat lines is searched in a loop by a second process while this one replays a newer embedder beside the
old one, activates it, flips back, activates it again and retires the old one. Every answer must be without error, not
empty, and wholly of one embedder.

    python benchmarks/upgrade.py [--lines 50000]
"""

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import corpus
import numpy as np

from headwater import lake as lakes
from headwater.clock import parse_time
from headwater.components import Components
from headwater.flow.land_text import text_event

HERE: Final = Path(__file__).parent
OLD, NEW = "lexical", "counted:NewerWords"
QUERIES: Final = 300
PAUSE_SECONDS: Final = 2.0  # after each step, so that the loop meets the lake as it is then
BREATH_SECONDS: Final = 0.01  # between two searches: the loop is a user, not a load test
SEED: Final = 17


@dataclass(frozen=True, slots=True)
class Answer:
    """What one search of the loop came to. `models` are the embedders of its hits."""

    at: float
    seconds: float
    models: tuple[str, ...]
    error: str | None

    @property
    def whole(self) -> bool:
        return self.error is None and len(self.models) == 1


@dataclass(slots=True)
class Upgraded:
    """When each step began and how long it took, and what the loop saw meanwhile."""

    steps: dict[str, tuple[float, float]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begun = time.time()
        yield
        self.steps[name] = (begun, time.time() - begun)

    @property
    def broken(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.whole]

    def models_between(self, one: str, next_one: str | None) -> set[str]:
        """Whose answers were given by searches that began after one step and ended before the next one began."""
        begin = sum(self.steps[one])
        end = self.steps[next_one][0] if next_one else math.inf
        told = [answer for answer in self.answers if begin <= answer.at and answer.at + answer.seconds <= end]
        return {model for answer in told for model in answer.models}


def make_lake(lake: Path, lines: int, settings: str = "") -> None:
    """So many chat lines, embedded and indexed by the flow itself."""
    lake.mkdir(parents=True)
    (lake / "headwater.toml").write_text(f'[models]\nembed = "{OLD}"\n{settings}')
    draw, at = np.random.default_rng(SEED), parse_time("2026-03-01")
    words = draw.choice(corpus.WORDS, (lines, 12))
    with lakes.init(lake) as opened:
        texts = (f"{number} {' '.join(row)}" for number, row in enumerate(words))
        log = Components(opened.settings).log
        log.publish([text_event(text, "bench", f"chat-{text.split()[0]}", at) for text in texts])
        opened.run()


def upgrade(
    lake: Path, new: str = NEW, pause: float = PAUSE_SECONDS, report: Callable[[str], None] = print
) -> Upgraded:
    """The whole way, with the loop beside it. The old embedder is the one that is active."""
    done, stop, output = Upgraded(), lake / "stop-searching", lake / "answers.jsonl"
    with lakes.open(lake) as opened:
        models, old = opened.models, str(opened.models.book().find("embed", "ACTIVE").fingerprint)
        with searching(lake, output, stop):
            ways: Sequence[tuple[str, Callable[[], Any]]] = (
                ("replay", lambda: models.replay("embed", new)),
                ("activate", lambda: models.activate("embed", new)),
                ("flip back", lambda: models.activate("embed", old)),
                ("activate again", lambda: models.activate("embed", new)),
                ("retire", lambda: models.retire("embed", old)),
            )
            for name, way in ways:
                with done.step(name):
                    way()
                report(f"{name}: {done.steps[name][1]:.2f} s")
                time.sleep(pause)
    done.answers = [Answer(**{**row, "models": tuple(row["models"])}) for row in _lines(output)]
    return done


@contextmanager
def searching(lake: Path, output: Path, stop: Path) -> Iterator[None]:
    """A second process searches until the block ends; the block begins when it has answered once."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, __file__, "--search", str(lake), str(output), str(stop)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
    try:
        while not output.exists():
            if process.poll() is not None:
                raise SystemExit("the searching process has ended")
            time.sleep(0.1)
        yield
    finally:
        stop.touch()
        process.wait(timeout=60)


def search_loop(lake: Path, output: Path, stop: Path) -> None:
    draw = random.Random(SEED)
    queries = [" ".join(draw.choices(corpus.WORDS, k=3)) for _ in range(QUERIES)]
    with lakes.open(lake) as opened:
        while not stop.exists():
            answer = _ask(opened, draw.choice(queries))
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(answer) + "\n")
            time.sleep(BREATH_SECONDS)


def _ask(lake: lakes.Lake, query: str) -> dict[str, Any]:
    at, begun, error, models = time.time(), time.monotonic(), None, set()
    try:
        models = {hit.entry.model for hit in lake.search(query).hits}
    except Exception as problem:  # whatever it is, it is what a user would have seen
        error = f"{type(problem).__name__}: {problem}"
    return {"at": at, "seconds": time.monotonic() - begun, "models": sorted(models), "error": error}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def show(done: Upgraded, lines: int) -> None:
    counts = Counter(answer.models[0] for answer in done.answers if answer.whole)
    told = ", ".join(f"{count:,} by {model}" for model, count in counts.items())
    print(f"{lines:,} vectors: {len(done.answers):,} answers ({told}), {len(done.broken)} mixed, empty or failed")
    for name, (begun, seconds) in done.steps.items():
        walls = sorted(a.seconds for a in done.answers if begun <= a.at <= begun + seconds + PAUSE_SECONDS)
        high = statistics.quantiles(walls, n=20)[-1] if len(walls) > 1 else 0.0
        middle = statistics.median(walls) if walls else 0.0
        print(f"  {name:<16}{seconds:>8.2f} s   search meanwhile: {len(walls):>6} answers, "
              f"p50 {middle * 1e3:.0f} ms, p95 {high * 1e3:.0f} ms")  # fmt: skip
    for answer in done.broken[:5]:
        print(f"  broken: {answer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--search", nargs=3, type=Path, help="internal: the searching process")
    options = parser.parse_args()
    if options.search:
        search_loop(*options.search)
        return
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    lake = corpus.SCRATCH / "upgrade"
    shutil.rmtree(lake, ignore_errors=True)
    make_lake(lake, options.lines)
    done = upgrade(lake)
    show(done, options.lines)
    sys.exit(1 if done.broken else 0)


if __name__ == "__main__":
    main()
