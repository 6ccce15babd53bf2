"""Index: the vector index follows silver.embeddings.

Reads   silver.embeddings
Writes  index
Key     chunk_id; twice is once.
Invariant: the index is a view. It notes how far it has followed beside its own entries, so a wiped index starts again
from the first vector. The ledger knows of which index that is true, and lets only the run that holds the lease say so:
whoever slept meanwhile can set nothing back, nor vouch for entries that are gone. The index itself knows no lease, so
who was refused takes back what it wrote and the table has no more.
"""

import json
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from headwater import faults
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import Conflict
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.read_table import read_table, to_arrow
from headwater.storage.tables.writer import TableWriter

_FACT: Final = "index"


@dataclass(frozen=True, slots=True)
class Followed:
    """How far an index has followed the embeddings, and of which generation they were."""

    index: str
    position: int
    generation: int

    @classmethod
    def from_text(cls, text: str | None) -> Self | None:
        return cls(**json.loads(text)) if text else None

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def index_next(writer: TableWriter, ledger: Ledger, index: VectorIndex, *, batch_rows: int) -> int | None:
    """Bring one batch of pending vectors into the index; how many, or None when it has them all."""
    embeddings, noted = read_progress(writer.tables, EMBEDDINGS), ledger.fact(_FACT)
    before = _followed(noted, index, embeddings.generation)
    rows, end = pa.table({}), before.position
    # A model that was retired leaves gaps, and an index without entries notes no position.
    while not len(rows) and end < embeddings.next_seq:
        first, end = end, min(embeddings.next_seq, end + batch_rows)
        table = read_table(writer.spark, EMBEDDINGS)
        rows = to_arrow(table.where(F.col("seq").between(first, end - 1)))
    if len(rows):
        noted = _note(ledger, noted, before)  # while it is still ours to write
        index.upsert(rows)  # by this one writer: the index uses all cores by itself, and each call makes a fragment
        faults.point("index.upserted")
    if end > before.position:
        try:
            _note(ledger, noted, replace(before, position=end))
        except Conflict:
            if len(rows):
                _take_back(writer, index, rows)
            raise
        # Wiped, or set back, meanwhile: then it lacks what came before, and the next look finds that out.
        if index.position() >= before.position:
            index.set_position(end, before.index)
    return len(rows) or None


def _take_back(writer: TableWriter, index: VectorIndex, rows: pa.Table) -> None:
    """Entries whose vectors were removed while we slept, such as a retired model's. What is in the table again by the
    time that they are gone is brought again: a model may come back."""
    there = set(_of_table(writer, rows["chunk_id"])["chunk_id"].to_pylist())
    strays = rows.filter(pc.invert(pc.is_in(rows["chunk_id"], pa.array(there, pa.string()))))["chunk_id"]
    if len(strays):
        index.delete(strays.to_pylist())
        if len(back := _of_table(writer, strays)):
            index.upsert(back)


def _of_table(writer: TableWriter, chunk_ids: pa.ChunkedArray) -> pa.Table:
    """Rows of the table as it is now."""
    wanted = writer.spark.createDataFrame(pa.table({"chunk_id": chunk_ids}))
    return to_arrow(read_table(writer.spark, EMBEDDINGS).join(F.broadcast(wanted), "chunk_id", "left_semi"))


def _followed(noted: str | None, index: VectorIndex, generation: int) -> Followed:
    """What ledger and index agree on. An index of another identity, or of embeddings that were rolled back since,
    begins anew."""
    known, identity, position = Followed.from_text(noted), index.identity(), index.position()
    fresh = Followed(identity or uuid.uuid4().hex, 0, generation)
    if known is None:  # a lake from before the ledger knew
        return replace(fresh, position=position)
    if known.generation == generation and known.index == identity:
        return replace(fresh, position=min(position, known.position))
    index.delete(None)  # also where it says nothing of itself: who emptied it may have been killed half-way
    return replace(fresh, index=uuid.uuid4().hex)


def _note(ledger: Ledger, expected: str | None, followed: Followed) -> str:
    """Compare and set, under the lease of the run."""

    def change(found: str | None) -> str:
        if found != expected:
            raise Conflict(
                f"Another process works on the index: expected={expected} found={found}. Stop it, run again."
            )
        return followed.to_text()

    return ledger.change_fact(_FACT, change)
