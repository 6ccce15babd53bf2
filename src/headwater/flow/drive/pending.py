"""What is pending for each stage, from table properties alone: no scan and no JVM."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from headwater.clock import parse_time, to_text
from headwater.domain.progress import Progress
from headwater.domain.quarantine import RETRY_DUE, RETRY_SECONDS_MIN, STRAGGLERS
from headwater.domain.steps import derived_tables
from headwater.domain.tables import EMBEDDINGS, EVENTS, QUARANTINE, TEXT_TABLES, Table
from headwater.flow.log.identity import Unread
from headwater.storage.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Pending:
    """Events for bronze, events for derive, texts for embed, vectors for index.

    `log_anew`: the log is not the one that was read, which a run has yet to tell, also where there is nothing in it.
    """

    bronze: int
    derive: int
    embed: int
    index: int
    retry_due: bool = False
    log_anew: bool = False

    def __bool__(self) -> bool:
        return self.retry_due or self.log_anew or any((self.bronze, self.derive, self.embed, self.index))

    def to_dict(self) -> dict[str, int]:
        return {"bronze": self.bronze, "derive": self.derive, "embed": self.embed, "index": self.index}


def is_due(ledger: Ledger, now: datetime) -> bool:
    """Whether something in quarantine has waited long enough to be tried again by itself."""
    due = ledger.fact(RETRY_DUE)
    return bool(due) and parse_time(str(due)) <= now


def expect_due(ledger: Ledger, now: datetime) -> None:
    """Something was set aside that may mend itself: it is due after the shortest wait, unless something is before."""
    soon = to_text(now + timedelta(seconds=RETRY_SECONDS_MIN))
    ledger.change_fact(RETRY_DUE, lambda found: min(found, soon) if found else soon)


def expect_aside(ledger: Ledger, now: datetime, passing: int, slow: int) -> None:
    """So many rows are about to be set aside that somebody must come back for. Said before they are: after a kill in
    between, one look too many is made, and none too few."""
    if passing:
        expect_due(ledger, now)
    if slow:
        ledger.set_fact(STRAGGLERS, "yes")


def has_stragglers(ledger: Ledger) -> bool:
    """Whether objects were set aside, because their batch did not wait for them, and are not done yet."""
    return bool(ledger.fact(STRAGGLERS))


def find_pending(
    progress: Callable[[Table], Progress],
    unread: Unread,
    index_position: int,
    *,
    retry_due: bool = False,
    steps_kept: Collection[str] = (),
) -> Pending:
    """`steps_kept` are those that have a model."""
    events, embeddings = progress(EVENTS), progress(EMBEDDINGS)
    derived = [progress(table).seq_of(EVENTS.name) for table in derived_tables(steps_kept)]
    # But where it was rolled back, what it had is to be made again.
    aside = progress(QUARANTINE)
    again = max(0, min(*derived, aside.redo.get(EVENTS.name, 0)) - aside.seq_of(EVENTS.name))
    return Pending(
        bronze=unread.events,
        derive=events.next_seq - min(derived) + again,
        embed=sum(progress(table).next_seq - embeddings.seq_of(table.name) for table in TEXT_TABLES),
        index=embeddings.next_seq - index_position,
        retry_due=retry_due,
        log_anew=bool(unread.anew),
    )
