"""Row filter: which rows are asked for, as a value, and the same as PyIceberg's expression and as DuckDB's SQL."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


@dataclass(frozen=True, slots=True)
class Between:
    """`low` included, `high` not; None is open."""

    low: Any = None
    high: Any = None


Match = str | int | datetime | Between | Collection[str] | Collection[int]
RowFilter = Mapping[str, Match]


def expression_of(where: RowFilter) -> "BooleanExpression":
    from pyiceberg import expressions

    # PyIceberg's models take positional arguments that their types do not show.
    e: Any = expressions
    found: BooleanExpression = e.AlwaysTrue()
    for name, match in where.items():
        if isinstance(match, Between):
            if match.low is not None:
                found = e.And(found, e.GreaterThanOrEqual(name, _iso(match.low)))
            if match.high is not None:
                found = e.And(found, e.LessThan(name, _iso(match.high)))
        elif isinstance(match, str | int | datetime):
            found = e.And(found, e.EqualTo(name, _iso(match)))
        else:
            found = e.And(found, e.In(name, set(match)))
    return found


def _iso(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def condition_of(where: RowFilter) -> str:
    """Values as literals: DuckDB loads pandas to look at the first parameter it is given."""
    parts: list[str] = []
    for name, match in where.items():
        column = quoted(name)
        if isinstance(match, Between):
            bounds = ((">=", match.low), ("<", match.high))
            parts += [f"{column} {sign} {literal(bound)}" for sign, bound in bounds if bound is not None]
        elif isinstance(match, str | int | datetime):
            parts.append(f"{column} = {literal(match)}")
        else:
            parts.append(f"{column} IN ({', '.join(literal(value) for value in match)})" if match else "false")
    return " AND ".join(parts) or "true"


def literal(value: str | int | datetime) -> str:
    match value:
        case datetime():
            return f"TIMESTAMPTZ '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return str(int(value))


def quoted_list(texts: Sequence[str]) -> str:
    return f"[{', '.join(literal(text) for text in texts)}]"


def names(columns: Sequence[str]) -> str:
    return ", ".join(quoted(column) for column in columns)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
