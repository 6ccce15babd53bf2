"""When to look into quarantine again, as facts of the ledger: a run that has nothing else to do knows without Spark."""

from collections.abc import Callable
from datetime import datetime, timedelta

from headwater.clock import Clock, parse_time, to_text
from headwater.domain.quarantine import RETRY_DUE, RETRY_SECONDS_MIN, STRAGGLERS
from headwater.storage.ledger.ledger import Ledger


def is_retry_due(ledger: Ledger, now: datetime) -> bool:
    """Whether something in quarantine has waited long enough to be tried again by itself."""
    due = ledger.fact(RETRY_DUE)
    return bool(due) and parse_time(str(due)) <= now


def schedule_retry(ledger: Ledger, now: datetime) -> None:
    """Something was set aside that may mend itself: it is due after the shortest wait, unless something is before."""
    soon = to_text(now + timedelta(seconds=RETRY_SECONDS_MIN))
    ledger.change_fact(RETRY_DUE, lambda found: min(found, soon) if found else soon)


def note_set_aside(ledger: Ledger, now: datetime, passing: int, slow: int) -> None:
    """So many rows are about to be set aside that somebody must come back for. Said before they are: after a kill in
    between, one look too many is made, and none too few."""
    if passing:
        schedule_retry(ledger, now)
    if slow:
        ledger.set_fact(STRAGGLERS, "yes")


def note_set_aside_in(ledger: Ledger, clock: Clock) -> Callable[[int, int], None]:
    """The same as a function that derive calls before it sets rows aside."""
    return lambda passing, slow: note_set_aside(ledger, clock(), passing, slow)


def has_stragglers(ledger: Ledger) -> bool:
    """Whether objects were set aside, because their batch did not wait for them, and are not done yet."""
    return bool(ledger.fact(STRAGGLERS))
