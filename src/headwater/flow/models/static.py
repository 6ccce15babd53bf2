"""Static embeddings: a table of word pieces that was trained once, each with its place; a text lies in their middle.

Texts of the same meaning are near without a shared word, which no spelling shows. There is no network to run, so it
costs as little as hashing does. The table and its tokenizer are two files of the wheel `wordllama`, whose own code is
not used: it asks the network for files that it has.
"""

from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headwater.errors import Unavailable
from headwater.flow.models.port import ModelCard, Vector, installed_version, packed_weights
from headwater.flow.models.word_pieces import sureness

DISTRIBUTION: Final = "wordllama"
TABLE: Final = "wordllama/weights/l2_supercat_256.safetensors"
TOKENIZER: Final = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
DIMENSION: Final = 256
BLANK: Final = "▁"


class Static:
    """The `Model` for `embed`. The same text gives the same vector, whatever else is in the batch."""

    def __init__(self) -> None:
        self._table: npt.NDArray[np.float32] | None = None
        self._tokenizer: Any = None

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name="static/wordllama-256",
            version=installed_version(DISTRIBUTION),
            accepts="text",
            produces="vector",
            parameters={"dimension": DIMENSION, "capitals": False},
            batch_items=512,
            weights_digest=packed_weights(DISTRIBUTION, Path(TABLE).name, Path(TOKENIZER).name),
            instant=True,
        )

    def load(self) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        (table,) = load_file(_file(TABLE)).values()
        self._table = table.astype(np.float32)
        self._tokenizer = Tokenizer.from_file(str(_file(TOKENIZER)))

    def run(self, batch: Sequence[str]) -> list[Vector]:
        return [self._middle(_valid(text)) for text in batch]

    def knows(self, word: str) -> float:
        """How sure it is that a word means something to it: 1, ½, ¼ for one that it has in shreds, or 0."""
        assert self._tokenizer is not None
        found = self._tokenizer.encode(_valid(word), add_special_tokens=False).tokens
        return sureness(word, len(found) - found.count(BLANK))

    def _middle(self, text: str) -> Vector:
        assert self._table is not None
        # One by one: for batches, the tokenizer starts a thread on every core, and workers are many already.
        summed = self._table[self._tokenizer.encode(text, add_special_tokens=False).ids].sum(axis=0, dtype=np.float64)
        length = float(np.sqrt(summed @ summed)) if text else 0.0
        # Rounded, so that machines which add in another order still agree on every bit.
        return np.round(summed / length, 6).astype(np.float32) if length else np.zeros(DIMENSION, np.float32)


def _valid(text: str) -> str:
    """Without capitals, which make other pieces of the same word; half a surrogate pair would stop the tokenizer."""
    return text.encode(errors="replace").decode().lower().strip()


def _file(name: str) -> Path:
    path = Path(str(metadata.distribution(DISTRIBUTION).locate_file(name)))
    if not path.is_file():
        raise Unavailable(
            f"{DISTRIBUTION} has no {name} in it. Install it again, or name another model as models.embed."
        )
    return path
