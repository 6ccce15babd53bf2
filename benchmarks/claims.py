"""First-seen claims at fifty million keys, in SQLite and in Postgres: seconds for a thousand claims, bytes for each.

The table is filled by SQL, in the order of its keys, half with claims of random ids and half with claims of names in
8,000 folders. Then the real `claim_first` is timed, in batches of 5,000 as a micro-batch makes them: of ids that nobody
has seen (UUIDs, the worst case, as each falls on a page of its own), of new names in today's folders, and of keys that
were claimed before. Sealing a partition and forgetting what was never committed are timed too.
Beside it, up to ten million keys, the table of format 2: the same keys and contents in plain text.
The machine's page cache holds all of it, and disks of others are busy: what the figures show is how they grow.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from headwater.stack.stack import Stack
from headwater.storage.ledger.claims import SCHEMA, hash_claim
from headwater.storage.ledger.ledger import Ledger, open_ledger

BATCH, ROUNDS, CHUNK = 5_000, 12, 500_000
CUSTOMERS, DAYS = 20, 400
PLAIN_KEYS_MOST = 10_000_000
PLAIN = (
    """create table first_seen (kind text not null, key text not null, content_hash text not null,
    log_partition integer not null, log_offset bigint not null, primary key (kind, key))""",
    "create index first_seen_position on first_seen (log_partition, log_offset)",
)
Claim = tuple[str, str, int, int]
Ask = Callable[[list[Claim]], Any]


def folder(number: int) -> str:
    return f"audio/customer-{number % CUSTOMERS}/2025-{number // CUSTOMERS:03}/"


def beginning(name: str) -> bytes:
    return hash_claim(b"", "event", name, "")[0][:3]


def hashed_rows(begin: int, end: int) -> Iterator[list[tuple[bytes, bytes, int, int]]]:
    """Random ids, then names in folders, each in the order of their keys, as if they had come strewn over the log."""
    rng, half = np.random.default_rng(begin), (end - begin) // 2
    # Of an id without a folder only the first three bytes are always the same.
    yield from _sorted_rows(rng, beginning(""), half, begin, 0, 1 << 24)
    folders = sorted(beginning(folder(n)) for n in range(CUSTOMERS * DAYS))
    each, rows = -(-(end - begin - half) // len(folders)), []
    for prefix in folders:
        rows += [row for some in _sorted_rows(rng, prefix, each, begin + half, 0, 1 << 24) for row in some]
        if len(rows) > CHUNK:
            yield rows
            rows = []
    yield rows


def _sorted_rows(
    rng: np.random.Generator, prefix: bytes, count: int, at: int, low: int, high: int
) -> Iterator[list[tuple[bytes, bytes, int, int]]]:
    if count > CHUNK:
        middle = (low + high) // 2
        yield from _sorted_rows(rng, prefix, count // 2, at, low, middle)
        yield from _sorted_rows(rng, prefix, count - count // 2, at + count // 2, middle, high)
        return
    heads, tails = np.sort(rng.integers(low, high, count)), rng.bytes(26 * count)
    yield [
        (prefix + int(head).to_bytes(3) + tails[26 * n : 26 * n + 10], tails[26 * n + 10 : 26 * n + 26], n % 4, at + n)
        for n, head in enumerate(heads)
    ]


def plain_rows(begin: int, end: int) -> Iterator[list[tuple[str, str, str, int, int]]]:
    """The same as they were kept before: names in the order of folders, then ids."""
    half = (end - begin) // 2
    each = -(-(end - begin - half) // (CUSTOMERS * DAYS))
    names = ((name, n) for name in sorted(map(folder, range(CUSTOMERS * DAYS))) for n in range(begin, begin + each))
    rows = [("event", f"{name}call-{n:09}.wav", os.urandom(32).hex(), n % 4, n) for name, n in names]
    yield rows
    del rows
    step = (1 << 128) // half
    for start in range(0, half, CHUNK):
        ids = (uuid.UUID(int=n * step + random.randrange(step)) for n in range(start, min(half, start + CHUNK)))
        yield sorted(("event", str(id_), os.urandom(32).hex(), n % 4, begin + n) for n, id_ in enumerate(ids))


class Table:
    """One way to keep claims, in one database, filled step by step."""

    def __init__(self, name: str, uri: str) -> None:
        self.name, self.uri, self.keys, self.asked = name, uri, 0, 0
        self.plain = name.endswith("plain text")
        self.ledger = open_ledger(uri)
        self.table = "first_seen" if self.plain else "claims"
        if self.plain:
            with self.ledger._database.transaction() as run:
                for statement in PLAIN:
                    run(statement)

    def fill(self, keys: int) -> None:
        with self.ledger._database.transaction() as run:
            run(f"drop index {self.table}_position")
        rows = plain_rows(self.keys, keys) if self.plain else hashed_rows(self.keys, keys)
        self._load(rows)
        with self.ledger._database.transaction() as run:
            run(PLAIN[1] if self.plain else SCHEMA[1])
        self.keys = keys

    def _load(self, rows: Iterator[list[Any]]) -> None:
        if self.uri.startswith("sqlite"):
            loading = self.ledger._database._connection  # type: ignore[attr-defined]
            loading.execute("pragma synchronous = off")
            for some in rows:
                loading.execute("begin")
                loading.executemany(
                    f"insert or ignore into {self.table} values ({', '.join('?' * len(some[0]))})", some
                )
                loading.execute("commit")
            loading.execute("pragma wal_checkpoint(truncate)")
            loading.execute("pragma synchronous = full")
            return
        with psycopg.connect(self.uri, autocommit=True) as connection:
            for some in rows:
                with connection.cursor().copy(f"copy {self.table} from stdin (format binary)") as copy:
                    copy.set_types(
                        ["text", "text", "text", "int4", "int8"] if self.plain else ["bytea", "bytea", "int8", "int8"]
                    )
                    for row in some:
                        copy.write_row(row)
            connection.execute(f"vacuum analyze {self.table}")
            connection.execute("checkpoint")

    def claim(self, rows: list[Claim]) -> Any:
        return claim_in_plain_text(self.ledger, rows) if self.plain else self.ledger.claim_first("event", rows)

    def bytes_each(self) -> float:
        if self.uri.startswith("sqlite"):
            size = Path(self.uri.removeprefix("sqlite:///")).stat().st_size
        else:
            ((size,),) = self.ledger._database.query(f"select pg_total_relation_size('{self.table}')")
        ((count,),) = self.ledger._database.query(f"select count(*) from {self.table}")
        return float(size) / float(count)

    def fresh(self, names: bool) -> list[Claim]:
        self.asked += BATCH
        today = CUSTOMERS * (DAYS + self.asked // 100_000)
        keys = (
            f"{folder(today + n % CUSTOMERS)}call-{self.asked + n:09}.wav" if names else str(uuid.uuid4())
            for n in range(BATCH)
        )
        return [(key, "0" * 64, n % 4, self.keys + self.asked + n) for n, key in enumerate(keys)]


def claim_in_plain_text(ledger: Ledger, rows: list[Claim]) -> None:
    """As 0.1.0 did it."""
    claims = sorted(rows)
    with ledger._database.transaction() as run:
        for start in range(0, len(claims), 1_000):
            some = claims[start : start + 1_000]
            marks = ", ".join(["(?, ?, ?, ?, 'event')"] * len(some))
            run(
                "insert into first_seen (key, content_hash, log_partition, log_offset, kind) "
                f"values {marks} on conflict (kind, key) do nothing",
                [value for claim in some for value in claim],
            )
            if ledger._database.changed < len(some):
                run(
                    "select key, content_hash, log_partition, log_offset from first_seen "
                    f"where kind = 'event' and key in ({', '.join('?' * len(some))})",
                    [claim[0] for claim in some],
                )


def timed(ask: Ask, make: Callable[[], list[Claim]]) -> tuple[float, float]:
    """Median wall and mean CPU of this process, in ms for a thousand claims."""
    walls, cpu = [], 0.0
    for _ in range(ROUNDS):
        rows = make()
        begun, spent = time.perf_counter(), time.process_time()
        ask(rows)
        walls.append(time.perf_counter() - begun)
        cpu += time.process_time() - spent
    return statistics.median(walls) * 1e6 / BATCH, cpu * 1e6 / BATCH / ROUNDS


def measure(table: Table) -> dict[str, Any]:
    each = table.bytes_each()
    seen: list[list[Claim]] = []

    def noted(names: bool) -> list[Claim]:
        seen.append(table.fresh(names))
        return seen[-1]

    told: dict[str, Any] = {"table": table.name, "keys": table.keys, "bytes_a_claim": round(each, 1)}
    for what, make in (
        ("random_ids", lambda: noted(False)),
        ("names", lambda: noted(True)),
        ("seen_before", lambda: [(key, content, 0, 1 << 40) for key, content, *_ in random.choice(seen)]),
    ):
        wall, cpu = timed(table.claim, make)
        told |= {f"{what}_ms": round(wall, 1), f"{what}_cpu_ms": round(cpu, 1)}
    if not table.plain:
        begun = time.perf_counter()
        table.ledger.seal_claims(9)
        sealed = time.perf_counter()
        forgotten = table.ledger.forget_claims_from(3, table.keys)
        told |= {
            "seal_ms": round(1e3 * (sealed - begun), 1),
            "forget_ms_a_thousand": round(1e6 * (time.perf_counter() - sealed) / forgotten, 1),
        }
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", default="1000000,10000000,50000000")
    parser.add_argument("--databases", default="sqlite,postgres")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="headwater-claims-"))
    directory.chmod(0o755)
    stack = Stack(directory / "stack")
    try:
        uris = {"sqlite": f"sqlite:///{directory}/claims.db"}
        if "postgres" in options.databases:
            stack.up(["postgres"])
            uris["postgres"] = stack.parts()["postgres"]["url"]
        for database in options.databases.split(","):
            uri = uris[database]
            other = uri if database == "postgres" else uri.replace("claims.db", "plain.db")
            for table in (Table(database, uri), Table(f"{database}, plain text", other)):
                for keys in map(int, options.keys.split(",")):
                    if not table.plain or keys <= PLAIN_KEYS_MOST:
                        begun = time.perf_counter()
                        table.fill(keys)
                        filled = round(time.perf_counter() - begun)
                        print(json.dumps({**measure(table), "filled_in_s": filled}), flush=True)
    finally:
        stack.down()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
