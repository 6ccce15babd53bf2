"""What is pending for each stage, from table properties alone: no scan and no JVM."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from headwater.domain.progress import Progress
from headwater.domain.steps import derived_tables
from headwater.domain.tables import EMBEDDINGS, EVENTS, QUARANTINE, Table
from headwater.flow.log.identity import Unread
from headwater.flow.map import DERIVE, FLOW, INDEX, LOG, Flow, Stage, tables_of


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
