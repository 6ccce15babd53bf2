"""The lake's format version: set at the beginning, checked at every opening, raised by `upgrade`.

A lake that is newer than this Headwater is refused: an old program must not write what it does not understand.
"""

from typing import Final

from headwater.errors import WAY_BACK, Conflict, NotFound
from headwater.storage.ledger.ledger import Ledger

FORMAT: Final = 11
FACT: Final = "format"  # a ledger without this fact is a lake that nobody opens
# Set in the ledger that a migration left behind.
MOVED_TO: Final = "moved_to"


def has_format(ledger: Ledger) -> bool:
    return ledger.fact(FACT) is not None


def set_format(ledger: Ledger) -> None:
    """For a new lake; an existing one keeps its version."""
    if not has_format(ledger):
        ledger.set_fact(FACT, str(FORMAT))


def check_format(ledger: Ledger, wanted: int = FORMAT) -> None:
    """Raises Conflict unless the lake is here and of the version that this program writes."""
    found = read_format(ledger)
    if found > wanted:
        raise Conflict(
            f"This lake has format {found}; this Headwater knows up to {wanted}. Install a newer Headwater to open it."
        )
    if found < wanted:
        raise Conflict(f"This lake has format {found} and must be upgraded to {wanted} first: headwater upgrade")


def read_format(ledger: Ledger) -> int:
    """The version; Conflict where the lake has left."""
    if moved := ledger.fact(MOVED_TO):
        raise Conflict(f"This lake has moved to {moved}. Open it there; what is here is what it was then.")
    found = ledger.fact(FACT)
    if found is None:
        raise NotFound(f"The ledger knows no lake here. {WAY_BACK}")
    return int(found)
