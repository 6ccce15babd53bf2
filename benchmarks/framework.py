"""What the framework costs: the same cheap steps over the same corpus, in plain Python and in Headwater, in one run.

The floor is two processes that call the very step functions and write Parquet. Headwater lands the corpus first (timed
apart, since the floor reads the files in place), then runs log → bronze → derive → embed on Spark; the index has no
counterpart in the floor, so a second run makes it: stages go on at the same time, and only so can their costs be told
apart. Rows are proven equal. Goal: CPU at most 1.3 × the floor plus the JVM's fixed start, peak memory under 3 GB.
"""

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Measured, Meter

HERE = Path(__file__).parent
SETTINGS = '[models]\ntranscribe = "features:CallFeatures"\ncaption = "features:PictureFeatures"\nembed = "lexical"\n'
VALUES = {"models.transcribe": "features:CallFeatures", "models.caption": "features:PictureFeatures"}


def floor(media: Path, output: Path) -> None:
    """Plain Python: a pool of two, the same step functions, the same embedder, Parquet."""
    files = sorted([*(media / "calls").iterdir(), *(media / "pictures").iterdir()])
    lines = (media / "chat.txt").read_text().splitlines()
    parts = [files[start : start + 100] for start in range(0, len(files), 100)]
    parts += [lines[start : start + 1000] for start in range(0, len(lines), 1000)]  # type: ignore[misc]
    output.mkdir(parents=True)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for number, rows in enumerate(pool.imap(_floor_part, parts)):
            pq.write_table(rows, output / f"{number:05d}.parquet", compression="zstd")


def _floor_part(part: list[Any]) -> pa.Table:
    import hashlib

    from headwater.domain.chunks import chunks_of
    from headwater.domain.modality import classify
    from headwater.flow.derive.chat import message_result
    from headwater.flow.derive.registry import function_of
    from headwater.flow.derive.source import Limits, Source
    from headwater.flow.derive.step import Models
    from headwater.flow.models.lexical import Lexical

    models, limits, rows = Models(VALUES, {}), Limits.from_settings({}), []
    for item in part:
        if isinstance(item, str):
            rows.append({"id": f"chat-{item.split()[0]}", "text": message_result(item)["text"]})
            continue
        data = item.read_bytes()
        modality, content_type = classify(item.name) or (None, "")
        source = Source(data, content_type, limits)
        row: dict[str, Any] = {"id": item.name, "checksum": hashlib.sha256(data).hexdigest()}
        for step in modality.steps if modality else ():
            if not step.setting or step.setting in VALUES:
                row |= function_of(modality, step)(source, models) or {}
        rows.append(row)
    chunks = [next(iter(chunks_of(row["text"], []))).text for row in rows]
    vectors = Lexical().run(chunks)
    kept = ("id", "text", "duration_ms", "width", "height")
    kinds = pa.schema([(name, pa.string() if name in {"id", "text"} else pa.int64()) for name in kept])
    table = pa.Table.from_pylist([{name: row.get(name) for name in kept} for row in rows], kinds)
    return table.append_column("vector", pa.array([vector.tolist() for vector in vectors], pa.list_(pa.float32())))


def land(media: Path, lake: Path) -> None:
    from headwater import lake as lakes
    from headwater.clock import parse_time
    from headwater.components import Components
    from headwater.domain.event import Event
    from headwater.flow.land_text import text_event

    lake.mkdir(parents=True)
    (lake / "headwater.toml").write_text(SETTINGS)
    at = parse_time("2026-03-01")
    with lakes.init(lake) as opened:
        for folder in ("calls", "pictures"):
            opened.put(media / folder, customer="bench", at=at)
        texts = (media / "chat.txt").read_text().splitlines()
        events: list[Event] = [text_event(text, "bench", f"chat-{text.split()[0]}", at) for text in texts]
        Components(opened.settings).log.publish(events)


def run(lake: Path, how: str) -> None:
    """In a process of its own; tells the parent when Spark has started. `how` may leave the index for another run."""
    from headwater import lake as lakes
    from headwater.flow.drive.index_runner import IndexRunner

    if how == "without index":
        IndexRunner.run_batch = lambda self: None  # type: ignore[method-assign]
    with lakes.open(lake) as opened:
        _ = opened.spark
        print("started", flush=True)
        opened.run()


def measured(arguments: list[str]) -> tuple[Measured, float]:
    """Run an arm; what it cost, and the CPU seconds until it had started Spark."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    meter, start = Meter(process.pid), 0.0
    assert process.stdout is not None
    for _ in process.stdout:
        start = meter.cpu
    if process.wait() != 0:
        raise SystemExit(f"{arguments} failed")
    return meter.stop(), start


def floor_rows(output: Path) -> Iterator[tuple[Any, ...]]:
    rows = pq.read_table(output, columns=["id", "text", "duration_ms", "width", "height"]).to_pylist()
    return (tuple(row.values()) for row in rows)


def lake_rows(lake: Path) -> Iterator[tuple[Any, ...]]:
    from headwater import lake as lakes

    query = """
        with said as (from transcripts union all by name from captions union all by name from messages)
        select case when said.modality = 'chat' then said.event_id else split_part(said.object_id, '/', -1) end as id,
               said.text, duration_ms, width, height
        from said left join metadata using (object_id)
    """
    with lakes.open(lake) as opened:
        rows = opened.sql(query)["rows"]
    return (tuple(row.values()) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--pictures", type=int, default=3000)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--arm", nargs=3, help="internal: run one arm")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if options.arm:
        name, one, other = options.arm
        {"floor": floor, "land": land}[name](Path(one), Path(other)) if name != "run" else run(Path(one), other)
        return
    os.environ["PYTHONPATH"] = str(HERE)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    media = corpus.make_corpus(options.calls, options.pictures, options.lines)
    output, lake = corpus.SCRATCH / "floor", corpus.SCRATCH / "lake"
    for directory in (output, lake):
        shutil.rmtree(directory, ignore_errors=True)
    plain, _ = measured(["--arm", "floor", str(media), str(output)])
    landed, _ = measured(["--arm", "land", str(media), str(lake)])
    flow, flow_start = measured(["--arm", "run", str(lake), "without index"])
    index, index_start = measured(["--arm", "run", str(lake), "the rest"])
    arms = {"plain Python, 2 processes": plain, "headwater put (landing)": landed}
    show(arms | {"headwater run, without the index": flow, "headwater run, the index alone": index})
    same, rest = flow.cpu - flow_start, index.cpu - index_start
    print(f"bronze + derive + embed, what the floor does too: {same / plain.cpu:.2f} × its CPU (goal 1.3)")
    print(f"index included: {(same + rest) / plain.cpu:.2f} ×, beside {flow_start:.1f} s of start")
    print(f"peak memory {max(flow.peak_mb, index.peak_mb):.0f} MB (goal under 3000)")
    assert sorted(floor_rows(output), key=str) == sorted(lake_rows(lake), key=str), "rows differ"
    print("rows proven equal")


def show(arms: dict[str, Measured]) -> None:
    print(f"{'arm':<34}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}")
    for name, row in arms.items():
        print(f"{name:<34}{row.wall:>9.1f}{row.cpu:>9.1f}{row.peak_mb:>9.0f}")


if __name__ == "__main__":
    main()
