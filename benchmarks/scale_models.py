"""Models for the benchmark of size: what is measured is everything but the models."""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from headwater.flow.models.port import ModelCard, Picture, Said, Vector


class Corner:
    """Says the colour of a picture's corner."""

    card: Final = ModelCard("corner", "1", accepts="picture", produces="text")

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[Picture]) -> list[Said]:
        return [Said(f"the corner is {self.word} {picture[0, 0].tolist()}", "en", 1.0, ()) for picture in batch]

    word: Final = "coloured"


class SecondCorner(Corner):
    """What a replay brings in."""

    card: Final = ModelCard("corner", "2", accepts="picture", produces="text")  # type: ignore[misc]
    word: Final = "painted"  # type: ignore[misc]


class FewNumbers:
    """Eight numbers for a text."""

    card: Final = ModelCard(
        "few-numbers", "1", accepts="text", produces="vector", parameters={"dimension": 8}, instant=True
    )

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[str]) -> list[Vector]:
        return [self._place(text) for text in batch]

    def _place(self, text: str) -> Vector:
        drawn = np.frombuffer(hashlib.shake_128(text.encode()).digest(8), np.uint8).astype(np.float32) - 127.5
        return drawn / np.linalg.norm(drawn)
