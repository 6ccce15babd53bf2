"""Claims: who was first for a key. The ledger's one table that grows with the lake, so nothing here grows with it.

Key     sixteen bytes: three for the key's folder, three for the beginning of its name, ten of a salted hash of all.
        Neighbours in time mostly share folder or beginning, so their claims share pages, however many there are.
Keeps   a hash of the content and the position in the log; no name and no content in plain text.
A partition that is made anew counts its offsets from the beginning again. Its claims are told from the older ones by
the partition's epoch, which stands in one fact: sealing a partition changes that one row.
"""

import json
import secrets
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Final, TypeVar
from zlib import crc32

from headwater.storage.ledger.database import Database, Execute, Row

T = TypeVar("T")
First = tuple[str, int, int]  # content, partition, offset
KEYS_PER_QUERY: Final = 1_000  # SQLite takes 32,766 values in one statement, and a claim has four
FORGET_PER_TRANSACTION: Final = 10_000  # others wait for as long as such a transaction takes: some 0.1 s
SCHEMA: Final = (
    """create table if not exists claims (
        key {bytes} not null primary key, content {bytes} not null,
        log_partition bigint not null, log_offset bigint not null) {by_key}""",
    "create index if not exists claims_position on claims (log_partition, log_offset)",
)
_SALT_FACT: Final = "claims.salt"
_EPOCHS_FACT: Final = "claims.epochs"
_EPOCH: Final = 1 << 32  # log_partition is epoch * _EPOCH + partition; below zero it is sealed
_NAME_BYTES: Final = 8  # in time-ordered ids (UUIDv7, ULID, counters) these stay the same for a minute or more


def claim_first(database: Database, kind: str, rows: Sequence[tuple[str, str, int, int]]) -> dict[str, First]:
    """See `Ledger.claim_first`."""
    firsts = _lowest(rows)
    with database.transaction() as run:
        salt, epochs = read_salt(run), _read_epochs(run)
        # In the order of the keys: neighbours share pages.
        hashed = sorted((*hash_claim(salt, kind, key, first[0]), key) for key, first in firsts.items())
        for some in batches(hashed, KEYS_PER_QUERY):
            claims = [(at, content, _with_epoch(epochs, firsts[key][1]), firsts[key][2]) for at, content, key in some]
            insert_claims(database, run, claims)
            if database.changed < len(some):
                # Somebody was first for one of these.
                known = _claimed(database, run, [row[0] for row in some])
                firsts |= {key: _as_asked(firsts[key][0], content, epochs, known[at]) for at, content, key in some}
    return firsts


def find_claims(database: Database, kind: str, rows: Sequence[tuple[str, str]]) -> dict[str, tuple[bool, int]]:
    """See `Ledger.find_claims`."""
    found: dict[str, tuple[bool, int]] = {}
    with database.transaction() as run:
        salt = read_salt(run)
        hashed = sorted((*hash_claim(salt, kind, key, content), key) for key, content in rows)
        for some in batches(hashed, KEYS_PER_QUERY):
            known = _claimed(database, run, [at for at, _, _ in some])
            found |= {key: (known[at][0] == content, known[at][2]) for at, content, key in some if at in known}
    return found


def change_claims(database: Database, kind: str, rows: Sequence[tuple[str, str]]) -> None:
    """See `Ledger.change_claims`."""
    with database.transaction() as run:
        salt = read_salt(run)
        for key, content in rows:
            at, hashed = hash_claim(salt, kind, key, content)
            run("update claims set content = ? where key = ?", (hashed, at))


def insert_claims(database: Database, run: Execute, claims: Sequence[Row]) -> None:
    """As they are kept; a key that is there stays as it is."""
    listed, values = database.listed(("bytes", "bytes", "bigint", "bigint"), claims)
    run(f"insert into claims (key, content, log_partition, log_offset) {listed} on conflict (key) do nothing", values)


