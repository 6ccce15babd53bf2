"""Text in pictures by PP-OCRv6, in its small size: lines with their boxes, blanks and umlauts as they stand there.

Finder and reader come inside the wheel `rapidocr`. Their paths are named: what is not named, the library fetches.
"""

from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.errors import Unavailable
from headwater.flow.models.language import tell_language
from headwater.flow.models.port import ModelCard, Picture, Said, installed_version, packed_weights
from headwater.flow.models.text_lines import (
    Box,
    Line,
    ReturningSession,
    reading_order,
    stands_on_side,
    stout,
    surest,
    turned_back,
)

DISTRIBUTION: Final = "rapidocr"
FINDER: Final = "PP-OCRv6_det_small.onnx"
READER: Final = "PP-OCRv6_rec_small.onnx"
DETECT_SIDE: Final = 480  # the library's 736 takes twice as long on a screenshot and finds the same lines
SURE: Final = 0.8  # what stands upright is read with 0.95 and more, what stands on its head with 0.6 to 0.75
SCORE_MIN: Final = 0.5  # below, it is the pattern of a picture that looks like letters


class PpOcr:
    """The `Model` for `caption`."""

    def __init__(self) -> None:
        self._reader: Any = None

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name="pp-ocr/v6-small",
            version=installed_version(DISTRIBUTION),
            accepts="picture",
            produces="text",
            parameters={"detect_side": DETECT_SIDE, "score_min": SCORE_MIN},
            weights_digest=packed_weights(DISTRIBUTION, FINDER, READER),
        )

    def load(self) -> None:
        import cv2
        from rapidocr import RapidOCR

        cv2.setNumThreads(1)
        finder, reader = _file(FINDER), _file(READER)
        self._reader = RapidOCR(params={**_options(), "Det.model_path": str(finder), "Rec.model_path": str(reader)})
        # The library turns onnxruntime's memory arena off; with it, a screenshot takes a fifth less.
        self._reader._load_det_model().session.session = ReturningSession(finder)
        self._reader._load_rec_model().session.session = ReturningSession(reader)

    def run(self, batch: Sequence[Picture]) -> list[Said]:
        return [self._read(picture) for picture in batch]

    def _read(self, picture: Picture) -> Said:
        lines = self._found(picture)
        if stands_on_side(lines):
            return _said(max((self._turned(picture, quarters) for quarters in (1, 3)), key=surest))
        if lines and surest(lines) < SURE:  # as letters on their heads are read
            lines = max(lines, self._turned(picture, 2), key=surest)
        return _said(lines)

    def _turned(self, picture: Picture, quarters: int) -> list[Line]:
        return turned_back(self._found(np.rot90(picture, quarters)), quarters, picture.shape)

    def _found(self, picture: Picture) -> list[Line]:
        """In the order in which they are read."""
        found = self._reader(np.ascontiguousarray(stout(picture)[:, :, ::-1]), use_cls=False)
        return reading_order([line for line in _lines(found) if line[1]])


def _said(ordered: list[Line]) -> Said:
    text = "\n".join(line for _, line, _ in ordered)
    confidence = sum(score for _, _, score in ordered) / len(ordered) if ordered else None
    segments = tuple(Segment(line, Locator(box=box)) for box, line, _ in ordered)
    return Said(text, tell_language(text), confidence, segments)


def _options() -> dict[str, Any]:
    return {
        "Global.use_cls": False,
        "Global.text_score": SCORE_MIN,
        "Global.log_level": "critical",
        "Det.limit_side_len": DETECT_SIDE,
        "Rec.rec_batch_num": 1,  # in batches, short lines are padded to the longest
    }


def _lines(found: Any) -> list[Line]:
    """Nothing was found where it has no boxes, or something else than lines."""
    boxes, texts, scores = (getattr(found, name, None) for name in ("boxes", "txts", "scores"))
    if boxes is None or texts is None or scores is None:
        return []
    return [
        (_box(corners), " ".join(text.split()), float(score))
        for corners, text, score in zip(boxes, texts, scores, strict=True)
    ]


def _box(corners: Any) -> Box:
    (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


def _file(name: str) -> Path:
    path = Path(str(metadata.distribution(DISTRIBUTION).locate_file(f"rapidocr/models/{name}")))
    if not path.is_file():
        raise Unavailable(
            f'{DISTRIBUTION} has no {name} in it. Install it again; models.caption = "rapidocr" reads too.'
        )
    return path
