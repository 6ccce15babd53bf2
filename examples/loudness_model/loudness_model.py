"""A model of one's own: a card, `load` and `run`. Options of its section in headwater.toml arrive as keywords."""

from collections.abc import Sequence

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.flow.models.port import SAMPLE_RATE, ModelCard, Said, Sound


class Loudness:
    """The `Model` for `transcribe` that says `loud` or `quiet`."""

    def __init__(self, loud_above: int = 2000) -> None:
        self.loud_above = loud_above

    @property
    def card(self) -> ModelCard:
        return ModelCard(
            "loudness", "1.0", accepts="speech", produces="text", parameters={"loud_above": self.loud_above}
        )

    def load(self) -> None:
        """Nothing to load: a real model reads its weights here."""

    def run(self, batch: Sequence[Sound]) -> list[Said]:
        return [self._hear(sound) for sound in batch]

    def _hear(self, sound: Sound) -> Said:
        total, count = 0, 0
        for block in sound.blocks:
            total += int(np.abs(block.astype(np.int64)).sum())
            count += len(block)
        text = "loud" if count and total / count > self.loud_above else "quiet"
        place = Locator(start_ms=0, end_ms=count * 1000 // SAMPLE_RATE)
        return Said(text, segments=(Segment(text, place),))
