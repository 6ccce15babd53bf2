"""How well models use two cores: speech in × real time and pictures a second, in plain processes and through Headwater.

Three arms over the same objects, in turns: one process, two processes that take objects from one list (the yardstick of
two cores), and Headwater's derive on Spark, from the plan of a batch to its last commit; only the start of the JVM and
of its session is left out. Every arm starts its Python, imports and loads its model inside its own time. One process
does half of the objects, since it is only asked for its pace. Texts are proven equal. A fourth arm is Headwater
with the default of earlier lakes, which tells how much more the new one does in a CPU second.
Goals: Headwater at 0.9 of the yardstick's pace; 2.5 × the sound in a CPU second.

    python benchmarks/models.py [--calls 40] [--pictures 240] [--rounds 2] [--only speech,pictures] [--without-before]
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import corpus
import numpy as np
from measure import Measured, Meter

HERE: Final = Path(__file__).parent
GOAL: Final = 0.9
WORKERS: Final = 2
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object, its step, what its pace is told in, and the default before: its goal is how many times as much
    of the same work a CPU second is to do now."""

    folder: str
    step: str
    table: str
    unit: str
    before: str
    times: float


KINDS: Final = {
    "speech": Kind("speech", "transcribe", "transcripts", "× real time", "pocketsphinx", 2.5),
    "pictures": Kind("screens", "caption", "captions", "images/s", "rapidocr", 0.5),
}


def make_media(kind: Kind, count: int, seed: int = 11) -> Path:
    """Calls put together from real recordings, 4 to 30 s; screens with three to seven lines. Made once."""
    directory = corpus.SCRATCH / f"{kind.folder}-{count}-{seed}"
    if (directory / "made").exists():
        return directory
    media = directory / kind.folder
    media.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    for number in range(count):
        _make_call(media, number, draw) if kind.folder == "speech" else _make_screen(media, number, draw)
    (directory / "made").touch()
    return directory


def _make_call(media: Path, number: int, draw: random.Random) -> None:
    from headwater.demo.drawing import read_wav, wav_bytes
    from headwater.demo.media import RECORDINGS

    voices = sorted(RECORDINGS.glob("*.wav"))
    parts = [read_wav(draw.choice(voices)) for _ in range(draw.randint(1, 4))]
    pause = np.zeros(draw.randint(3_000, 12_000), np.int16)
    joined = np.concatenate([piece for part in parts for piece in (part, pause)])
    loudness = draw.uniform(0.5, 1.0)
    (media / f"call-{number:04d}.wav").write_bytes(wav_bytes((joined * loudness).astype(np.int16)))


def _make_screen(media: Path, number: int, draw: random.Random) -> None:
    from headwater.demo.drawing import draw_screen

    lines = [" ".join(draw.choices(corpus.WORDS, k=draw.randint(4, 8))) for _ in range(draw.randint(3, 7))]
    draw_screen(f"Case {number}", lines).save(media / f"screen-{number:04d}.png")


def plain(directory: Path, output: Path, processes: int, count: int) -> None:
    """An arm: so many processes take objects from one list; what was said is written as JSON."""
    files = sorted(path for path in directory.glob("*/*"))[:count]
    if processes == 1:
        said = [_said(path) for path in files]
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            said = list(pool.imap_unordered(_said, files, chunksize=1))
    output.write_text(json.dumps(dict(said)))


_models: Any = None


def _said(path: Path) -> tuple[str, str]:
    """All steps of the object, by the very step functions."""
    global _models
    from headwater.domain.modality import classify
    from headwater.flow.derive.registry import function_of
    from headwater.flow.derive.source import Limits, Source
    from headwater.flow.models.loaded import Models

    _models = _models or Models(_values(), {})
    modality, content_type = classify(path.name) or (None, "")
    source, row = Source(path.read_bytes(), content_type, Limits.from_settings({})), {}
    for step in modality.steps if modality else ():
        if not step.setting or _models.name_of(step.setting):
            row |= function_of(modality, step)(source, _models) or {}
    return path.name, row["text"]