def forget_claims_from(database: Database, partition: int, offset: int) -> int:
    """See `Ledger.forget_claims_from`. In steps; whoever is killed in between goes on with what is left."""
    count, full = 0, True
    while full:
        with database.transaction() as run:
            run(
                "delete from claims where key in (select key from claims where log_partition = ? and log_offset >= ? "
                f"limit {FORGET_PER_TRANSACTION})",
                (_with_epoch(_read_epochs(run), partition), offset),
            )
            count, full = count + database.changed, database.changed == FORGET_PER_TRANSACTION
    return count


def forget_claims(database: Database, kind: str, keys: Collection[str]) -> None:
    """See `Ledger.forget_claims`."""
    with database.transaction() as run:
        salt = read_salt(run)
        for some in batches(sorted(hash_claim(salt, kind, key, "")[0] for key in keys), KEYS_PER_QUERY):
            listed, values = database.listed(("bytes",), [(key,) for key in some])
            run(f"delete from claims where key in ({listed})", values)


def seal_claims(database: Database, partition: int) -> None:
    """See `Ledger.seal_claims`."""
    with database.transaction() as run:
        epochs = _read_epochs(run)
        write_fact(run, _EPOCHS_FACT, json.dumps({**epochs, str(partition): epochs.get(str(partition), 0) + 1}))


def sealed(stored: int) -> int:
    """A stored partition as one that no log has, whatever the epoch."""
    return stored if stored < 0 else -1 - stored


def hash_claim(salt: bytes, kind: str, key: str, content: str) -> tuple[bytes, bytes]:
    """(key, content) as they are kept. Content's hash holds for this key alone; nobody compares it with another's."""
    named = f"{kind}\0{key}".encode()
    folder = named.rfind(b"/") + 1 or len(kind) + 1
    place = crc32(named[:folder])
    beginning = crc32(named[folder : folder + _NAME_BYTES], place)
    hashing = blake2b(named, digest_size=16, salt=salt)
    at = (place >> 8).to_bytes(3) + (beginning >> 8).to_bytes(3) + hashing.digest()[:10]
    hashing.update(content.encode())
    return at, hashing.digest()


def read_salt(run: Execute) -> bytes:
    """Of this ledger alone, so that nobody who guesses names can look them up in another one's claims."""
    found = run("select value from lake where name = ?", (_SALT_FACT,))
    if not found:
        write_fact(run, _SALT_FACT, secrets.token_hex(blake2b.SALT_SIZE))
        return read_salt(run)
    return bytes.fromhex(found[0][0])


def write_fact(run: Execute, name: str, value: str) -> None:
    run("insert into lake values (?, ?) on conflict (name) do update set value = excluded.value", (name, value))


def batches(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _lowest(rows: Sequence[tuple[str, str, int, int]]) -> dict[str, First]:
    """By key; of several claims of one key, that with the lowest position."""
    firsts: dict[str, First] = {row[0]: row[1:] for row in rows}
    if len(firsts) < len(rows):
        firsts = {row[0]: row[1:] for row in sorted(rows, key=lambda row: row[2:], reverse=True)}
    return firsts


def _as_asked(asked: str, hashed: bytes, epochs: dict[str, int], claim: tuple[bytes, int, int]) -> First:
    """A claim as the asker knows it: his own content where it is the same, else something that it is not."""
    content, partition, offset = claim
    number = (partition if partition >= 0 else -1 - partition) % _EPOCH
    current = partition == _with_epoch(epochs, number)
    return asked if content == hashed else content.hex(), number if current else -1 - number, offset


def _claimed(database: Database, run: Execute, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, int, int]]:
    listed, values = database.listed(("bytes",), [(key,) for key in keys])
    found = run(f"select key, content, log_partition, log_offset from claims where key in ({listed})", values)
    return {key: (content, partition, offset) for key, content, partition, offset in found}


def _read_epochs(run: Execute) -> dict[str, int]:
    """By partition, how often it was made anew."""
    found = run("select value from lake where name = ?", (_EPOCHS_FACT,))
    return dict(json.loads(found[0][0])) if found else {}


def _with_epoch(epochs: dict[str, int], partition: int) -> int:
    return partition if partition < 0 else epochs.get(str(partition), 0) * _EPOCH + partition
