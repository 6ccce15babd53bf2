"""Models that make no call: chat and other texts say what they say, and a file's header tells about the file."""

from collections.abc import Sequence
from typing import Final

from headwater.flow.models.language import tell_language
from headwater.flow.models.port import ModelCard, Said


class Inline:
    """Chat: what was written is what was said."""

    card: Final = ModelCard("inline", "1", accepts="text", produces="text", batch_items=1000, instant=True)

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[str]) -> list[Said]:
        return [Said(text, tell_language(text)) for text in batch]


class Probe:
    """Stands for our own reading of headers, so that metadata rows name who made them like all others."""

    card: Final = ModelCard("probe", "1", accepts="document", produces="text", instant=True)

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[bytes]) -> list[Said]:
        return [Said("") for _ in batch]


class Readers:
    """Stands for `flow/models/readers`. Another version makes other rows: raise it when what they tell changes."""

    card: Final = ModelCard("readers", "1", accepts="document", produces="text", instant=True)

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[bytes]) -> list[Said]:
        return [Said("") for _ in batch]
