"""Ten times the data: what each task costs on a large lake beside a tenth of it.

A lake of a million small pictures (one in a hundred is broken) and ten million lines of chat is made cheaply: files are
written without syncs and announced in large batches; models do nearly nothing. Then each task is run as a process of
its own, and so on a lake of a tenth: run, replay of a step, retry, status, maintain, rescan, backup. Printed are wall,
CPU seconds and peak memory (all processes of the task, shared pages once) of both, and the ratios.
Goals: no task takes more than 12 times as long, or 1.5 times the memory. Takes hours; `--objects` and `--chats` take
less.

With `--keep DIRECTORY` the lakes and what was measured stay there, and the same line goes on from the task that was cut
short, by `--minutes`, Ctrl-C or a kill. A task that was done in pieces has the sum of their times, so every piece's
start too, and the number of pieces stands beside it.

    python benchmarks/scale.py --keep /var/tmp/scale --minutes 50    # again and again, until it prints the ratios
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from measure import Measured, Meter

from headwater import lake as lakes
from headwater.components import Components
from headwater.domain.event import Event
from headwater.domain.groups import grouped
from headwater.domain.keys import raw_key
from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer
from headwater.flow.land_text import text_event

HERE = Path(__file__).parent
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 90
CUSTOMERS = 50
BROKEN_EVERY = 100
AT_ONCE = 10_000
SETTINGS = """[models]
caption = "scale_models:Corner"
embed = "scale_models:FewNumbers"
[spark]
memory_mb = 2048
"""
TASKS = {
    "run": ("run", "--once"),
    "status": ("status",),
    "retry": ("retry",),
    "replay": ("replay", "caption", "--model", "scale_models:SecondCorner"),
    "maintain": ("maintain",),
    "rescan": ("rescan", "--dry-run"),
    "backup": ("backup", "BACKUP"),
}
TIME_GOAL, MEMORY_GOAL = 12.0, 1.5
NOTED_SECONDS = 20.0  # of a task that is killed, so much may be missing from what it cost


def picture(number: int) -> bytes:
    """A PNG of 2 × 2 whose first pixel is its own; some are cut short."""
    rows = b"".join(b"\0" + struct.pack(">I", number)[1:] + b"\x40\x50\x60" for _ in range(2))
    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    made = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return made[:20] if number % BROKEN_EVERY == 0 else made


def moment(number: int, count: int) -> datetime:
    return BEGIN + timedelta(days=DAYS) * (number / count)


def pictures(raw: Path, count: int) -> Iterator[Event]:
    for number in range(count):
        at = moment(number, count).replace(microsecond=0)
        customer, data = f"c{number % CUSTOMERS}", picture(number)
        key = raw_key(Modality.IMAGE, customer, at, f"p{number}.png")
        place = raw / key
        try:
            place.write_bytes(data)
        except FileNotFoundError:
            place.parent.mkdir(parents=True)
            place.write_bytes(data)
        yield Event(key, Modality.IMAGE, customer, Pointer(key, len(data), "image/png", _digest(data)), at)


def lines(count: int) -> Iterator[Event]:
    for number in range(count):
        at = moment(number, count).replace(microsecond=0)
        text = f"line {number}: my parcel {number % 977} is late, who can tell me more about it?"
        yield text_event(text, f"c{number % CUSTOMERS}", f"m{number}", at)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make(directory: Path, objects: int, chats: int) -> None:
    directory.mkdir(parents=True)
    (directory / "headwater.toml").write_text(SETTINGS, encoding="utf-8")
    with lakes.init(directory) as lake:
        log = Components(lake.settings).log
        for source in (pictures(directory / "raw", objects), lines(chats)):
            for some in grouped(source, lambda _: 1, most_bytes=AT_ONCE, most_items=AT_ONCE):
                log.publish(list(some))


@dataclass(slots=True)
class Phase:
    """What a task has cost until now, in one piece or more."""

    wall: float = 0.0
    cpu: float = 0.0
    peak_mb: float = 0.0
    pieces: int = 0
    done: bool = False

    def plus(self, piece: Measured, *, done: bool) -> "Phase":
        peak = max(self.peak_mb, piece.peak_mb)
        return Phase(self.wall + piece.wall, self.cpu + piece.cpu, peak, self.pieces + 1, done)

    def __str__(self) -> str:
        pieces = f"   in {self.pieces} pieces" if self.pieces > 1 else ""
        return f"{self.wall:>9.1f} s{self.cpu:>9.1f} CPU s{self.peak_mb:>8.0f} MB{pieces}"


@dataclass(slots=True)
class Lake:
    """One of the two. What is not `made` whole is made anew."""

    objects: int
    chats: int
    made: bool = False
    phases: dict[str, Phase] = field(default_factory=dict)


class Notes:
    """What is known of both lakes, in a file that the next piece reads."""

    def __init__(self, directory: Path, lakes: dict[str, Lake]) -> None:
        self._file = directory / "measured.json"
        self.lakes = _read(self._file, lakes) if self._file.exists() else lakes

    def save(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({name: asdict(lake) for name, lake in self.lakes.items()}, indent=1))
        new.replace(self._file)


def _read(file: Path, asked: Mapping[str, Lake]) -> dict[str, Lake]:
    found = {
        name: Lake(**{**kept, "phases": {phase: Phase(**cost) for phase, cost in kept["phases"].items()}})
        for name, kept in json.loads(file.read_text()).items()
    }
    for name, lake in asked.items():
        kept = found[name]
        assert (kept.objects, kept.chats) == (lake.objects, lake.chats), f"{file} is of {kept.objects}, {kept.chats}"
    return found


class CutShort(Exception):
    """The time is over; what was measured is noted."""


def task(directory: Path, name: str, notes: Notes, lake: Lake, until: float) -> dict[str, Any]:
    """One task to its end, or as far as the time goes. What it has cost is noted now and then, for who is killed."""
    backup = str(directory.parent / f"{directory.name}.backup")
    line = [backup if one == "BACKUP" else one for one in TASKS[name]]
    command = [sys.executable, "-m", "headwater", "--lake", str(directory), *line, "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))}
    before, out, errors = lake.phases.get(name, Phase()), "", ""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    meter = Meter(process.pid, seconds=0.5)
    try:
        while process.returncode is None and time.monotonic() < until:
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, errors = process.communicate(timeout=min(NOTED_SECONDS, max(0.1, until - time.monotonic())))
            lake.phases[name] = before.plus(meter.read(), done=False)
            notes.save()
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()
        measured = meter.stop()
    if not out and process.returncode != 0 and time.monotonic() >= until:
        raise CutShort
    assert process.returncode == 0, f"{' '.join(line)}: {errors[-2000:]}"
    lake.phases[name] = before.plus(measured, done=True)
    notes.save()
    answer: dict[str, Any] = json.loads(out)
    return answer


def measure(directory: Path, notes: Notes, lake: Lake, until: float) -> None:
    for name in TASKS:
        known = lake.phases.get(name)
        if known is None or not known.done:
            if time.monotonic() >= until:
                raise CutShort
            answer = task(directory, name, notes, lake, until)
            if name == "status":
                print(f"  {'':<10}{ {table['name']: table['rows'] for table in answer['tables']} }", flush=True)
        print(f"  {name:<10}{lake.phases[name]}", flush=True)


def bring(root: Path, notes: Notes, until: float) -> None:
    for name, lake in notes.lakes.items():
        directory = root / name.replace(" ", "-")
        print(f"{name}: {lake.objects:,} objects, {lake.chats:,} lines", flush=True)
        if not lake.made:
            shutil.rmtree(directory, ignore_errors=True)
            make(directory, lake.objects, lake.chats)
            lake.made = True
            notes.save()
        measure(directory, notes, lake, until)
        shutil.rmtree(directory, ignore_errors=True)


def show(small: Lake, large: Lake) -> None:
    for name in TASKS:
        one, other = small.phases[name], large.phases[name]
        times, cpus, memory = other.wall / one.wall, other.cpu / one.cpu, other.peak_mb / one.peak_mb
        short = max(times, cpus) > TIME_GOAL or memory > MEMORY_GOAL
        print(
            f"{name:<10} × {times:>5.1f} time, × {cpus:>5.1f} CPU time, × {memory:>5.2f} memory"
            f"{'   falls short' if short else ''}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--chats", type=int, default=10_000_000)
    parser.add_argument("--where", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", type=Path, help="a directory of its own; the same line goes on with what is in it")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which a task is cut short")
    options = parser.parse_args()
    until = time.monotonic() + options.minutes * 60
    asked = {
        name: Lake(options.objects // share, options.chats // share) for name, share in (("a tenth", 10), ("all", 1))
    }
    root = options.keep or Path(tempfile.mkdtemp(prefix="headwater-scale-", dir=options.where))
    root.mkdir(parents=True, exist_ok=True)
    try:
        notes = Notes(root, asked)
        bring(root, notes, until)
        show(*notes.lakes.values())
    except CutShort:
        print("cut short" + (f"; the same line goes on with what is in {root}" if options.keep else ""), flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
