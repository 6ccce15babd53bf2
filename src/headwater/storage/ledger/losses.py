"""What the log lost, as the ledger's journal holds it: open until a rescan has looked for it."""

from datetime import datetime
from typing import Final

from headwater.storage.ledger.ledger import Ledger

LOST: Final = "log lost"


def count_lost(ledger: Ledger) -> int:
    """Events that are known to be missing; a log made anew counts as one, since nobody knows."""
    open_losses = (run.detail for run in ledger.unfinished(LOST))
    return sum(1 if loss["until"] is None else int(loss["until"]) - int(loss["first"]) for loss in open_losses)


def close_losses(ledger: Ledger, outcome: str, now: datetime) -> int:
    """Returns how many were open."""
    losses = ledger.unfinished(LOST)
    for run in losses:
        ledger.finish_run(run.id, outcome, now)
    return len(losses)
