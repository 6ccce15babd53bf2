"""Plain tables: a line for each set, a column for each model, and their ratio last."""

from collections.abc import Sequence


def show(title: str, head: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    """Numbers are right-justified under their heads; the first column names the line."""
    cells = [[_text(cell) for cell in line] for line in (head, *lines)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(head))]
    print(f"\n{title}\n")
    for line in cells:
        first, *others = (cell.ljust(widths[0]) if not at else cell.rjust(widths[at]) for at, cell in enumerate(line))
        print("  ".join([first, *others]).rstrip())


def goal(what: str, figure: float, most: float) -> bool:
    """One line: the figure, what it may be at most, and whether it is."""
    is_reached = figure <= most
    print(f"goal: {what} {percent(figure)}, at most {percent(most)}: {'reached' if is_reached else 'NOT reached'}")
    return is_reached


def percent(share: float) -> str:
    return f"{share * 100:.2f} %" if share < 0.1 else f"{share * 100:.1f} %"


def ratio(better: float, worse: float) -> str:
    """How many times the one fits into the other: `12 ×` less."""
    return f"{worse / better:.1f} ×" if better else "all"


def _text(cell: object) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)
