"""Ledger copy: everything a ledger knows but its leases, read row by row and written into another in one transaction.

Between a SQLite file and Postgres, in either direction, and to and from a backup. Reading needs no lock: while a run
goes on claims are only added, and those that its tables do not confirm are forgotten when the next run starts.
Claims travel as they are kept, hashed, with the fact that has the hash's salt; bytes are told as hexadecimal text. A
backup of format 3 or older has them in plain text, as `first_seen`: they are hashed when they are written.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from headwater.storage.ledger.claims import KEYS_PER_QUERY, hash_claim, insert_claims, read_salt, sealed
from headwater.storage.ledger.database import Execute, Row
from headwater.storage.ledger.ledger import Ledger

FACTS, CLAIMS, RUNS, DISMISSED, LABELS = "lake", "claims", "runs", "dismissed", "labels"
PLAIN_CLAIMS: Final = "first_seen"
# Runs are numbered anew, in their order, because a database counts on from the numbers that it gave itself.
COLUMNS: Final = {
    FACTS: ("name", "value"),
    CLAIMS: ("key", "content", "log_partition", "log_offset"),
    RUNS: ("kind", "started_at", "finished_at", "outcome", "detail"),
    DISMISSED: ("event_id", "step", "fingerprint", "reason", "dismissed_at", "dismissed_by", "because"),
    LABELS: ("object_id", "key", "value", "labelled_at", "labelled_by"),
}
_KEYS: Final = {
    FACTS: ("name",),
    CLAIMS: ("key",),
    RUNS: ("id",),
    DISMISSED: ("event_id", "step", "fingerprint", "reason"),
    LABELS: ("object_id", "key"),
}


def read_ledger(ledger: Ledger) -> Iterator[tuple[str, Row]]:
    """(table, row), in bounded memory."""
    for table in COLUMNS:
        for row in _walk(ledger, table):
            yield table, _to_text(row) if table == CLAIMS else row


def write_ledger(ledger: Ledger, rows: Iterable[tuple[str, Row]]) -> dict[str, int]:
    """Replace what the ledger knew by `rows`, all or nothing; returns how many of each table."""
    written = dict.fromkeys(COLUMNS, 0)
    stream = iter(rows)
    database = ledger._database
    with database.transaction() as run:
        for table in COLUMNS:
            run(database.EMPTY.format(table=table))
        run(f"drop table if exists {PLAIN_CLAIMS}")
        while batch := list(islice(stream, KEYS_PER_QUERY)):
            for table in (FACTS, RUNS, DISMISSED, LABELS):
                some = [row for name, row in batch if name == table]
                _insert(run, table, some)
                written[table] += len(some)
            claims = [_from_text(row) for name, row in batch if name == CLAIMS]
            claims += hash_claims(run, [row for name, row in batch if name == PLAIN_CLAIMS])
            if claims:
                insert_claims(database, run, claims)
            written[CLAIMS] += len(claims)
    return written


def count_claims(ledger: Ledger) -> int:
    """Those of a ledger that is yet to be upgraded too."""
    kept = [CLAIMS, *([PLAIN_CLAIMS] if ledger._database.has_table(PLAIN_CLAIMS) else [])]
    return sum(int(ledger._database.query(f"select count(*) from {table}")[0][0]) for table in kept)


def seal_claim(claim: Row) -> Row:
    """A claim as it goes to a log that gives the same positions again: its own becomes one that no log has."""
    *hashes, partition, offset = claim
    return (*hashes, sealed(partition), offset)


def hash_claims(run: Execute, plain: Sequence[Row]) -> list[Row]:
    """Claims as format 3 kept them: (kind, key, content hash, partition, offset)."""
    if not plain:
        return []
    salt = read_salt(run)
    return [(*hash_claim(salt, *named), partition, offset) for *named, partition, offset in plain]


def _to_text(claim: Row) -> Row:
    key, content, *position = claim
    return (key.hex(), content.hex(), *position)


def _from_text(claim: Row) -> Row:
    key, content, partition, offset = claim
    return bytes.fromhex(key), bytes.fromhex(content), partition, offset


def _insert(run: Execute, table: str, rows: Sequence[Row]) -> None:
    if rows:
        columns = COLUMNS[table]
        marks = ", ".join([f"({', '.join('?' * len(columns))})"] * len(rows))
        values = [value for row in rows for value in row]
        run(f"insert into {table} ({', '.join(columns)}) values {marks}", values)


def _walk(ledger: Ledger, table: str) -> Iterator[Row]:
    """Every row, some at a time, in the order of the key."""
    key, columns = ", ".join(_KEYS[table]), ", ".join(COLUMNS[table])
    width, after = len(_KEYS[table]), ()
    while True:
        where = f"where ({key}) > ({', '.join('?' * width)})" if after else ""
        query = f"select {key}, {columns} from {table} {where} order by {key} limit {KEYS_PER_QUERY}"
        page = ledger._database.query(query, after)
        yield from (row[width:] for row in page)
        if len(page) < KEYS_PER_QUERY:
            return
        after = page[-1][:width]
