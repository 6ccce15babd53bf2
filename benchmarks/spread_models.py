"""A small embedder for the benchmark of rows: what is measured is how they travel, not how they are made."""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from headwater.flow.models.port import ModelCard, Vector


class SmallWords:
    card: Final = ModelCard(
        "small-words", "1", accepts="text", produces="vector", parameters={"dimension": 64}, instant=True
    )

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[str]) -> list[Vector]:
        return [self._place(text) for text in batch]

    def _place(self, text: str) -> Vector:
        drawn = np.frombuffer(hashlib.shake_128(text.encode()).digest(64), np.uint8).astype(np.float32) - 127.5
        return drawn / np.linalg.norm(drawn)
