"""Exclusion: who may work on a lake beside whom.

Each kind of work holds leases while it is at it, and two kinds that share one refuse each other. A run and maintenance
share none, nor do those who only look on or announce. What replaces the lake's parts under everybody (restore, upgrade,
migrate) holds all of them, so that nobody is at work meanwhile, not even for the moment that a flip takes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Final

from headwater.clock import Clock
from headwater.storage.ledger.hold_lease import Held, hold_lease
from headwater.storage.ledger.ledger import Ledger

RUN_LEASE: Final = "run"
MAINTAIN_LEASE: Final = "maintain"
RESCAN_LEASE: Final = "rescan"
BACKUP_LEASE: Final = "backup"
EDIT_LEASE: Final = "edit"  # of small facts in the ledger, for as long as one transaction takes
# In the order in which they are taken; the first one fences what is written under it.
ALL_LEASES: Final = (RUN_LEASE, MAINTAIN_LEASE, RESCAN_LEASE, BACKUP_LEASE, EDIT_LEASE)

LEASES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("run", "replay", "retry", "retire"), (RUN_LEASE,)),
    "maintain": (MAINTAIN_LEASE,),
    **dict.fromkeys(("rescan", "event"), (RESCAN_LEASE,)),
    "backup": (BACKUP_LEASE,),
    **dict.fromkeys(("activate", "dismiss", "label", "tag", "untag"), (EDIT_LEASE,)),
    **dict.fromkeys(("restore", "upgrade", "migrate"), ALL_LEASES),
}
HOLD_NOTHING: Final = ("put", "reading")
KINDS: Final = (*LEASES, *HOLD_NOTHING)


def may_be_beside(one: str, other: str) -> bool:
    """Whether two of `KINDS` share no lease."""
    return not {*LEASES.get(one, ())} & {*LEASES.get(other, ())}


def matrix_page() -> str:
    """Who may be at work beside whom, as the table of docs/runbook.md."""
    rows = [("", *KINDS), ("---", *(":-:" for _ in KINDS))]
    rows += [(f"**{one}**", *("✓" if may_be_beside(one, other) else "–" for other in KINDS)) for one in KINDS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def lease_of(kind: str) -> str:
    """By which it is told whether work of this kind that has no outcome is still at it."""
    return LEASES.get(kind, (RUN_LEASE,))[0]


@contextmanager
def alone(ledger: Ledger, kind: str, clock: Clock, lost: Callable[[], None] | None = None) -> Iterator[Held]:
    """Hold the leases of a kind of work; Conflict names who is at work that must not be beside it.

    `lost` is called where another took one of them over while this process slept.
    """
    with ExitStack() as leases:
        held = [
            leases.enter_context(hold_lease(ledger, name, f"headwater {kind}", clock, lost or _nothing))
            for name in LEASES[kind]
        ]
        # A task of several leases that slept and lost any of them writes nothing more.
        fenced = reduce(lambda known, other: known.under(other.lease), held[1:], ledger)
        yield held[0] if len(held) == 1 else Held(fenced, held[0].lease)


def _nothing() -> None:
    """What is written under the lease is refused from then on, which is enough for short work."""
