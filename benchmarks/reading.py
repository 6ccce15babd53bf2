"""What a question costs on a disk and on S3: seconds, peak memory, and the bytes and requests that the server answered.

Two lakes with the same rows, one on this machine and one on the stack's S3 server, are built once and kept in the
scratch directory. Each question is asked in a process of its own, and both answers must be equal. Seconds are those of
the second time it is asked there, without imports; memory is the peak of the process and its child, imports included.
Bytes and requests are counted on a wire before the server, for the first time in a process of its own.

    python benchmarks/reading.py [--scratch DIRECTORY] [--rows 102000] [--dimension 384]
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headwater
from headwater.components import Components
from headwater.domain.progress import NEXT_SEQ
from headwater.domain.tables import EMBEDDINGS, EVENTS, QUARANTINE, Table
from headwater.settings import FILE_NAME
from headwater.stack.stack import Stack
from headwater.storage.tables import catalog as catalogs

SEED: Final = 20260301
FILE_ROWS: Final = 20_000
SET_ASIDE: Final = 2_000
CUSTOMERS: Final = 50
DAY: Final = datetime(2026, 3, 1, tzinfo=UTC)
BUCKET: Final = "reading"
QUESTIONS: Final = {
    "sql, one value, limit 1": "lake.sql('select 1 as one from embeddings limit 1')",
    "sql, two columns, limit 1": "lake.sql('select object_id, text from embeddings order by seq limit 1')",
    "sql, all columns, limit 1": "lake.sql('select * from embeddings limit 1')",
    "sql, filter": "lake.sql(\"select count(*) as n, min(text) as t from embeddings where customer = 'customer-07'\")",
    "sql, projection": "lake.sql('select customer, count(*) as n from embeddings group by 1 order by 1')",
    "sql, one object": "lake.sql(\"select text, vector from embeddings where object_id = '{object}'\")",
    "sql, every vector": "lake.sql('select round(sum(vector[1]), 3) as s from embeddings')",
    "show": "lake.sql('select object_id, text from embeddings order by seq desc limit 10')",
    "trace": "dict(lake.trace('{object}'), refs=[])",
    "status": "lake.status()",
    "metrics": "[line for line in lake.metrics().splitlines() if 'age_seconds' not in line]",
}
PROBE: Final = """
import json, resource, sys, time
import headwater
with headwater.open(sys.argv[1]) as lake:
    for _ in range(int(sys.argv[2])):
        begun = time.perf_counter()
        answer = {call}
        seconds = time.perf_counter() - begun
