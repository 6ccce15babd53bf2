"""What models had to do for a batch, by step and model: calls, what the memo spared, seconds, tokens, money, tries."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.domain.tables import EFFORT
from headwater.flow.models.spending import OVER_BUDGET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EFFORT: Final = tuple(field.name for field in EFFORT)


@dataclass(frozen=True, slots=True)
class Spent:
    """`calls` are answers that a model was asked for, `remembered` those it was spared, `faults` those that failed.

    `cost` is of calls and of faults: a service that answered with something useless has been paid.
    """

    calls: int = 0
    remembered: int = 0
    faults: int = 0
    model_seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0
    attempts: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        mine, theirs = asdict(self), asdict(other)
        return Spent(**{name: mine[name] + theirs[name] for name in mine})

    def to_dict(self) -> dict[str, float]:
        return {name: round(value, 9) if isinstance(value, float) else value for name, value in asdict(self).items()}


def purse_of_attempt(purse: float | None) -> float | None:
    """What a task may spend, in a worker: where Spark does it once more, nothing, because what the first one has spent
    nobody knows. What that one was answered is in the memo."""
    from pyspark import TaskContext

    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0
    return 0.0 if purse is not None and again else purse


def add_efforts(spent: dict[str, Spent], efforts: Mapping[str, Spent]) -> None:
    """What a batch took, added to what was spent before, by tag."""
    for tag, effort in efforts.items():
        spent[tag] = spent.get(tag, Spent()) + effort


def spent_by_tag(rows: "pa.Table | DataFrame") -> dict[str, Spent]:
    """Of rows with step, fingerprint, effort, whether they were `remembered`, and a `reason` where they failed."""
    if not isinstance(rows, pa.Table):
        return _spent_in_spark(rows)
    failed = pc.is_valid(rows["reason"])
    spared = pc.and_not(pc.fill_null(rows["remembered"], False), failed)
    called = pc.invert(pc.or_(failed, spared))
    unpaid = pc.fill_null(pc.equal(rows["reason"], OVER_BUDGET), False)
    counted = {"calls": called, "remembered": spared, "faults": pc.and_not(failed, unpaid)}
    # What failed may have been paid for all the same; its `attempts` are those of quarantine.
    paid = {name: called if name == "attempts" else pc.invert(spared) for name in _EFFORT}
    added = {name: pc.if_else(paid[name], pc.fill_null(rows[name], 0), 0) for name in _EFFORT}
    columns = {name: pc.cast(column, pa.int64()) for name, column in counted.items()} | added
    tag = pc.binary_join_element_wise(rows["step"], rows["fingerprint"], "/")
    sums = pa.table({"tag": tag, **columns}).group_by("tag").aggregate([(name, "sum") for name in columns])
    return {row["tag"]: Spent(**{name: row[f"{name}_sum"] for name in columns}) for row in sums.to_pylist()}


def rows_by_tag(rows: pa.Table) -> dict[str, int]:
    """How many rows each step's model made."""
    tags = pc.binary_join_element_wise(rows["step"], rows["fingerprint"], "/")
    counted = tags.value_counts()
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _spent_in_spark(rows: "DataFrame") -> dict[str, Spent]:
    """The same sums; this is what asks the models, where rows are made as they are read."""
    from pyspark.sql import functions as F

    from headwater.storage.tables.read_table import collect

    failed = F.col("reason").isNotNull()
    spared = ~failed & F.coalesce(F.col("remembered"), F.lit(False))
    called = ~failed & ~spared
    counted = {"calls": called, "remembered": spared, "faults": failed & (F.col("reason") != OVER_BUDGET)}
    sums = [F.sum(flag.cast("long")).alias(name) for name, flag in counted.items()]
    paid = {name: called if name == "attempts" else ~spared for name in _EFFORT}
    sums += [F.sum(F.when(paid[name], F.coalesce(F.col(name), F.lit(0))).otherwise(0)).alias(name) for name in _EFFORT]
    tagged = collect(rows.groupBy(F.concat_ws("/", "step", "fingerprint").alias("tag")).agg(*sums))
    return {row["tag"]: Spent(**{name: row[name] for name in (*counted, *_EFFORT)}) for row in tagged}
