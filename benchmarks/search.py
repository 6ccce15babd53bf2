"""How fast a lake of 200,000 embeddings answers: cold commands beside their bare imports, warm search with its recall.

The lake is built once from seeded, support-like sentences and kept in the scratch directory, so a second run measures
at once. Goals: cold at most 0.5 s over the imports, and 1.5 s in all for search; warm search under 10 ms at p50 with
recall@10 of at least 0.98.

    python benchmarks/search.py [--scratch DIRECTORY] [--rows 200000] [--queries 200] [--embedder static]
"""

import argparse
import hashlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import headwater
from headwater import settings as settings_module
from headwater.domain.progress import NEXT_SEQ
from headwater.domain.tables import EMBEDDINGS, EVENTS, Table
from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model
from headwater.flow.search import search
from headwater.settings import Settings
from headwater.storage.index.vector_index import Entry, Filter, open_index
from headwater.storage.tables import catalog as catalogs

SEED: Final = 20260301
BATCH: Final = 10_000
DAY: Final = datetime(2026, 3, 1, tzinfo=UTC)
CUSTOMERS: Final = 50
POINTER: Final = {"offset": 0, "size": 1, "content_type": "text/plain", "checksum": "0" * 64}
ROUNDS: Final = 3
COMMON: Final = (
    "the", "a", "to", "and", "i", "you", "is", "my", "it", "for", "not", "can", "we", "please", "order", "account",
    "invoice", "refund", "laptop", "password",
)  # fmt: skip

# What each command loads anyway, and the call that its face makes.
COLD: Final[dict[str, tuple[str, str]]] = {
    "status": ("pyarrow, duckdb, obstore, pyiceberg.catalog.noop", "lake.status()"),
    "sql": (
        "pyarrow, duckdb, pyiceberg.catalog.noop",
        "lake.sql('select customer, count(*) from embeddings group by 1')",
    ),
    "trace": ("pyarrow, duckdb, obstore, pyiceberg.catalog.noop", "lake.trace({chunk!r})"),
    "search": ("lancedb, obstore", "lake.search('refund for a broken laptop', limit=10)"),
}


def sentences(count: int, seed: int) -> Iterator[str]:
    """Support talk: some topics, each with words of its own, among words that everybody uses."""
    vocabulary = np.random.default_rng(SEED)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = sorted({"".join(vocabulary.choice(letters, vocabulary.integers(3, 10))) for _ in range(9_000)})
    topics = [vocabulary.choice(words, 60, replace=False) for _ in range(400)]
    draw = random.Random(seed)
    for _ in range(count):
        topic = draw.choice(topics)
        length = draw.randint(8, 30)
        yield " ".join(str(draw.choice(topic)) if draw.random() < 0.55 else draw.choice(COMMON) for _ in range(length))


def build(settings: Settings, embedder: Model, rows: int) -> dict[str, float]:
    """Seconds of each part. The tables get what the flow would have written."""
    catalog = catalogs.open_catalog(settings)
    index = open_index(settings)
    seconds: defaultdict[str, float] = defaultdict(float)
    texts = list(sentences(rows, SEED))
    for first in range(0, rows, BATCH):
        with _timed(seconds, "embed"):
            vectors = embedder.run(texts[first : first + BATCH])
        batch = _embeddings(first, texts[first : first + BATCH], vectors, embedder)
        with _timed(seconds, "append"):
            _append(catalog.load_table(EMBEDDINGS.name), EMBEDDINGS, batch)
        _append(catalog.load_table(EVENTS.name), EVENTS, _events(batch))
        with _timed(seconds, "upsert"):
            index.upsert(batch)
        print(f"  {first + len(batch):>7} of {rows}", file=sys.stderr)
    catalogs.set_properties_if(catalog, EMBEDDINGS.name, {}, {NEXT_SEQ: str(rows)})
    catalogs.set_properties_if(catalog, EVENTS.name, {}, {NEXT_SEQ: str(rows)})
    index.set_position(rows)
    with _timed(seconds, "optimise"):
        index.optimise()
    return seconds


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[part] += time.perf_counter() - start


