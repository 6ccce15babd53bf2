"""Ledger copy: everything a ledger knows but its leases, read row by row and written into another in one transaction.

Between a SQLite file and Postgres, in either direction, and to and from a backup. Reading needs no lock: while a run
goes on claims are only added, and those that its tables do not confirm are forgotten when the next run starts.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from headwater.storage.ledger import KEYS_PER_QUERY, Ledger
from headwater.storage.sqlite_database import Execute

Row = tuple[Any, ...]
FACTS, CLAIMS, RUNS = "lake", "first_seen", "runs"
# Runs are numbered anew, in their order, because a database counts on from the numbers that it gave itself.
COLUMNS: Final = {
    FACTS: ("name", "value"),
    CLAIMS: ("kind", "key", "content_hash", "log_partition", "log_offset"),
    RUNS: ("kind", "started_at", "finished_at", "outcome", "detail"),
}


def read_ledger(ledger: Ledger) -> Iterator[tuple[str, Row]]:
    """(table, row), in bounded memory."""
    query = ledger._database.query
    for row in query(f"select {', '.join(COLUMNS[FACTS])} from {FACTS} order by name"):
        yield FACTS, row
    claims: Sequence[Row] = [("", "")]
    while claims:
        claims = query(
            f"select {', '.join(COLUMNS[CLAIMS])} from {CLAIMS} where (kind, key) > (?, ?) "
            f"order by kind, key limit {KEYS_PER_QUERY}",
            claims[-1][:2],
        )
        yield from ((CLAIMS, row) for row in claims)
    for row in query(f"select {', '.join(COLUMNS[RUNS])} from {RUNS} order by id"):
        yield RUNS, row


def write_ledger(ledger: Ledger, rows: Iterable[tuple[str, Row]]) -> dict[str, int]:
    """Replace what the ledger knew by `rows`, all or nothing; returns how many of each table."""
    written = dict.fromkeys(COLUMNS, 0)
    stream = iter(rows)
    with ledger._database.transaction() as run:
        for table in COLUMNS:
            run(f"delete from {table}")
        while batch := list(islice(stream, KEYS_PER_QUERY)):
            for table in COLUMNS:
                some = [row for name, row in batch if name == table]
                _insert(run, table, some)
                written[table] += len(some)
    return written


def count_claims(ledger: Ledger) -> int:
    return int(ledger._database.query(f"select count(*) from {CLAIMS}")[0][0])


def _insert(run: Execute, table: str, rows: Sequence[Row]) -> None:
    if rows:
        columns = COLUMNS[table]
        marks = ", ".join([f"({', '.join('?' * len(columns))})"] * len(rows))
        values = [value for row in rows for value in row]
        run(f"insert into {table} ({', '.join(columns)}) values {marks}", values)
