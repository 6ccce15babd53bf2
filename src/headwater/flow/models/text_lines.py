"""What readers of pictures have in common: lines put in order, turned back and strips widened; and sessions that give
memory back."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from headwater.flow.models.port import Picture

SLIM_MAX: Final = 8
SAME_LINE: Final = 0.5  # boxes that share this part of their height stand on one line
HIGHER: Final = 1.5  # than wide: a line that stands on its side; of fewer than three letters, any may be
LETTERS_TO_JUDGE: Final = 3

Box = tuple[float, float, float, float]
Line = tuple[Box, str, float]  # where it stands, what it says, how sure the reader is


class ReturningSession:
    """A session that gives its memory back after each run: one large picture would keep a gigabyte for ever."""

    def __init__(self, path: Path) -> None:
        from onnxruntime import InferenceSession, RunOptions, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._options = RunOptions()
        self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def run(self, names: Any, inputs: Any) -> Any:
        return self._session.run(names, inputs, self._options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def stout(picture: Picture) -> Picture:
    """A strip is widened with its own edge: a library would enlarge it until its short side is long enough."""
    height, width = picture.shape[:2]
    least = max(32, max(height, width) // SLIM_MAX)
    below, beside = max(0, least - height), max(0, least - width)
    return np.pad(picture, ((0, below), (0, beside), (0, 0)), mode="edge") if below or beside else picture


def reading_order(lines: list[Line]) -> list[Line]:
    """Top to bottom; what stands on one line, left to right."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line[0][1]):
        if rows and _share_line(rows[-1][0][0], line[0]):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: line[0][0])]


def _share_line(one: Box, other: Box) -> bool:
    shared = min(one[3], other[3]) - max(one[1], other[1])
    return shared > SAME_LINE * min(one[3] - one[1], other[3] - other[1])


def stands_on_side(lines: list[Line]) -> bool:
    """Whether most of what was found is higher than wide, as in a picture that was turned by a quarter."""
    judged = [box for box, text, _ in lines if len(text) >= LETTERS_TO_JUDGE]
    high = [box for box in judged if box[3] - box[1] > HIGHER * (box[2] - box[0])]
    return len(high) > len(judged) / 2


def turned_back(lines: list[Line], quarters: int, shape: tuple[int, ...]) -> list[Line]:
    """Lines of a picture that was turned by so many quarters against the clock, with boxes as before that."""
    height, width = shape[:2]

    def back(box: Box) -> Box:
        left, top, right, bottom = box
        if quarters == 1:
            return width - bottom, left, width - top, right
        if quarters == 2:
            return width - right, height - bottom, width - left, height - top
        return top, height - right, bottom, height - left

    return [(back(box), text, score) for box, text, score in lines]


def surest(lines: list[Line]) -> float:
    """How sure a reader is of all that it has read, by the letters."""
    letters = sum(len(text) for _, text, _ in lines)
    return sum(score * len(text) for _, text, score in lines) / letters if letters else 0.0