def _embeddings(first: int, texts: Sequence[str], vectors: Sequence[Any], embedder: Model) -> pa.Table:
    """Sorted by customer and of one day, as a compacted file of the flow is."""
    number = np.arange(first, first + len(texts))
    customer = [f"customer-{n % CUSTOMERS:02}" for n in number]
    paths = [f"chat/{who}/{n:08}" for who, n in zip(customer, number, strict=True)]
    count, same = len(texts), DAY + timedelta(days=first // BATCH)
    columns: dict[str, Any] = {
        "seq": number, "object_id": paths, "customer": customer, "modality": ["chat"] * count,
        "step": ["embed"] * count, "model": [embedder.card.label] * count,
        "fingerprint": [embedder.card.fingerprint] * count,
        "event_id": [f"e{n:08}" for n in number], "occurred_at": [same] * count, "derived_at": [same] * count,
        "pointer": [{**POINTER, "path": path} for path in paths],
        "chunk_id": [chunk_id(int(n)) for n in number], "chunk": [0] * count,
        "source_table": ["silver.messages"] * count,
        "source_fingerprint": ["inline"] * count, "source_model": ["inline"] * count, "text": texts,
        "locator": [None] * count, "vector": list(vectors),
        "model_seconds": [0.0] * count, "tokens": [0] * count, "cost": [0.0] * count, "attempts": [1] * count,
    }  # fmt: skip
    given = {name: columns.get(name, [None] * count) for name in EMBEDDINGS.schema.names}
    return pa.table(given, schema=EMBEDDINGS.schema).sort_by([("customer", "ascending"), ("object_id", "ascending")])


def chunk_id(number: int) -> str:
    return hashlib.blake2b(str(number).encode(), digest_size=12).hexdigest()


def _events(embeddings: pa.Table) -> pa.Table:
    count = embeddings.num_rows
    given = {"content_hash": ["0"] * count, "first_of_object": [True] * count, "log_partition": [0] * count,
             "log_offset": embeddings["seq"], "bronze_at": embeddings["derived_at"]}  # fmt: skip
    nulls = [None] * count
    return pa.table({name: given.get(name, embeddings[name] if name in EMBEDDINGS.schema.names else nulls)
                     for name in EVENTS.schema.names}, schema=EVENTS.schema)  # fmt: skip


def _append(table: Any, value: Table, rows: pa.Table) -> None:
    path = Path(table.location().removeprefix("file://")) / "data" / f"{rows['seq'][0].as_py():08}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Row groups as Iceberg's writer cuts them for wide rows: small enough to skip.
    pq.write_table(rows.cast(value.schema), path, compression="zstd", row_group_size=10_000)
    table.add_files([f"file://{path}"])


def cold(lake: Path, chunk: str) -> None:
    print(f"{'cold':8} {'imports s':>10} {'answer s':>10} {'over s':>8}   (best of {ROUNDS}, processes take turns)")
    for name, (imports, call) in COLD.items():
        bare = f"import {imports}"
        full = f"import headwater\nwith headwater.open({str(lake)!r}) as lake:\n    {call.format(chunk=chunk)}"
        walls = [(_wall(bare), _wall(full)) for _ in range(ROUNDS)]
        library, answer = min(wall[0] for wall in walls), min(wall[1] for wall in walls)
        print(f"{name:8} {library:10.2f} {answer:10.2f} {answer - library:8.2f}")


def _wall(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def warm(settings: Settings, embedder: Model, rows: int, queries: int) -> None:
    """Every filter in turn for each question, by vector alone and as a whole, so that all see the same machine."""
    index = open_index(settings)
    asked = [" ".join(text.split()[:6]) for text in sentences(queries, SEED + 1)]
    probes = np.stack(embedder.run(asked))
    everything = _all_vectors(settings, rows, probes.shape[1])
    walls: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    recall: defaultdict[str, float] = defaultdict(float)
    chosen = _chosen(rows)
    for text, probe in zip(asked, probes, strict=True):
        for name, (given, members) in chosen.items():
            start = time.perf_counter()
            hits = index.search(embedder.card.fingerprint, probe, 10, Filter(**given))
            walls["vector", name].append(time.perf_counter() - start)
            recall[name] += _recall(hits, everything[members] @ probe) / queries
            start = time.perf_counter()
            search(index, embedder, text, embedded=rows, **given)
            walls["search", name].append(time.perf_counter() - start)
    print(f"\n{'warm, by':34} {'p50 ms':>8} {'p95 ms':>8} {'recall@10':>10}   (load {os.getloadavg()[0]:.0f})")
    for (way, name), seconds in sorted(walls.items()):
        _report(f"{way}, {name}", seconds, recall[name] if way == "vector" else None)


def _chosen(rows: int) -> dict[str, tuple[dict[str, Any], npt.NDArray[np.int64]]]:
    """Filters, and the rows that they let through."""
    seq = np.arange(rows)
    mine, day = seq % CUSTOMERS == 7, seq // BATCH
    half, tenth = int(day.max() + 1) // 2, int(day.max() + 1) * 9 // 10
    customer = {"customer": "customer-07"}
    since = {first: {"since": DAY + timedelta(days=first)} for first in (half, tenth)}
    return {
        "everything": ({}, seq),
        "since, half of it": (since[half], seq[day >= half]),
        "since, a tenth": (since[tenth], seq[day >= tenth]),
        "one customer, a fiftieth": (customer, seq[mine]),
        "customer and since, a hundredth": ({**customer, **since[half]}, seq[mine & (day >= half)]),
    }


def _recall(hits: Sequence[Entry], scores: npt.NDArray[np.float32]) -> float:
    # Of equally near neighbours any will do, so a hit counts when it is as near as the tenth.
    tenth = np.partition(scores, -10)[-10]
    return sum(hit.score >= tenth - 1e-5 for hit in hits) / 10


def _report(name: str, walls: Sequence[float], recall: float | None) -> None:
    middle, high = statistics.median(walls) * 1e3, statistics.quantiles(walls, n=20)[-1] * 1e3
    print(f"{name:34} {middle:8.1f} {high:8.1f} {'' if recall is None else format(recall, '10.3f')}")


def _all_vectors(settings: Settings, rows: int, dimension: int) -> npt.NDArray[np.float32]:
    """By seq."""
    everything = np.zeros((rows, dimension), np.float32)
    for path in (settings.lake / "warehouse").rglob("*.parquet"):
        if "embeddings" in str(path):
            part = pq.read_table(path, columns=["seq", "vector"])
            flat = part["vector"].combine_chunks().flatten().to_numpy()
            everything[part["seq"].to_numpy()] = flat.reshape(-1, dimension)
    return everything


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("HEADWATER_BENCH", os.path.join(tempfile.gettempdir(), "headwater-bench"))
    parser.add_argument("--scratch", type=Path, default=Path(default))
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--embedder", choices=["static", "lexical"], default="static")
    options = parser.parse_args()
    lake = options.scratch / f"search-{options.embedder}-{options.rows}"
    embedder = load_model(options.embedder)
    embedder.load()
    settings = settings_module.resolve(lake, {}, {}, {})
    if not (lake / "built").exists():
        headwater.init(lake).close()
        seconds = build(settings, embedder, options.rows)
        print("built   " + ", ".join(f"{part} {value:.1f} s" for part, value in seconds.items()))
        (lake / "built").touch()
    cold(lake, chunk_id(options.rows // 2))
    warm(settings, embedder, options.rows, options.queries)


if __name__ == "__main__":
    main()
