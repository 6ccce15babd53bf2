"""Retire: take a model that is no longer wanted out of the lake: its rows, its vectors, its place in the book.

The memo keeps what it answered, so bringing it back costs no call. Steps can be done twice: a retirement that is killed
half-way is finished by running it again.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headwater import faults
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.shown import ShownAsTable
from headwater.domain.steps import EMBED, STEPS
from headwater.domain.tables import EMBEDDINGS, QUARANTINE, TABLES, Table
from headwater.errors import Conflict, NotFound
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import change_book, read_book
from headwater.storage.ledger.plans import unfinished_plans
from headwater.storage.query.reader import run_sql
from headwater.storage.tables.catalog import Tables
from headwater.upkeep import work
from headwater.upkeep.models.named import settled_book
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Result, Step, Task, apply

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headwater.storage.tables.writer import TableWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class HideModel(Step):
    """From here on nobody sees the model, nor can it be activated. Expects the state that the book says it has."""

    action: ClassVar[str] = "hide-model"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRows(Step):
    action: ClassVar[str] = "remove-rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPositions(Step):
    """How far the model came in a table: brought back, it begins at the beginning."""

    action: ClassVar[str] = "forget-positions"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropVectors(Step):
    action: ClassVar[str] = "drop-vectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetModel(Step):
    """The book does not know it any more."""

    action: ClassVar[str] = "forget-model"


@dataclass(frozen=True, slots=True)
class RetirePlan(ShownAsTable):
    """How many rows go from each table, and how many vectors from the index with them; `state` is what the book says of
    the model."""

    step: str
    model: str
    fingerprint: str
    state: str
    rows: dict[str, int]
    vectors: int

    @property
    def about(self) -> dict[str, str]:
        return {"step": self.step, "model": self.model, "fingerprint": self.fingerprint}

    @property
    def steps(self) -> tuple[Step, ...]:
        tables = [table.name for table in TABLES if table.name in self.rows]
        return (
            HideModel(about=self.model, expects=self.state),
            *(RemoveRows(about=name, cost={"rows": self.rows[name]}) for name in tables),
            *(ForgetPositions(about=name) for name in tables),
            DropVectors(about="index", cost={"vectors": self.vectors}),
            ForgetModel(about=self.model),
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "steps": [step.to_dict() for step in self.steps]}


def plan_retire(reader: Tables, known: KnownModel) -> RetirePlan:
    """Pure: what would go. Raises Conflict for the active model."""
    if known.state is State.ACTIVE:
        raise Conflict(f"{known.label} is active for {known.step}. Activate another one first: headwater models")
    where = f"fingerprint = '{known.fingerprint}' OR source_fingerprint = '{known.fingerprint}'"
    vectors = _count(reader, EMBEDDINGS.short_name, where)
    rows = {EMBEDDINGS.name: vectors}
    if known.step != EMBED.name:
        table = STEPS[known.step].table
        rows[table.name] = _count(reader, table.short_name, f"fingerprint = '{known.fingerprint}'")
    rows[QUARANTINE.name] = _count(reader, QUARANTINE.short_name, f"fingerprint = '{known.fingerprint}'")
    return RetirePlan(known.step, known.label, known.fingerprint, known.state.value, rows, vectors)


def find_cut_short(ledger: Ledger, step: str, model: str) -> RetirePlan | None:
    """A retirement that was killed after the book had forgotten its model: only the journal knows it still."""
    for left in unfinished_plans(ledger, Retire.kind):
        about = left.about
        if about["step"] == step and model in {about["model"], about["fingerprint"]}:
            return RetirePlan(step, about["model"], about["fingerprint"], State.RETIRING.value, {}, 0)
    return None


def plan_retire_by_name(parts: Parts, step: str, model: str) -> RetirePlan:
    """Pure. Of a model that the book has forgotten, because its retirement was cut short, what is left of that."""
    try:
        return plan_retire(parts.reader, settled_book(parts).find(step, model))
    except NotFound:
        if left := find_cut_short(parts.ledger, step, model):
            return left
        raise


def retire_model(parts: Parts, plan: RetirePlan, report: Callable[[str], None] | None = None) -> RetirePlan:
    """Conflict, and nothing changed, where the model is active or no longer what `plan` has."""
    apply(Retire(parts, plan), parts, plan, stepped=lambda step, _: report(step.about) if report else None)
    return plan


class Retire(Task[RetirePlan]):
    """Of one plan: what is retired is what was planned, whatever the model's name means by now."""

    kind = "retire"
    step_types = (HideModel, RemoveRows, ForgetPositions, DropVectors, ForgetModel)
    refuses_when_moved = True
    ends_with_resume = True

    def __init__(self, parts: Parts, plan: RetirePlan) -> None:
        self._parts = parts
        self._plan = plan
        self._writer: TableWriter | None = None

    @property
    def about(self) -> dict[str, str]:
        return self._plan.about

    def plan(self) -> RetirePlan:
        return plan_retire(self._parts.reader, self._parts.book().find(self._plan.step, self._plan.fingerprint))

    def do(self, step: Step, held: Held) -> Result:
        match step:
            case HideModel():
                self._hide(held.ledger, State(step.expects))
            case RemoveRows():
                self._remove_rows(held, step.about)
            case ForgetPositions():
                tag = f"/{self._plan.step}/{self._plan.fingerprint}"
                self._open(held).forget_positions(_table(step.about), tag)
            case DropVectors():
                # The index knows no lease. Who slept so long that another finished this, and brought the model back,
                # ends here, or a moment later.
                self._require_retiring(held.ledger)
                self._drop_vectors()
            case _:
                change_book(held.ledger, self._without)
        return {}

    def _hide(self, ledger: Ledger, expected: State) -> None:
        """The book is asked and changed in one transaction, so that of this and an activation one comes first."""
        faults.point("retire.planned")
        known = read_book(ledger).get(self._plan.step, self._plan.fingerprint)
        if known is None or known.state is not State.RETIRING:
            change_book(ledger, lambda book: book.retired(self._plan.step, self._plan.fingerprint, expected))
        faults.point("retire.begun")

    def _remove_rows(self, held: Held, table: str) -> None:
        from headwater.storage.tables.rewrite_files import remove_rows

        self._require_retiring(held.ledger)
        remove_rows(self._open(held), _table(table), _made_by(self._plan, _table(table)))

    def _drop_vectors(self) -> None:
        index = self._parts.index
        index.drop(self._plan.fingerprint)
        known = self._parts.book().get(self._plan.step, self._plan.fingerprint)
        if known is not None and known.state is not State.RETIRING:
            index.set_position(0)  # it was brought back while we slept, so the run brings all vectors once more

    def _require_retiring(self, ledger: Ledger) -> None:
        change_book(ledger, lambda book: book.retired(self._plan.step, self._plan.fingerprint, State.RETIRING))

    def _without(self, book: ModelBook) -> ModelBook:
        known = book.get(self._plan.step, self._plan.fingerprint)
        return book if known is None else book.without(known)

    def _open(self, held: Held) -> "TableWriter":
        """Starts Spark, when the first step needs it."""
        self._writer = self._writer or work.new_writer(self._parts, held)
        return self._writer


def _table(name: str) -> Table:
    return next(table for table in TABLES if table.name == name)


def _made_by(known: RetirePlan, table: Table) -> "Column":
    from pyspark.sql import functions as F

    own = F.col("fingerprint") == known.fingerprint
    return own | (F.col("source_fingerprint") == known.fingerprint) if table is EMBEDDINGS else own


def _count(reader: Tables, table: str, where: str) -> int:
    return int(run_sql(reader, f"SELECT count(*) AS n FROM all_models.{table} WHERE {where}")["rows"][0]["n"])
