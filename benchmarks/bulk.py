"""An import of a million chat rows with metadata, beside plain Python that writes the same rows to Parquet, in one run.

Both read the same CSV. Plain Python takes the fields that an event has, and the rest as JSON, and writes them with
PyArrow; Headwater makes an event of each row and publishes it: it checks what later stages rely on, hashes, and syncs.
Equal means the same ids, customers, times, texts, threads and metas, in the same order. The second import is a no-op
where its events are those of the first, by the hash that bronze judges them by; and after an import that was killed and
done again the log has every row, and of none two contents. What bronze takes is what benchmarks/claims.py measures.

    python benchmarks/bulk.py [--rows 1000000] [--scratch DIRECTORY]
"""

import argparse
import csv
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from measure import Measured, Meter

import headwater
from headwater.clock import parse_time, to_text
from headwater.domain.line import read_line
from headwater.storage.log.directory_log import DirectoryLog

HEADER: Final = ("ticket", "account", "created", "body", "conv", "channel", "minutes", "agent", "product")
MAP: Final = {"id": "ticket", "customer": "account", "at": "created", "text": "body", "thread": "conv"}
META: Final = HEADER[5:]
FIELDS: Final = ("id", "customer", "at", "text", "thread", "meta")
AT_ONCE: Final = 5_000


def write_csv(path: Path, rows: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for n in range(rows):
            day, second = 1 + n % 28, n % 86_400
            at = f"2026-03-{day:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
            body = f"Where is my refund number {n}?" + ("\nI asked twice, and nobody calls." if n % 9 == 0 else "")
            about = (("phone", "mail", "chat")[n % 3], n % 60, f"agent {n % 97}", f"product {n % 1_013}")
            writer.writerow((f"t{n}", f"customer-{n % 50}", at, body, f"c{n // 30}", *about))


def plain(source: Path, target: Path) -> None:
    """The same fields, checked by nobody."""
    schema = pa.schema([(name, pa.string()) for name in FIELDS])
    with (
        source.open(newline="", encoding="utf-8") as file,
        pq.ParquetWriter(target, schema, compression="zstd") as writer,
    ):
        held: list[dict[str, str]] = []
        for row in csv.DictReader(file):
            meta = json.dumps({name: row[name] for name in META}, ensure_ascii=False, sort_keys=True)
            moment = to_text(parse_time(row["created"]))
            known = (row["ticket"], row["account"], moment, row["body"], row["conv"], meta)
            held.append(dict(zip(FIELDS, known, strict=True)))
            if len(held) == AT_ONCE:
                writer.write_table(pa.Table.from_pylist(held, schema))
                held = []
        writer.write_table(pa.Table.from_pylist(held, schema))


def ours(source: Path, lake: Path) -> None:
    with headwater.open(lake) as opened:
        imported = opened.put_rows(source, map=MAP)
        print(json.dumps({"stored": imported.stored, "rejected": imported.rejected}), flush=True)


def events(lake: Path) -> Iterator[dict[str, Any]]:
    log = DirectoryLog(lake / "log", retention_hours=1)
    for _, data in log.segments(0):
        for line in data.splitlines():
            yield json.loads(line)["event"]


def digest(rows: Iterator[tuple[Any, ...]]) -> tuple[int, str]:
    hashed, count = hashlib.sha256(), 0
    for row in rows:
        hashed.update(json.dumps(row, sort_keys=True).encode())
        count += 1
    return count, hashed.hexdigest()


def of_parquet(path: Path) -> Iterator[tuple[Any, ...]]:
    for batch in pq.ParquetFile(path).iter_batches(AT_ONCE):
        for row in batch.to_pylist():
            yield (*(row[name] for name in FIELDS[:-1]), json.loads(row["meta"]))


def of_lake(lake: Path) -> Iterator[tuple[Any, ...]]:
    for event in events(lake):
        yield (
            event["event_id"],
            event["customer"],
            event["occurred_at"],
            event["text"],
            event["thread"],
            event["meta"],
        )


def contents(lake: Path) -> tuple[int, set[bytes]]:
    """How many events there are, and the hashes of their contents, as bronze judges them by."""
    found, count = set(), 0
    for event in events(lake):
        line = read_line(json.dumps(event).encode())
        found.add(bytes.fromhex(line.content_hash or ""))
        count += 1
    return count, found


def measured(what: str, *places: Path, kill_after: float | None = None) -> tuple[Measured, str]:
    command = [sys.executable, __file__, "--do", what, *map(str, places)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        meter = Meter(child.pid, 0.1)
        if kill_after is not None:
            time.sleep(kill_after)
            child.send_signal(signal.SIGKILL)
        told, _ = child.communicate()
        if child.returncode not in {0, -signal.SIGKILL}:
            raise SystemExit(f"{what} failed with {child.returncode}")
    return meter.stop(), told


def new_lake(path: Path) -> Path:
    headwater.init(path).close()
    return path


def report(name: str, cost: Measured, rows: int) -> None:
    rates = f"{rows / cost.wall:>9,.0f} rows/s  {rows / cost.cpu:>9,.0f} rows a CPU second"
    print(f"{name:<28} {cost.wall:>7.1f} s  {cost.cpu:>7.1f} CPU s  {cost.peak_mb:>6.0f} MB  {rates}", flush=True)


def compare(scratch: Path, rows: int) -> None:
    source, target = scratch / "rows.csv", scratch / "rows.parquet"
    write_csv(source, rows)
    print(f"{rows:,} rows, {source.stat().st_size >> 20} MB of CSV", flush=True)
    by_plain, _ = measured("plain", source, target)
    report("plain Python to Parquet", by_plain, rows)
    lake = new_lake(scratch / "lake")
    by_ours, told = measured("ours", source, lake)
    report("headwater put --from", by_ours, rows)
    print(f"{told.strip()}  CPU ratio {by_ours.cpu / by_plain.cpu:.2f}, wall ratio {by_ours.wall / by_plain.wall:.2f}")
    print("equal:", digest(of_parquet(target)) == digest(of_lake(lake)), flush=True)
    again, _ = measured("ours", source, lake)
    report("a second time", again, rows)
    count, distinct = contents(lake)
    print(f"second import is a no-op: {count == 2 * rows and len(distinct) == rows}", flush=True)
    killed = new_lake(scratch / "killed")
    measured("ours", source, killed, kill_after=by_ours.wall / 2)
    before, _ = contents(killed)
    measured("ours", source, killed)
    count, distinct = contents(killed)
    once = count == before + rows and len(distinct) == rows
    print(f"killed after {before:,} events and repeated, every row once: {once}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--do", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.do:
        what, source, target = given.do
        {"plain": plain, "ours": ours}[what](Path(source), Path(target))
        return
    if given.scratch:
        given.scratch.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="bulk-", dir=given.scratch))
    try:
        compare(scratch, given.rows)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
