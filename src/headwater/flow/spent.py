"""What models had to do for a batch, by step and model: calls, what the memo spared, seconds, tokens, money, tries."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.domain.tables import EFFORT

_EFFORT: Final = tuple(field.name for field in EFFORT)


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


def spent_by_tag(rows: pa.Table) -> dict[str, Spent]:
    """Of rows with step, fingerprint, effort, whether they were `remembered`, and a `reason` where they failed."""
    failed = pc.is_valid(rows["reason"])
    spared = pc.and_not(pc.fill_null(rows["remembered"], False), failed)
    called = pc.invert(pc.or_(failed, spared))
    counted = {"calls": called, "remembered": spared, "faults": failed}
    added = {name: pc.if_else(called, pc.fill_null(rows[name], 0), 0) for name in _EFFORT}
    columns = {name: pc.cast(column, pa.int64()) for name, column in counted.items()} | added
    tag = pc.binary_join_element_wise(rows["step"], rows["fingerprint"], "/")
    sums = pa.table({"tag": tag, **columns}).group_by("tag").aggregate([(name, "sum") for name in columns])
    return {row["tag"]: Spent(**{name: row[f"{name}_sum"] for name in columns}) for row in sums.to_pylist()}
