"""Ten times the data: what each task costs on a large lake beside a tenth of it.

A lake of a million small pictures (one in a hundred is broken) and ten million lines of chat is made cheaply: files are
written without syncs and announced in large batches; models do nearly nothing. Then each task is run as a process of
its own, and so on a lake of a tenth: run, replay of a step, retry, status, maintain, rescan, backup. Printed are wall,
CPU seconds and peak memory (all processes of the task, shared pages once) of both, and the ratios.
Goals: no task takes more than 12 times as long, or 1.5 times the memory. Takes hours; `--objects` and `--chats` take
less.
"""

import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
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
from headwater.flow.land import text_event

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


def task(directory: Path, arguments: tuple[str, ...]) -> tuple[Measured, dict[str, Any]]:
    backup = str(directory.parent / f"{directory.name}.backup")
    line = [backup if one == "BACKUP" else one for one in arguments]
    command = [sys.executable, "-m", "headwater", "--lake", str(directory), *line, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    meter = Meter(process.pid, seconds=0.5)
    out, errors = process.communicate()
    measured = meter.stop()
    assert process.returncode == 0, f"{' '.join(line)}: {errors[-2000:]}"
    return measured, json.loads(out)


def measure(directory: Path) -> dict[str, Measured]:
    found = {}
    for name, arguments in TASKS.items():
        measured, told = task(directory, arguments)
        found[name] = measured
        print(f"  {name:<10}{measured.wall:>9.1f} s{measured.cpu:>9.1f} CPU s{measured.peak_mb:>8.0f} MB", flush=True)
        if name == "status":
            rows = {table["name"]: table["rows"] for table in told["tables"]}
            print(f"  {'':<10}{rows}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--chats", type=int, default=10_000_000)
    parser.add_argument("--where", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headwater-scale-", dir=options.where))
    found: dict[str, dict[str, Measured]] = {}
    try:
        for name, share in (("a tenth", 10), ("all", 1)):
            objects, chats = options.objects // share, options.chats // share
            print(f"{name}: {objects:,} objects, {chats:,} lines", flush=True)
            make(root / name.replace(" ", "-"), objects, chats)
            found[name] = measure(root / name.replace(" ", "-"))
            shutil.rmtree(root / name.replace(" ", "-"))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for name in TASKS:
        small, large = found["a tenth"][name], found["all"][name]
        time_ratio, memory_ratio = large.wall / small.wall, large.peak_mb / small.peak_mb
        short = time_ratio > TIME_GOAL or memory_ratio > MEMORY_GOAL
        print(f"{name:<10} × {time_ratio:>5.1f} time, × {memory_ratio:>5.2f} memory{'   falls short' if short else ''}")


if __name__ == "__main__":
    main()
