"""Nearness: what a cosine says, for this embedder and this index. Pure, but for asking the embedder.

Every embedder has a scale of its own: to one, texts that have nothing to do with each other lie at 0, to another at
0.7. So a question's vector is held against a sample of what the index has: nearness begins where chance ends, and is 1
for the same text. How far chance goes is learned from words that mean nothing.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from headwater.flow.models.answers import ask_vectors
from headwater.flow.models.port import Model, Vector
from headwater.storage.index.sample import Sample, Vectors

NONSENSE: Final = 64
# What was not tried reaches a little further.
UNTRUSTED_REACH: Final = 1.2
# A question whose words mean something may find what lies a quarter as far out as nonsense comes by chance.
TRUSTED_REACH: Final = 0.25
# Fewer entries have no middle: one in two of them may be the answer.
DRAWN_MIN: Final = 20
FEW_FLOOR: Final = 0.2
# Most of a lake's texts have nothing to do with any one of them.
UNRELATED_SHARE: Final = 0.95
_reaches: WeakKeyDictionary[Sample, dict[str, float]] = WeakKeyDictionary()
_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bdfghklmnprstvwz"


def likeness_of(model: Model, probe: Vector, sample: Sample, *, is_trusted: bool) -> Callable[[float], float]:
    """From the cosine of an entry to how like it is: 0 is chance, 1 the same. `is_trusted` says that the question has
    words that mean something here; otherwise an entry must be nearer than nonsense ever comes."""
    reach = _reach_of_nonsense(model, sample)
    # More entries than were drawn reach further by chance.
    reach *= math.sqrt(math.log(sample.entries + 2) / math.log(sample.drawn + 2))
    if sample.drawn < DRAWN_MIN:
        return _beyond(max(FEW_FLOOR, reach))
    middle = float(np.median(sample.vectors @ _unit(probe)))
    floor = middle + reach * (TRUSTED_REACH if is_trusted else UNTRUSTED_REACH)
    return _beyond(floor)


def _beyond(floor: float) -> Callable[[float], float]:
    return lambda cosine: float(min(1.0, max(0.0, (cosine - floor) / max(0.05, 1 - floor))))


def _reach_of_nonsense(model: Model, sample: Sample) -> float:
    """How far beyond the middle the nearest entry lies, of words that mean nothing."""
    if not sample.drawn:
        return 0.0
    known = _reaches.setdefault(sample, {})
    if model.card.fingerprint not in known:
        known[model.card.fingerprint] = _learned_reach(model, sample)
    return known[model.card.fingerprint]


def _learned_reach(model: Model, sample: Sample) -> float:
    if model.card.price or model.card.deadline_seconds:
        # A question to a service is one call: there, how far apart the lake's own texts lie has to do.
        lines = sample.vectors[:: math.ceil(sample.drawn / NONSENSE)] @ sample.vectors.T
        return float(np.median(np.quantile(lines, UNRELATED_SHARE, axis=1) - np.median(lines, axis=1)))
    probes: Vectors = np.array([_unit(vector) for vector in ask_vectors(model, _words_of_nothing())])
    lines = probes @ sample.vectors.T
    return float((lines.max(axis=1) - np.median(lines, axis=1)).max())


def _words_of_nothing() -> Sequence[str]:
    """Such as can be said: only they look like words to one who goes by letters."""
    draw = random.Random(11)
    return ["".join(_syllable(draw) for _ in range(2 + at % 3)) for at in range(NONSENSE)]


def _syllable(draw: random.Random) -> str:
    begins, ends = (draw.choice(["", draw.choice(_CONSONANTS)]) for _ in range(2))
    return draw.choice(_CONSONANTS) + begins + draw.choice(_VOWELS) + ends


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    made: Vector = vector / length if length else vector
    return made
