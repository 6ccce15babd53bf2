"""The lexical embedder: hashed words, pairs of words and pieces of words. No weights, no meaning, the same everywhere.

Texts that share words, or spellings of them, are near; a synonym is far. It is the embedded default because it needs
nothing but arithmetic, and its vectors are equal on every machine.
"""

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.flow.models.port import ModelCard, Vector

DIMENSION: Final = 1024
PIECES: Final = (3, 4)  # characters; the word's ends count as one
PIECES_WEIGHT: Final = 0.7  # of all pieces of a word together, beside 1 for the word itself
PAIR_WEIGHT: Final = 0.4
WORD_LETTERS_MAX: Final = 40
# Short words are mostly glue; without a corpus to count in, length is the best guess of what a word tells.
SHORT_WEIGHTS: Final = (0.0, 0.3, 0.35, 0.6)
_WORD: Final = re.compile(r"[^\W_]+")

Places = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]


class Lexical:
    """The `Model` for `embed`."""

    card: Final = ModelCard(
        "lexical",
        "1",
        accepts="text",
        produces="vector",
        parameters={
            "dimension": DIMENSION,
            "pieces": PIECES,
            "pieces_weight": PIECES_WEIGHT,
            "pairs": PAIR_WEIGHT,
        },
        batch_items=512,
        instant=True,
    )

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[str]) -> list[Vector]:
        return list(embed_texts(batch))


def embed_texts(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """One unit vector a text, as rows; a text without words is the zero vector."""
    places: list[Places] = []
    weights: list[Weights] = []
    lengths: list[int] = []
    for text in texts:
        before = len(places)
        _add_text(text, places, weights)
        lengths.append(sum(map(len, places[before:])))
    if not places:
        return np.zeros((len(texts), DIMENSION), np.float32)
    rows = np.repeat(np.arange(len(texts)) * DIMENSION, lengths)
    summed = np.bincount(rows + np.concatenate(places), np.concatenate(weights), len(texts) * DIMENSION)
    return _unit(np.asarray(summed, np.float64).reshape(len(texts), DIMENSION))


def _unit(rows: Weights) -> npt.NDArray[np.float32]:
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    # Rounded, so that machines which add in another order still agree on every bit.
    return np.round(rows / np.where(norms == 0, 1, norms), 6).astype(np.float32)


def _add_text(text: str, places: list[Places], weights: list[Weights]) -> None:
    words = words_of(text)
    for word, count in Counter(words).items():
        at, weight = _word(word)
        places.append(at)
        weights.append(weight if count == 1 else weight * _damped(count))
    if len(words) > 1:
        at, weight = _pairs(words)
        places.append(at)
        weights.append(weight)


def words_of(text: str) -> list[str]:
    """Lower-case words without accents."""
    if not text.isascii():
        plain = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in plain if not unicodedata.combining(char))
    return _WORD.findall(text.casefold())


def _damped(count: int) -> float:
    """Sub-linear: the tenth mention says less than the first."""
    return 1 + math.log(count)


@lru_cache(maxsize=50_000)
def _word(word: str) -> tuple[Places, Weights]:
    weight = SHORT_WEIGHTS[len(word)] if len(word) < len(SHORT_WEIGHTS) else 1.0
    marked = f"<{word[:WORD_LETTERS_MAX]}>"
    pieces = [marked[at : at + size] for size in PIECES for at in range(len(marked) - size + 1)]
    share = weight * PIECES_WEIGHT / math.sqrt(max(1, len(pieces)))
    values = [_hash("w" + word), *(_hash("p" + piece) for piece in pieces)]
    return _signed(values, [weight] + [share] * len(pieces))


def _pairs(words: Sequence[str]) -> tuple[Places, Weights]:
    numbers = np.array([_number(word) for word in words], np.uint64)
    mixed = numbers[:-1] * np.uint64(0x9E3779B97F4A7C15) + numbers[1:]
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    signs = np.where(mixed & np.uint64(1 << 20), PAIR_WEIGHT, -PAIR_WEIGHT)
    return (mixed % np.uint64(DIMENSION)).astype(np.int64), signs


@lru_cache(maxsize=50_000)
def _number(word: str) -> int:
    return _hash("n" + word)


def _hash(text: str) -> int:
    """Python's own hash differs from process to process."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little")


def _signed(values: Iterable[int], weights: Sequence[float]) -> tuple[Places, Weights]:
    """Half of all features count negatively, so that chance meetings in one place cancel out."""
    hashed = list(values)
    at = np.array([value % DIMENSION for value in hashed], np.int64)
    signs = np.array([1.0 if value & (1 << 20) else -1.0 for value in hashed])
    return at, signs * np.array(weights)
