"""A stream's index takes no more memory the longer it goes on, and what organising it took is given back."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = """
import datetime, json, sys
from pathlib import Path
import numpy as np, psutil, pyarrow as pa
from headwater.domain.tables import EMBEDDINGS
from headwater.settings import resolve
from headwater.storage.index.lance_index import LanceIndex

directory = Path(sys.argv[1])
index = LanceIndex(str(directory), resolve(directory, {}, {}, {}))
drawn, own = np.random.default_rng(0), psutil.Process()
now, made, seen = datetime.datetime.now(datetime.UTC), 0, []
about = {"customer": "acme", "modality": "chat", "model": "m", "source_model": "x", "occurred_at": now}
prints = {"source_fingerprint": "f" * 16, "fingerprint": "a" * 16}

def bring(count):
    global made
    rows = []
    for number in range(made, made + count):
        vector = drawn.normal(size=1024).astype(np.float32).tolist()
        named = {"chunk_id": f"c{number}", "object_id": f"o{number}", "text": f"line {number}", "seq": number}
        rows.append({**named, **about, **prints, "vector": vector})
    made += count
    index.upsert(pa.Table.from_pylist(rows, schema=EMBEDDINGS.schema))  # what is not given is null
    index.set_position(made, "x")

"""
STREAM = f"""{PARTS}
for _ in range(8):
    bring(1_000)
for round in range(300):
    bring(3)
    if round % 10 == 9:
        index.optimise()
    if round in (99, 299):
        seen.append(own.memory_info().rss >> 20)
print(json.dumps(seen))
"""
ORGANISED = f"""{PARTS}
import ctypes
for _ in range(3):
    bring(3_000)
index.optimise()
held = own.memory_info().rss >> 20
ctypes.CDLL(None).malloc_trim(0)
print(json.dumps([held, own.memory_info().rss >> 20]))
"""


def measured(code: str, directory: Path) -> tuple[int, int]:
    line = [sys.executable, "-c", code, str(directory)]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=600)
    then, now = json.loads(done.stdout)
    return then, now


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc alone keeps memory back")
def test_an_index_that_was_organised_holds_nothing_back_that_it_has_freed(tmp_path: Path) -> None:
    held, needed = measured(ORGANISED, tmp_path / "index")
    assert held < needed + 10, (held, needed)


@pytest.mark.soak
def test_memory_of_many_small_batches_stays_where_it_was_after_the_first_hundred(tmp_path: Path) -> None:
    then, now = measured(STREAM, tmp_path / "index")
    assert now < then * 1.1, (then, now)
