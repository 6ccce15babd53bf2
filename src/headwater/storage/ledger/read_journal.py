"""The journal from a line on: for who has read what is before it."""

from collections.abc import Collection

from headwater.storage.ledger.claims import KEYS_PER_QUERY
from headwater.storage.ledger.ledger import Ledger, Run


def runs_after(ledger: Ledger, number: int, also: Collection[int] = ()) -> list[Run]:
    """Runs with a greater number, in their order, after those of `also`."""
    wanted, found = sorted(also), []
    for start in range(0, len(wanted), KEYS_PER_QUERY):
        some = wanted[start : start + KEYS_PER_QUERY]
        found += ledger._read_runs(f"where id in ({', '.join('?' * len(some))}) order by id", some)
    return found + ledger._read_runs("where id > ? order by id", (number,))