def _values() -> dict[str, Any]:
    from headwater.settings import SETTINGS

    return {setting.name: setting.default for setting in SETTINGS}


def land(directory: Path, lake: Path) -> None:
    from headwater import lake as lakes
    from headwater.clock import parse_time

    with lakes.init(lake) as opened:
        folder = next(path for path in directory.iterdir() if path.is_dir())
        opened.put(folder, customer="bench", at=parse_time("2026-03-01"))


def headwater(lake: Path) -> None:
    """An arm: the live flow. The parent hears when derive begins, when its models are done, when it is committed."""
    from headwater import lake as lakes
    from headwater.flow.derive import stage
    from headwater.flow.drive import derive_runner as runs

    def told(what: str, function: Any, *, after: bool) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            _ = after or _tell(what)
            result = function(*args, **options)
            _ = not after or result is None or _tell(what)
            return result

        return call

    with lakes.open(lake) as opened:
        _ = opened.spark
        runs.plan_work = told("plan", runs.plan_work, after=False)  # type: ignore[attr-defined]
        runs.derive_next = told("commit", runs.derive_next, after=True)  # type: ignore[attr-defined]
        # The first that is done with what the models have made.
        stage.spent_by_tag = told("models", stage.spent_by_tag, after=False)  # type: ignore[attr-defined]
        opened.run()


def _tell(what: str) -> None:
    print(json.dumps({"at": time.monotonic(), "what": what}), flush=True)


@dataclass(slots=True)
class Arm:
    wall: float
    cpu: float
    peak_mb: float
    models_wall: float = 0.0


def measure_plain(directory: Path, output: Path, processes: int, count: int) -> Arm:
    process = _start("plain", str(directory), str(output), str(processes), str(count))
    meter = Meter(process.pid)
    _finish(process)
    done: Measured = meter.stop()
    return Arm(done.wall, done.cpu, done.peak_mb)


def measure_headwater(lake: Path, **environment: str) -> Arm:
    """The time of all batches, each from its plan to its commit."""
    process = _start("headwater", str(lake), **environment)
    meter = Meter(process.pid)
    arm, planned, cpu_before, inferring = Arm(0, 0, 0), 0.0, 0.0, False
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told["what"] == "plan":
            planned, cpu_before, inferring = told["at"], meter.cpu, True
        elif told["what"] == "models" and inferring:
            arm.models_wall += told["at"] - planned
            inferring = False
        elif told["what"] == "commit":
            arm.wall += told["at"] - planned
            arm.cpu += meter.cpu - cpu_before
    _finish(process)
    arm.peak_mb = meter.stop().peak_mb
    return arm


def _start(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, "--arm", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD, **environment})


def _finish(process: "subprocess.Popen[str]") -> None:
    if process.wait() != 0:
        raise SystemExit(f"{process.args} failed")


def texts_of(lake: Path, kind: Kind) -> dict[str, str]:
    from headwater import lake as lakes

    with lakes.open(lake) as opened:
        rows = opened.sql(f"select split_part(object_id, '/', -1) as name, text from {kind.table}")["rows"]
    return {row["name"]: row["text"] for row in rows}


def units_of(directory: Path, kind: Kind, count: int) -> float:
    """Seconds of sound, or pictures, in the first `count` objects."""
    if kind.folder != "speech":
        return count
    return sum((path.stat().st_size - 44) / 32_000 for path in sorted(directory.glob("*/*.wav"))[:count])


