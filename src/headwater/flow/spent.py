"""What models had to do for a batch, by step and model: calls, what the memo spared, seconds, tokens, money, tries."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater.domain.tables import QUARANTINE


@dataclass(frozen=True, slots=True)
class Spent:
    """`calls` are answers that a model was asked for, `remembered` those it was spared, `faults` those that failed."""

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


def add_efforts(spent: dict[str, Spent], efforts: Mapping[str, Spent]) -> None:
    """What a batch took, added to what was spent before, by tag."""
    for tag, effort in efforts.items():
        spent[tag] = spent.get(tag, Spent()) + effort


def sums() -> list[Column]:
    """What to add up of a frame of rows that say whether they were `remembered`."""
    called = F.when(F.col("remembered"), 0).otherwise(1)
    added = ("model_seconds", "tokens", "cost", "attempts")
    return [
        F.count("*").alias("rows"),
        F.sum(called).alias("calls"),
        *(F.coalesce(F.sum(F.col(name) * called), F.lit(0)).alias(name) for name in added),
    ]


def spent_by_tag(sums: Iterable[Any]) -> dict[str, Spent]:
    """Of a frame grouped by table, step and fingerprint."""
    spent: dict[str, Spent] = {}
    for row in sums:
        tag = f"{row['step']}/{row['fingerprint']}"
        spent[tag] = spent.get(tag, Spent()) + _spent(row)
    return spent


def _spent(row: Any) -> Spent:
    if row["table"] == QUARANTINE.name:
        return Spent(faults=row["rows"])
    return Spent(
        calls=row["calls"],
        remembered=row["rows"] - row["calls"],
        model_seconds=float(row["model_seconds"]),
        tokens=int(row["tokens"]),
        cost=float(row["cost"]),
        attempts=int(row["attempts"]),
    )
