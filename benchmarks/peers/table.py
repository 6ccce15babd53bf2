"""The table, and beside it the goals; a loss is shown as plainly as a win."""

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from peers.arms import DAFT, DATACHAIN, FLOOR, HEADWATER, PHASES, PIXELTABLE, Arm
from peers.tree import Cell


@dataclass(slots=True)
class Results:
    """By arm and phase: the cells of each round, why there is none, and what its rows were."""

    size: Sequence[int]
    load: float = 0.0
    cells: dict[tuple[str, str], list[Cell]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    proofs: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def keep(self, arm: Arm, phase: str, cell: Cell) -> None:
        self.cells.setdefault((arm.name, phase), []).append(cell)

    def fail(self, arm: Arm, phase: str, reason: str) -> None:
        self.failures[arm.name, phase] = reason

    def get(self, arm: Arm, phase: str) -> Cell | None:
        """The median of the rounds, figure by figure; stages and what was told are of the last."""
        found = self.cells.get((arm.name, phase))
        if not found:
            return None
        wall, cpu, peak = (
            statistics.median(getattr(cell, name) for cell in found) for name in ("wall", "cpu", "peak_mb")
        )
        return Cell(wall, cpu, peak, found[-1].stages, found[-1].told)

    def to_dict(self) -> dict[str, Any]:
        return {
            "size": list(self.size),
            "load": self.load,
            "cells": {
                " / ".join(key): [dataclasses.asdict(cell) for cell in found] for key, found in self.cells.items()
            },
            "failures": {" / ".join(key): reason for key, reason in self.failures.items()},
            "proofs": {" / ".join(key): proof for key, proof in self.proofs.items()},
        }


def render(results: Results, chosen: Sequence[Arm]) -> str:
    calls, pictures, lines = results.size
    head = [f"{title}: wall s / CPU s / peak MB" for title in PHASES.values()]
    out = [
        f"{calls:,} calls, {pictures:,} pictures, {lines:,} chat lines; each cell from a cold process. "
        f"Load of the machine before it began: {results.load:.1f}.\n",
        f"| system | {' | '.join(head)} | rows equal to the floor's |",
        "|---" * (len(head) + 2) + "|",
    ]
    for arm in chosen:
        out.append(_line(arm.title, [_cell(results, arm, phase) for phase in PHASES], _equal(results, arm)))
        if arm == HEADWATER:
            out += _more_lines(results)
    return "\n".join([*out, "", *goals(results)])


def _line(title: str, cells: Sequence[str], equal: str) -> str:
    return f"| {title} | {' | '.join(cells)} | {equal} |"


def _cell(results: Results, arm: Arm, phase: str) -> str:
    if cell := results.get(arm, phase):
        return _figures(cell)
    if reason := results.failures.get((arm.name, phase)):
        return f"not run: {reason}"
    return "all of it again" if arm.anew and phase != "cold" else "not run"


def _figures(cell: Cell) -> str:
    return f"{cell.wall:.1f} / {cell.cpu:.1f} / {cell.peak_mb:.0f}"


def _more_lines(results: Results) -> Iterator[str]:
    """Headwater's landing, which no other arm does."""
    landed = [results.get(HEADWATER, f"land {phase}") for phase in PHASES]
    yield _line(
        "– before it, landing (the others read in place)", [_figures(cell) if cell else "" for cell in landed], ""
    )


def _equal(results: Results, arm: Arm) -> str:
    proofs = {phase: results.proofs[arm.name, phase] for phase in PHASES if (arm.name, phase) in results.proofs}
    if not proofs:
        return "nothing to prove"
    differ = [PHASES[phase] for phase, proof in proofs.items() if proof != results.proofs.get((FLOOR.name, phase))]
    return f"NO: {', '.join(differ)}" if differ else f"yes: {list(proofs.values())[-1]['rows']:,}"


def goals(results: Results) -> Iterator[str]:
    """Each with its figure, or the reason why there is none."""
    own = {phase: results.get(HEADWATER, phase) for phase in (*PHASES, "imports", "stream")}
    floor, daft = results.get(FLOOR, "changed"), results.get(DAFT, "cold")
    same, imports, more, stream, changed, cold = (
        own[name] for name in ("same", "imports", "more", "stream", "changed", "cold")
    )
    if same and imports:
        yield _goal("no-op over its imports, s", same.wall - imports.wall, 1.0)
    if more:
        yield _goal("+1 % over the JVM's start, s", more.wall - _start(more)[0], 8.0)
    if stream:
        yield _goal("+1 % in a running stream until derived, s", stream.told["derived"], 2.0)
        yield f"  the same until it can be found, s: {stream.told['searchable']:.1f}"
    if changed and floor:
        yield _goal(
            "call step changed, wall s, beside 1.3 × floor + start", changed.wall, 1.3 * floor.wall + _start(changed)[0]
        )
    if cold and daft:
        limit = 1.3 * daft.cpu + _start(cold)[1]
        yield _goal("cold, CPU s, all of it, beside 1.3 × Daft + start", cold.cpu, limit)
    for peer in (DATACHAIN, PIXELTABLE):
        yield from _ahead(results, peer)


def _start(cell: Cell) -> tuple[float, float]:
    return cell.stages.get("start", (0.0, 0.0))


def _goal(what: str, figure: float, limit: float) -> str:
    return f"- {what}: {figure:.1f} (goal at most {limit:.1f}): {'reached' if figure <= limit else '**NOT reached**'}"


def _ahead(results: Results, peer: Arm) -> Iterator[str]:
    """Column by column: all of Headwater beside all of the peer."""
    won: list[str] = []
    lost: list[str] = []
    for phase, title in PHASES.items():
        mine, theirs = results.get(HEADWATER, phase), results.get(peer, phase)
        if mine is None or theirs is None:
            continue
        for name, unit in (("wall", "wall"), ("cpu", "CPU"), ("peak_mb", "memory")):
            ahead = getattr(mine, name) <= getattr(theirs, name)
            (won if ahead else lost).append(f"{title} {unit}")
    if won or lost:
        verdict = "reached" if not lost else f"**NOT reached**: behind in {', '.join(lost)}"
        yield f"- ahead of {peer.title} in every column: {len(won)} of {len(won) + len(lost)}, {verdict}"
