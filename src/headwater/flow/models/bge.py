"""BGE: a network of twelve layers that was trained to find the text that answers a question.

It finds the most by meaning of the embedders that come with Headwater, and takes ninety times as long as static ones.

All its vectors point roughly the same way: two texts that have nothing to do with each other lie at 0.6, and which of
them is a little nearer is half chance. So each is told from a centre, that of common words, and what is left says more.
The centre is a file beside this one, made once (tests/test_bge.py makes it anew): another processor rounds sums of
eight bits a little differently.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from headwater.flow.models.bert_pieces import BertPieces, valid
from headwater.flow.models.bge_weights import NETWORK, TOKENIZER, weights_file
from headwater.flow.models.port import ModelCard, Vector
from headwater.flow.models.vectors import unit

DIMENSION: Final = 384
PIECES_MAX: Final = 512  # as its makers run it; they were trained on no more
CENTRE: Final = Path(__file__).with_name("bge_centre.npy")


class Bge:
    """The `Model` for `embed`. The same text gives the same vector, whatever else is in the batch.

    Its makers' words before a question are left out: they hardly help, and questions and texts would lie apart.
    """

    def __init__(self) -> None:
        self._session: Any = None
        self._pieces: BertPieces | None = None
        self._centre: Vector | None = None

    @cached_property
    def card(self) -> ModelCard:
        for packed in (NETWORK, TOKENIZER):
            weights_file(packed)  # said before a run begins
        return ModelCard(
            name="bge/small-en-v1.5",
            version="1.5",
            accepts="text",
            produces="vector",
            parameters={"dimension": DIMENSION, "pieces": PIECES_MAX, "bits": 8},
            batch_items=64,
            weights_digest=_digest(),
        )

    def load(self) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # workers are many already
        options.log_severity_level = 4
        file = str(weights_file(NETWORK))
        self._session = InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._pieces = BertPieces(weights_file(TOKENIZER), PIECES_MAX)
        self._centre = np.load(CENTRE)

    def run(self, batch: Sequence[str]) -> list[Vector]:
        return [self._place(valid(text)) for text in batch]

    def knows(self, word: str) -> float:
        """How sure it is that a word means something to it: 1, ½, ¼ for one that it has in shreds, or 0."""
        assert self._pieces is not None
        return self._pieces.knows(word)

    def _place(self, text: str) -> Vector:
        assert self._centre is not None
        if not text:
            return np.zeros(DIMENSION, np.float32)
        return unit(self.uncentred(text) - self._centre, DIMENSION, self.card.name)

    def uncentred(self, text: str) -> Vector:
        """As its makers have it: where the network places the piece that begins a text, at unit length."""
        assert self._pieces is not None
        # One by one: eight-bit sums are scaled to the largest number of a whole batch.
        numbers = np.array([self._pieces.numbers(text)], np.int64)
        given = {
            "input_ids": numbers,
            "attention_mask": np.ones_like(numbers),
            "token_type_ids": np.zeros_like(numbers),
        }
        (found,) = self._session.run(None, given)
        return unit(found[0, 0], DIMENSION, self.card.name)


def _digest() -> str:
    centre = hashlib.sha256(CENTRE.read_bytes()).hexdigest()
    return hashlib.sha256(f"{NETWORK.sha256}\n{TOKENIZER.sha256}\n{centre}".encode()).hexdigest()[:16]
