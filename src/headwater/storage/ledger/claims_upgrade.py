"""Claims of format 3 and before, which had every key and content hash in plain text, brought over into today's table.

Some at a time, in the order of the old table's key: each step is one short transaction that also notes how far it came,
so a kill costs one step, and memory and locks do not grow with the table.
"""

from typing import Final

from headwater import faults, telemetry
from headwater.storage.ledger.claims import KEYS_PER_QUERY, batches, insert_claims, write_fact
from headwater.storage.ledger.copy import PLAIN_CLAIMS, hash_claims
from headwater.storage.ledger.database import Database, Execute, Row
from headwater.storage.ledger.ledger import Ledger

_REACHED_FACT: Final = "claims.upgraded"
_STEP: Final = 10_000
_NOTED_EVERY: Final = 1_000_000


def upgrade_claims(ledger: Ledger) -> int:
    """How many; the old table is dropped in the end. Twice is once, and a ledger without that table is left alone."""
    database, count = ledger._database, 0
    if not database.has_table(PLAIN_CLAIMS):
        return 0
    while True:
        with database.transaction() as run:
            moved = _hash_batch(database, run)
            if not moved:
                run(f"drop table {PLAIN_CLAIMS}")
                run("delete from lake where name = ?", (_REACHED_FACT,))
                return count
        faults.point("upgrade.claims")
        count += moved
        if count % _NOTED_EVERY == 0:
            telemetry.note("upgrade.claims", claims=count)


def _hash_batch(database: Database, run: Execute) -> int:
    reached = run("select value from lake where name = ?", (_REACHED_FACT,))
    # A kind is one word; a key may hold whatever it likes.
    after = reached[0][0].split("\n", 1) if reached else ["", ""]
    plain: list[Row] = run(
        f"select kind, key, content_hash, log_partition, log_offset from {PLAIN_CLAIMS} "
        f"where (kind, key) > (?, ?) order by kind, key limit {_STEP}",
        after,
    )
    for some in batches(sorted(hash_claims(run, plain)), KEYS_PER_QUERY):
        insert_claims(database, run, some)
    if plain:
        write_fact(run, _REACHED_FACT, "\n".join(plain[-1][:2]))
    return len(plain)
