"""Text in pictures by RapidOCR: lines with their boxes.

The recogniser often drops the blanks between words; they are put back where the picture itself shows a gap in the ink.
"""

from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.flow.models.language import tell_language
from headwater.flow.models.port import (
    ModelCard,
    Picture,
    Said,
    installed_version,
    packed_weights,
)
from headwater.flow.models.text_lines import Box, ReturningSession, reading_order, stout

DETECT_SIDE: Final = 480  # the library's 736 takes four times as long on a screenshot and finds the same lines
GAP_OF_HEIGHT: Final = 0.24  # a blank is at least this part of the ink's height
DIGIT_GAP_OF_HEIGHT: Final = 0.4  # a 1 stands in more white than other letters do
INK_LEVELS: Final = 20  # grey levels between ink and paper, at least
INK_SHARE: Final = 0.25  # of the strongest contrast in the line: fainter is a codec's noise


class RapidOcr:
    """The `Model` for `caption`."""

    def __init__(self) -> None:
        self._reader: Any = None

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name="rapidocr",
            version=installed_version("rapidocr_onnxruntime"),
            accepts="picture",
            produces="text",
            parameters={"detect_side": DETECT_SIDE, "gap_of_height": GAP_OF_HEIGHT},
            weights_digest=packed_weights("rapidocr_onnxruntime", ".onnx"),
        )

    def load(self) -> None:
        import cv2
        from rapidocr_onnxruntime import RapidOCR

        cv2.setNumThreads(1)
        self._reader = RapidOCR(det_limit_side_len=DETECT_SIDE, rec_batch_num=1)
        models = Path(str(metadata.distribution("rapidocr_onnxruntime").locate_file("rapidocr_onnxruntime/models")))
        # The library turns onnxruntime's memory arena off and pads lines into batches; this takes half the time.
        self._reader.text_det.infer.session = ReturningSession(models / "ch_PP-OCRv4_det_infer.onnx")
        self._reader.text_rec.session.session = ReturningSession(models / "ch_PP-OCRv4_rec_infer.onnx")

    def run(self, batch: Sequence[Picture]) -> list[Said]:
        return [self._read(picture) for picture in batch]

    def _read(self, picture: Picture) -> Said:
        found, _ = self._reader(stout(picture)[:, :, ::-1].copy(), use_cls=False, return_word_box=True)
        lines = [_line(picture, *parts[:5]) for parts in found or ()]
        ordered = reading_order([line for line in lines if line[1]])
        text = "\n".join(line for _, line, _ in ordered)
        confidence = sum(score for _, _, score in ordered) / len(ordered) if ordered else None
        segments = tuple(Segment(line, Locator(box=box)) for box, line, _ in ordered)
        return Said(text, tell_language(text), confidence, segments)


def _line(
    picture: Picture,
    corners: Any,
    text: str,
    score: float,
    places: Any,
    letters: Sequence[str],
) -> tuple[Box, str, float]:
    xs, ys = [float(x) for x, _ in corners], [float(y) for _, y in corners]
    box = (min(xs), min(ys), max(xs), max(ys))
    centres = [(place[0][0] + place[1][0]) / 2 for place in places or ()]
    level = abs(ys[0] - ys[1]) < (box[3] - box[1]) / 4
    if level and len(centres) == len(letters) == len(text):
        text = spaced(text, centres, _gaps(picture, box))
    return box, " ".join(text.split()), float(score)


def spaced(text: str, centres: Sequence[float], gaps: Sequence[tuple[float, float]]) -> str:
    """The text with a blank wherever a gap lies between two letters that stand side by side."""
    out = list(text[:1])
    for index in range(1, len(text)):
        before, letter = text[index - 1], text[index]
        least = DIGIT_GAP_OF_HEIGHT if before.isdigit() and letter.isdigit() else GAP_OF_HEIGHT
        widest = max(
            (gap for middle, gap in gaps if centres[index - 1] < middle < centres[index]),
            default=0.0,
        )
        if widest >= least and not before.isspace() and not letter.isspace():
            out.append(" ")
        out.append(letter)
    return "".join(out)


def _gaps(picture: Picture, box: Box) -> list[tuple[float, float]]:
    """Runs of columns without ink: the middle of each, and its width as a part of the ink's height."""
    left, top, right, bottom = (max(0, int(side)) for side in box)
    grey = picture[top:bottom, left:right].mean(axis=2)
    if not grey.size:
        return []
    contrast = np.abs(grey - np.median(grey))
    ink = contrast > max(INK_LEVELS, INK_SHARE * float(contrast.max()))
    columns, rows = np.flatnonzero(ink.any(axis=0)), np.flatnonzero(ink.any(axis=1))
    if len(columns) < 2:
        return []
    blank, height = np.diff(columns) - 1, rows[-1] - rows[0] + 1
    wide = np.flatnonzero(blank >= GAP_OF_HEIGHT * height)
    return [(float(left + columns[at] + 1 + blank[at] / 2), float(blank[at] / height)) for at in wide]
