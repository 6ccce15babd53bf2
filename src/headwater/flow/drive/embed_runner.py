"""Embed in a run: while an embedder does not answer its texts wait in their tables; it is asked again after a while."""

from contextlib import suppress

from headwater.domain.steps import EMBED
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import Unavailable
from headwater.flow.drive.outage import Outage
from headwater.flow.embed.stage import EmbedderDown, Embeddings, embed_next
from headwater.flow.rows import batch_limit
from headwater.flow.runner import Committed, Record, RunContext, StageRunner
from headwater.storage.tables.read_progress import read_progress


class EmbedRunner(StageRunner):
    def __init__(self, context: RunContext, record: Record) -> None:
        super().__init__(context, record)
        self._embedder = Outage("embedder", EmbedderDown)

    def run_batch(self) -> Committed | None:
        made: Embeddings | None = self._embedder.spared(self._embed)
        if made is None:
            return None
        next_seq: int | None = None
        with suppress(Unavailable):  # what was committed and paid is counted, whether or not the catalog still answers
            next_seq = read_progress(self.context.writer.tables, EMBEDDINGS).next_seq
        labels = self.context.book().labels()
        return Committed(made.vectors, made.quarantined, made.efforts, labels, {"next_seq": next_seq})

    def require_done(self) -> None:
        self._embedder.require_over()

    def _embed(self) -> Embeddings | None:
        kept, most = self.context.book().kept(EMBED.name), batch_limit(self.context.writer).rows
        return embed_next(self.context.writer, kept, batch_rows=most, clock=self.context.clock)
