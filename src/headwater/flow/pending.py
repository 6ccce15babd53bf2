"""What is pending for each stage, from table properties alone: no scan and no JVM."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from headwater.clock import parse_time
from headwater.domain.progress import Progress
from headwater.domain.quarantine import RETRY_DUE
from headwater.domain.tables import EMBEDDINGS, EVENTS, QUARANTINE, SAID, Table, find
from headwater.flow.map import DERIVE
from headwater.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Pending:
    """Events for bronze, events for derive, texts for embed, vectors for index."""

    bronze: int
    derive: int
    embed: int
    index: int
    retry_due: bool = False

    def __bool__(self) -> bool:
        return self.retry_due or any((self.bronze, self.derive, self.embed, self.index))

    def to_dict(self) -> dict[str, int]:
        return {"bronze": self.bronze, "derive": self.derive, "embed": self.embed, "index": self.index}


def is_due(ledger: Ledger, now: datetime) -> bool:
    """Whether something in quarantine has waited long enough to be tried again by itself."""
    due = ledger.fact(RETRY_DUE)
    return bool(due) and parse_time(str(due)) <= now


def find_pending(
    progress: Callable[[Table], Progress],
    log_end: Mapping[int, int],
    index_position: int,
    *,
    retry_due: bool = False,
    pictures: bool = False,
) -> Pending:
    """`pictures` says that vectors of pictures are made, which derive puts among the embeddings."""
    events, embeddings = progress(EVENTS), progress(EMBEDDINGS)
    # Quarantine moves only when it gets something.
    idle = {QUARANTINE} if pictures else {QUARANTINE, EMBEDDINGS}
    tables = [table for name in DERIVE.writes if (table := find(name)) and table not in idle]
    derived = [progress(table).seq_of(EVENTS.name) for table in tables]
    return Pending(
        bronze=sum(end - events.offsets.get(partition, 0) for partition, end in log_end.items()),
        derive=events.next_seq - min(derived),
        embed=sum(progress(table).next_seq - embeddings.seq_of(table.name) for table in SAID),
        index=embeddings.next_seq - index_position,
        retry_due=retry_due,
    )
