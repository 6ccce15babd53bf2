"""Findable: what was made is embedded and indexed, on a thread beside the other stages.

An embedder or an index that does not answer holds up nobody else: texts or vectors wait, the table says how many, and
who was down is asked again after a while. What it has missed it gets when it is back, from the table.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headwater import telemetry
from headwater.clock import Clock
from headwater.domain.steps import EMBED
from headwater.errors import Unavailable
from headwater.flow.embed.stage import EmbedderDown, Embeddings, embed_next
from headwater.flow.index import index_next
from headwater.flow.rows import batch_cut
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.storage.tables.writer import TableWriter

_VECTORS_AT_ONCE: Final = 20_000  # a vector weighs 4 kB
DOWN_SECONDS: Final = 10.0  # before who did not answer is asked again


@dataclass(slots=True)
class Outage:
    """Somebody who did not answer; `name` is what the log calls it, `kind` how it is told from anything else that did
    not: a table that cannot be written is no embedder that is down, and ends the run."""

    name: str
    kind: type[Unavailable] = Unavailable
    error: Unavailable | None = None
    _ask_after: float = 0.0

    def spared(self, work: Callable[[], Any]) -> Any:
        """What `work` gives; None while the other side is left alone, and where it does not answer."""
        if time.monotonic() < self._ask_after:
            return None
        try:
            made = work()
            self.error = None
            return made
        except self.kind as error:
            self.error, self._ask_after = error, time.monotonic() + DOWN_SECONDS
            telemetry.note(f"{self.name}.down", level="warning", detail=str(error))
            return None


@dataclass(slots=True)
class Findable:
    """`embedding` is held by who embeds texts: the stage must not move on while a replay finds out whether it has
    caught up. `told` hears of each commit: the stage, how many, since when, and what came of it."""

    writer: TableWriter
    ledger: Ledger
    index: VectorIndex
    clock: Clock
    told: "Callable[[str, int, float, Embeddings | None], None]"
    embedding: threading.Lock = field(default_factory=threading.Lock)
    _embedder: Outage = field(default_factory=lambda: Outage("embedder", EmbedderDown))
    _index: Outage = field(default_factory=lambda: Outage("index"))
    _unsettled: bool = False

    def embed(self) -> bool:
        begun = time.monotonic()
        made: Embeddings | None = self._embedder.spared(self._embed)
        if made is None:
            return False
        self.told("embed", made.vectors, begun, made)
        return True

    def follow(self) -> bool:
        """The index."""
        begun = time.monotonic()
        indexed: int | None = self._index.spared(self._follow)
        if indexed is None:
            return False
        self._unsettled = True
        self.told("index", indexed, begun, None)
        return True

    def organise(self) -> None:
        """The index, where something came into it since; when there is nothing else to do."""
        if self._unsettled:
            self._index.spared(self.index.optimise)
            self._unsettled = self._index.error is not None

    def check(self) -> None:
        """Raise what is down still, at the end of a run that is to leave nothing behind."""
        for outage in (self._embedder, self._index):
            if outage.error is not None:
                raise outage.error

    def _embed(self) -> Embeddings | None:
        with self.embedding:
            kept, most = read_book(self.ledger).kept(EMBED.name), batch_cut(self.writer).rows
            return embed_next(self.writer, kept, batch_rows=most, clock=self.clock)

    def _follow(self) -> int | None:
        return index_next(self.writer, self.ledger, self.index, batch_rows=_VECTORS_AT_ONCE)
