"""What a vector must be before it may enter the lake."""

import math
from typing import Any

import numpy as np

from headwater.errors import DataFault
from headwater.flow.models.port import ModelCard, Vector


def unit(values: Any, dimension: int, name: str) -> Vector:
    """A vector of unit length. Raises DataFault BAD_OUTPUT on NaN, infinity, zero, or another dimension."""
    try:
        vector = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise DataFault("BAD_OUTPUT", f"{name} answered with a vector that is not made of numbers.") from error
    if vector.shape != (dimension,):
        size = vector.shape[0] if vector.ndim == 1 else "no"
        raise DataFault("BAD_OUTPUT", f"{name} answered with {size} dimensions; its section says {dimension}.")
    length = math.sqrt(float(vector @ vector))
    if not math.isfinite(length) or length == 0:
        raise DataFault("BAD_OUTPUT", f"{name} answered with a vector of length {length:g}.")
    return (vector / length).astype(np.float32)


def checked_vector(vector: Any, card: ModelCard) -> Vector:
    """Raises DataFault BAD_OUTPUT where a vector would poison an index."""
    numbers: Vector = np.asarray(vector, dtype=np.float32)
    if numbers.ndim != 1 or not len(numbers):
        raise DataFault("BAD_OUTPUT", f"The model answered with something of shape {numbers.shape}, not a vector.")
    if card.dimension is not None and len(numbers) != card.dimension:
        raise DataFault("BAD_OUTPUT", f"The model's vector has {len(numbers)} numbers; it promises {card.dimension}.")
    if not np.isfinite(numbers).all():
        raise DataFault("BAD_OUTPUT", "The model's vector holds numbers that are not finite.")
    return numbers