# Not ru_maxrss, which a process has from the one that started it.
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
peak = (own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024
print(json.dumps([seconds, peak, answer], default=str, sort_keys=True))
"""


@dataclass
class Told:
    seconds: float
    mb: float
    answer: Any


class Wire:
    """Passes bytes on to a server and counts its answers."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self.bytes, self.requests = 0, 0
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                for source, target, back in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(source, target, back), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 18):
                with self._lock:
                    self.bytes += len(data) if back else 0
                    self.requests += 0 if back else data.count(b" HTTP/1.1\r\n")
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def build(lake: Path, rows: int, dimension: int) -> None:
    """As the flow would have written it: files of a day each, with Iceberg's field numbers."""
    with headwater.open(lake) as opened:
        parts = Components(opened.settings)
        catalog = parts.catalog
        random = np.random.default_rng(SEED)
        for first in range(0, rows, FILE_ROWS):
            batch = _embeddings(random, first, min(FILE_ROWS, rows - first), dimension)
            _append(catalog, EMBEDDINGS, batch, first // FILE_ROWS)
            _append(catalog, EVENTS, _events(batch), first // FILE_ROWS)
            print(f"  {first + len(batch):>7} of {rows}", file=sys.stderr)
        _append(catalog, QUARANTINE, _set_aside(), 0)
        parts.index.upsert(batch.slice(0, 1000))
    (lake / "built").touch()


def _about(first: int, count: int) -> dict[str, Any]:
    number = np.arange(first, first + count)
    customer = [f"customer-{n % CUSTOMERS:02}" for n in number]
    same = [DAY + timedelta(days=first // FILE_ROWS)] * count
    paths = [object_id(int(n)) for n in number]
    facts = {"offset": 0, "content_type": "audio/wav"}
    pointers = [{**facts, "path": path, "size": int(n), "checksum": f"{n:064x}"}
                for n, path in zip(number, paths, strict=True)]  # fmt: skip
    return {"seq": number, "object_id": paths, "customer": customer, "modality": ["audio"] * count,
            "event_id": [f"e{n:08}" for n in number], "occurred_at": same, "pointer": pointers}  # fmt: skip


def object_id(number: int) -> str:
    return f"audio/customer-{number % CUSTOMERS:02}/2026-03-01/{number:08}.wav"


def _embeddings(random: np.random.Generator, first: int, count: int, dimension: int) -> pa.Table:
    about = _about(first, count)
    words = random.integers(0, 9_000, (count, 20))
    columns: dict[str, Any] = about | {
        "derived_at": about["occurred_at"], "step": ["embed"] * count, "model": ["m 1"] * count,
        "fingerprint": ["f"] * count, "chunk_id": [f"{n:024x}" for n in about["seq"]], "chunk": [0] * count,
        "source_table": ["silver.transcripts"] * count, "source_fingerprint": ["s"] * count,
        "source_model": ["s 1"] * count, "text": [" ".join(f"w{word}" for word in line) for line in words],
        "locator": [None] * count, "vector": list(random.random((count, dimension), np.float32)),
        **{name: [None] * count for name in ("model_seconds", "tokens", "cost", "attempts")},
    }  # fmt: skip
    return pa.table(columns, schema=EMBEDDINGS.schema).sort_by([("customer", "ascending"), ("object_id", "ascending")])


def _events(embeddings: pa.Table) -> pa.Table:
    count = embeddings.num_rows
    given = {"content_hash": embeddings["chunk_id"], "first_of_object": [True] * count, "text": [None] * count,
             "log_partition": [0] * count, "log_offset": embeddings["seq"],
             "bronze_at": embeddings["derived_at"]}  # fmt: skip
    columns = {name: given[name] if name in given else embeddings[name] for name in EVENTS.schema.names}
    return pa.table(columns, schema=EVENTS.schema)


def _set_aside() -> pa.Table:
    about = _about(0, SET_ASIDE)
    random = np.random.default_rng(SEED)
    given = about | {
        "step": ["bronze"] * SET_ASIDE, "reason": ["BAD_EVENT", "TRUNCATED"] * (SET_ASIDE // 2),
        "attempts": [1] * SET_ASIDE, "quarantined_at": about["occurred_at"],
        "payload": [random.bytes(2_000).hex() for _ in range(SET_ASIDE)],
    }  # fmt: skip
    columns = {name: given.get(name, [None] * SET_ASIDE) for name in QUARANTINE.schema.names}
    return pa.table(columns, schema=QUARANTINE.schema)


def _append(catalog: Any, table: Table, rows: pa.Table, day: int) -> None:
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
        schema_to_pyarrow,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    loaded = catalog.load_table(table.name)
    location = f"{loaded.location()}/data/{uuid.uuid4().hex}.parquet"
    with loaded.io.new_output(location).create() as stream:
        pq.write_table(rows.cast(schema_to_pyarrow(loaded.schema())), stream, compression="zstd", store_schema=False)
    written = loaded.io.new_input(location)
    with written.open() as stream:
        footer = pq.read_metadata(stream)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(loaded.schema(), loaded.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(loaded.schema()),
    )
    since = (DAY + timedelta(days=day) - datetime(1970, 1, 1, tzinfo=UTC)).days
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=location, file_format=FileFormat.PARQUET,
        partition=Record(since), file_size_in_bytes=len(written), sort_order_id=None, spec_id=0,
        equality_ids=None, key_metadata=None, **statistics.to_serialized_dict(),
    )  # fmt: skip
    with loaded.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    catalogs.set_properties_if(catalog, table.name, {}, {NEXT_SEQ: str(rows["seq"][-1].as_py() + 1)})


def ask(lake: Path, call: str, endpoint: str | None = None) -> Told:
    environment = os.environ | ({"HEADWATER_S3_ENDPOINT": endpoint} if endpoint else {})
    line = [sys.executable, "-c", PROBE.format(call=call), str(lake), "1" if endpoint else "2"]
    answer = subprocess.run(line, check=True, env=environment, stdout=subprocess.PIPE)
    return Told(*json.loads(answer.stdout))


def report(disk: Path, s3: Path, port: int, rows: int, only: str) -> None:
    print(f"{rows:,} rows; disk : S3")
    print(f"{'question':28} {'seconds':>15} {'MB':>13} {'fetched kB':>12} {'requests':>9}  equal")
    for name, template in QUESTIONS.items():
        if only not in name:
            continue
        call = template.format(object=object_id(rows // 2)) if "{object}" in template else template
        here, there = ask(disk, call), ask(s3, call)
        wire = Wire(port)
        ask(s3, call, f"http://127.0.0.1:{wire.port}")
        seconds, mb = f"{here.seconds:.2f} : {there.seconds:.2f}", f"{here.mb:.0f} : {there.mb:.0f}"
        same = here.answer == there.answer
        print(f"{name:28} {seconds:>15} {mb:>13} {wire.bytes / 1e3:12,.0f} {wire.requests:9}  {same}", flush=True)
        if not same:
            sys.exit(f"On S3 the answer to {name} is another.")


@contextmanager
def s3_server(scratch: Path) -> Iterator[Stack]:
    stack = Stack(scratch / "stack")
    stack.up(["s3"])
    try:
        yield stack
    finally:
        stack.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("HEADWATER_BENCH", os.path.join(tempfile.gettempdir(), "headwater-bench"))
    parser.add_argument("--scratch", type=Path, default=Path(default))
    parser.add_argument("--rows", type=int, default=102_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    options = parser.parse_args()
    scratch = options.scratch / f"reading-{options.rows}-{options.dimension}"
    with s3_server(scratch) as stack:
        told = stack.settings(scratch)
        keys = ("s3.endpoint", "s3.access_key", "s3.secret_key")
        lakes = {place: scratch / place for place in ("disk", "s3")}
        for place, lake in lakes.items():
            lake.mkdir(exist_ok=True)
            lines = [f'{key} = "{told[key]}"' for key in keys] if place == "s3" else []
            places = {"catalog.warehouse": "warehouse", "index.uri": "index"} if place == "s3" else {}
            lines += [f'{name} = "s3://{BUCKET}/{prefix}"' for name, prefix in places.items()]
            (lake / FILE_NAME).write_text("\n".join(lines))
            if not (lake / "built").exists():
                _bucket(told)
                headwater.init(lake).close()
                build(lake, options.rows, options.dimension)
        report(lakes["disk"], lakes["s3"], int(told["s3.endpoint"].rpartition(":")[2]), options.rows, options.only)


def _bucket(told: Any) -> None:
    import boto3

    session = boto3.Session(told["s3.access_key"], told["s3.secret_key"], region_name=told["s3.region"])
    client = session.client("s3", endpoint_url=told["s3.endpoint"])
    with suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=BUCKET)


if __name__ == "__main__":
    main()