def bench(kind: Kind, count: int, rounds: int, *, with_before: bool) -> None:
    directory, scratch = make_media(kind, count), corpus.SCRATCH
    half = count // 2
    before = f"by {kind.before}"
    arms: dict[str, list[Arm]] = {"one process": [], "two processes": [], "Headwater": []} | (
        {before: []} if with_before else {}
    )
    for number in range(rounds):
        lake, one, two = scratch / f"models-{kind.folder}", scratch / "one.json", scratch / "two.json"
        former = scratch / f"models-{kind.folder}-before"
        for each in (lake, former):
            shutil.rmtree(each, ignore_errors=True)
            land(directory, each)
        named = {f"HEADWATER_MODELS_{kind.step.upper()}": kind.before}
        turns = [
            ("two processes", lambda two=two: measure_plain(directory, two, WORKERS, count)),
            ("Headwater", lambda lake=lake: measure_headwater(lake)),
            (before, lambda former=former, named=named: measure_headwater(former, **named)),
            ("one process", lambda one=one: measure_plain(directory, one, 1, half)),
        ]
        for name, turn in turns if number % 2 == 0 else turns[::-1]:
            if name in arms:
                arms[name].append(turn())
        said = json.loads(two.read_text())
        assert said == texts_of(lake, kind), "texts differ"
        assert json.loads(one.read_text()).items() <= said.items(), "texts differ"
    whole, part = units_of(directory, kind, count), units_of(directory, kind, half)
    show(kind, arms, {"one process": part, "two processes": whole, "Headwater": whole, before: whole}, count)


def show(kind: Kind, arms: dict[str, list[Arm]], units: dict[str, float], count: int) -> None:
    amount = f"{units['Headwater']:.0f} s of sound" if kind.folder == "speech" else f"{count} screens"
    rounds, load = len(arms["Headwater"]), os.getloadavg()[0]
    print(f"\n{kind.step}: {count} objects, {amount}, {rounds} rounds (load {load:.1f}); texts proven equal")
    print(f"{'arm':<16}{kind.unit:>14}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}   each round's pace")
    for name, done in arms.items():
        paces = [units[name] / arm.wall for arm in done]
        wall, cpu = statistics.median(arm.wall for arm in done), statistics.median(arm.cpu for arm in done)
        peak = max(arm.peak_mb for arm in done)
        each = ", ".join(f"{pace:.2f}" for pace in paces)
        print(f"{name:<16}{statistics.median(paces):>14.2f}{wall:>9.1f}{cpu:>9.1f}{peak:>9.0f}   {each}")
    both = list(zip(arms["two processes"], arms["Headwater"], strict=True))
    whole = statistics.median(two.wall / ours.wall for two, ours in both)
    models = statistics.median(two.wall / ours.models_wall for two, ours in both)
    work = statistics.median(two.cpu / ours.cpu for two, ours in both)
    met = "reached" if whole >= GOAL else "NOT reached"
    print(f"Headwater beside two processes: {whole:.2f} of their pace (goal {GOAL}, {met}); "
          f"without the commits {models:.2f}; their CPU seconds are {work:.2f} of its")  # fmt: skip
    show_more(kind, arms)


def show_more(kind: Kind, arms: dict[str, list[Arm]]) -> None:
    former = arms.get(f"by {kind.before}")
    if former:
        more = statistics.median(old.cpu / new.cpu for old, new in zip(former, arms["Headwater"], strict=True))
        met = "reached" if more >= kind.times else "NOT reached"
        print(f"A CPU second does {more:.2f} × as much as by {kind.before} (goal {kind.times}, {met})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--pictures", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="speech,pictures")
    parser.add_argument("--without-before", action="store_true", help="without the default of earlier lakes")
    parser.add_argument("--arm", nargs="+", help="internal: run one arm")
    options = parser.parse_args()
    if options.arm:
        _arm(*options.arm)
        return
    for name, count in (("speech", options.calls), ("pictures", options.pictures)):
        if name in options.only.split(","):
            bench(KINDS[name], count, options.rounds, with_before=not options.without_before)


def _arm(name: str, place: str, *more: str) -> None:
    if name == "headwater":
        headwater(Path(place))
        return
    output, numbers = Path(more[0]), [int(number) for number in more[1:]]
    plain(Path(place), output, *numbers)


if __name__ == "__main__":
    main()
