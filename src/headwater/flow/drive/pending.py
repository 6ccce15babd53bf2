"""What is pending for each stage, from table properties alone: no scan and no JVM."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from headwater.clock import Clock, parse_time, to_text
from headwater.domain.progress import Progress
from headwater.domain.quarantine import RETRY_DUE, RETRY_SECONDS_MIN, STRAGGLERS
from headwater.domain.steps import derived_tables
from headwater.domain.tables import EMBEDDINGS, EVENTS, QUARANTINE, Table
from headwater.flow.log.identity import Unread
from headwater.flow.map import DERIVE, FLOW, INDEX, LOG, Flow, Stage, tables_of
from headwater.storage.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Pending:
    """What each stage of the map has yet to do: lines of the log, or rows of the tables that it reads.

    `log_anew`: the log is not the one that was read, which a run has yet to tell, also where there is nothing in it.
    """

    by_stage: Mapping[str, int]
    retry_due: bool = False
    log_anew: bool = False

    def __bool__(self) -> bool:
        return self.retry_due or self.log_anew or any(self.by_stage.values())

    def __getattr__(self, stage: str) -> int:
        """`pending.derive`"""
        if stage in type(self).__slots__ or stage not in self.by_stage:
            raise AttributeError(stage)
        return self.by_stage[stage]

    def to_dict(self) -> dict[str, int]:
        return dict(self.by_stage)


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


def aside_expected(ledger: Ledger, clock: Clock) -> Callable[[int, int], None]:
    """The same as a function that derive calls before it sets rows aside."""
    return lambda passing, slow: expect_aside(ledger, clock(), passing, slow)


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
    flow: Flow = FLOW,
) -> Pending:
    """`steps_kept` are those that have a model."""
    known = cache(progress)

    def waiting(stage: Stage) -> int:
        if LOG in stage.reads:
            return unread.events
        if stage.name == INDEX.name:
            return known(EMBEDDINGS).next_seq - index_position
        if stage.name == DERIVE.name:
            derived = derived_tables(steps_kept)
            return _behind(stage, derived, known) + _rolled_back(derived, known)
        return _behind(stage, tables_of(stage.writes), known)

    by_stage = {stage.name: waiting(stage) for stage in flow if stage.runner}
    return Pending(by_stage, retry_due, log_anew=bool(unread.anew))


def _behind(stage: Stage, writes: Sequence[Table], progress: Callable[[Table], Progress]) -> int:
    """Rows of the tables that it reads, from where the table is that has come least far with them."""
    waiting: int = sum(
        progress(source).next_seq - min(progress(table).seq_of(source.name) for table in writes)
        for source in tables_of(stage.reads)
    )
    return waiting


def _rolled_back(derived: Sequence[Table], progress: Callable[[Table], Progress]) -> int:
    """What quarantine had before it was rolled back is to be made again."""
    aside, reached = progress(QUARANTINE), [progress(table).seq_of(EVENTS.name) for table in derived]
    return max(0, min(*reached, int(aside.redo.get(EVENTS.name, 0))) - aside.seq_of(EVENTS.name))
