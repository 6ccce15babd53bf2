"""A table that fits its terminal: a line a row, the columns that matter most, and a word about those left out."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_GAP: Final = 2
_CELL_MAX: Final = 60  # a text that is as long as it likes


class Column(NamedTuple):
    """`least` is how narrow it is still of use; of a cut cell the end is shown, if that is what tells, or the start."""

    least: int = 8
    shows_end: bool = False


_PLAIN: Final = Column()


def fit(
    rows: Sequence[Mapping[str, str]], columns: Sequence[str], kinds: Mapping[str, Column], width: int
) -> list[str]:
    """Those of the columns, first the one that matters most, that have anything to show and find room."""
    filled = [name for name in columns if any(row[name] for row in rows)]
    kept: list[str] = []
    room = width + _GAP
    for name in filled:
        least = min(_wanted(name, rows), max(len(name), kinds.get(name, _PLAIN).least)) + _GAP
        if kept and least > room:
            break
        kept.append(name)
        room -= least
    return kept


def widths(
    rows: Sequence[Mapping[str, str]], kept: Sequence[str], kinds: Mapping[str, Column], width: int
) -> dict[str, int]:
    """Each has its least, and of what is left over the first take as much as they have use for."""
    given = {name: min(_wanted(name, rows), max(len(name), kinds.get(name, _PLAIN).least)) for name in kept}
    room = width - sum(given.values()) - _GAP * (len(kept) - 1)
    for name in kept:
        more = max(0, min(room, _wanted(name, rows) - given[name]))
        given[name] += more
        room -= more
    return given


def cut(cell: str, width: int, kind: Column = _PLAIN) -> str:
    if len(cell) <= width:
        return cell
    return "…" + cell[-(width - 1) :].lstrip() if kind.shows_end else cell[: width - 1].rstrip() + "…"


def fitted_table(
    columns: Sequence[str], rows: Sequence[Mapping[str, str]], first: Sequence[str], kinds: Mapping[str, Column]
) -> list[str]:
    """Draws it, the columns in their order; `first` are those that matter most. Gives what was left out."""
    from headwater.cli.output import console, table

    matter = [*(name for name in first if name in columns), *(name for name in columns if name not in first)]
    width = console().width
    kept = fit(rows, matter, kinds, width)
    room = widths(rows, kept, kinds, width)
    drawn = [name for name in columns if name in kept]
    cells = [[cut(row[name], room[name], kinds.get(name, _PLAIN)) for name in drawn] for row in rows]
    table(drawn or columns, cells, cut=True)
    return [name for name in matter if name not in kept and any(row[name] for row in rows)]


def _wanted(name: str, rows: Sequence[Mapping[str, str]]) -> int:
    return min(_CELL_MAX, max(len(name), *(len(row[name]) for row in rows)))
