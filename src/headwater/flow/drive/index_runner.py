"""Index in a run: an index that does not answer gets what it has missed when it is back, from the table."""

from contextlib import suppress
from typing import Final

from headwater.errors import Unavailable
from headwater.flow.drive.outage import Outage
from headwater.flow.index import index_next
from headwater.flow.runner import Committed, Record, RunContext, StageRunner

_VECTORS_AT_ONCE: Final = 20_000  # a vector weighs 4 kB


class IndexRunner(StageRunner):
    """Organises the index where something came into it since, when there is nothing else to do."""

    def __init__(self, context: RunContext, record: Record) -> None:
        super().__init__(context, record)
        self._index = Outage("index")
        self._is_unsettled = False

    def run_batch(self) -> Committed | None:
        indexed: int | None = self._index.spared(self._follow)
        if indexed is None:
            return None
        self._is_unsettled = True
        next_seq: int | None = None
        with suppress(Unavailable):  # an index that went down since ends no run
            next_seq = self.context.index.position()
        return Committed(indexed, facts={"next_seq": next_seq})

    def run_idle(self) -> bool:
        if self._is_unsettled:
            self._index.spared(self.context.index.optimise)
            self._is_unsettled = self._index.error is not None
        return False

    def require_done(self) -> None:
        self._index.require_over()

    def _follow(self) -> int | None:
        return index_next(self.context.writer, self.context.ledger, self.context.index, batch_rows=_VECTORS_AT_ONCE)
