"""Retire: take a model that is no longer wanted out of the lake: its rows, its vectors, its place in the book.

The memo keeps what it answered, so bringing it back costs no call. Steps can be done twice: a retirement that is killed
half-way is finished by running it again.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater import faults
from headwater.domain.model_book import KnownModel, State
from headwater.domain.tables import EMBEDDINGS, QUARANTINE, TABLES, Table
from headwater.errors import Conflict
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import change_book, read_book
from headwater.storage.query.reader import run_sql
from headwater.storage.tables.catalog import Tables
from headwater.upkeep.models.quote import STEPS

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headwater.storage.tables.writer import TableWriter


@dataclass(frozen=True, slots=True)
class RetirePlan:
    """How many rows go from each table, and how many vectors from the index with them; `state` is what the book says of
    the model."""

    step: str
    model: str
    fingerprint: str
    state: str
    rows: dict[str, int]
    vectors: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_retire(reader: Tables, known: KnownModel) -> RetirePlan:
    """Pure: what would go. Raises Conflict for the active model."""
    if known.state is State.ACTIVE:
        raise Conflict(f"{known.label} is active for {known.step}. Activate another one first: headwater models")
    where = f"fingerprint = '{known.fingerprint}' OR source_fingerprint = '{known.fingerprint}'"
    vectors = _count(reader, EMBEDDINGS.short_name, where)
    rows = {EMBEDDINGS.name: vectors}
    if known.step in STEPS:
        table = STEPS[known.step][0]
        rows[table.name] = _count(reader, table.short_name, f"fingerprint = '{known.fingerprint}'")
    rows[QUARANTINE.name] = _count(reader, QUARANTINE.short_name, f"fingerprint = '{known.fingerprint}'")
    return RetirePlan(known.step, known.label, known.fingerprint, known.state.value, rows, vectors)


def begin_retire(ledger: Ledger, plan: RetirePlan) -> None:
    """From here on nobody sees the model, nor can it be activated. Conflict where it is no longer what was planned.

    The book is asked and changed in one transaction, so that of this and an activation one comes first.
    """
    faults.point("retire.planned")
    change_book(ledger, lambda book: book.retired(plan.step, plan.fingerprint, State(plan.state)))
    faults.point("retire.begun")


def apply_retire(
    writer: "TableWriter", ledger: Ledger, index: VectorIndex, plan: RetirePlan, report: Callable[[str], None]
) -> None:
    """Take away what a model made that is leaving: see `begin_retire`."""
    from headwater.storage.tables.rewrite_files import remove_rows

    known = read_book(ledger).find(plan.step, plan.fingerprint)
    tables = [table for table in TABLES if table.name in plan.rows]
    for table in tables:
        remove_rows(writer, table, _made_by(known, table))
        report(table.name)
    for table in tables:
        # Brought back, it begins at the beginning.
        writer.forget_positions(table, f"/{known.step}/{known.fingerprint}")
    # The index knows no lease. Who slept so long that another finished this, and brought the model back, ends here.
    change_book(ledger, lambda book: book.retired(plan.step, plan.fingerprint, State.LEAVING))
    index.drop(known.fingerprint)
    report("index")
    change_book(ledger, lambda book: book.without(book.find(known.step, known.fingerprint)))


def _made_by(known: KnownModel, table: Table) -> "Column":
    from pyspark.sql import functions as F

    own = F.col("fingerprint") == known.fingerprint
    return own | (F.col("source_fingerprint") == known.fingerprint) if table is EMBEDDINGS else own


def _count(reader: Tables, table: str, where: str) -> int:
    return int(run_sql(reader, f"SELECT count(*) AS n FROM all_models.{table} WHERE {where}")["rows"][0]["n"])
