"""Vectors at unit length, from whatever numbers a library or a service gives."""

import math
from typing import Any

import numpy as np

from headwater.errors import DataFault
from headwater.flow.models.port import Vector


def unit(values: Any, dimension: int, name: str) -> Vector:
    """A vector of unit length. Raises DataFault BAD_OUTPUT on NaN, infinity, zero, or another dimension."""
    try:
        vector = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataFault("BAD_OUTPUT", f"{name} answered with a vector that is not made of numbers.") from error
    if vector.shape != (dimension,):
        size = vector.shape[0] if vector.ndim == 1 else "no"
        raise DataFault("BAD_OUTPUT", f"{name} answered with {size} dimensions; its section says {dimension}.")
    length = math.sqrt(float(vector @ vector))
    if not math.isfinite(length) or length == 0:
        raise DataFault("BAD_OUTPUT", f"{name} answered with a vector of length {length:g}.")
    return (vector / length).astype(np.float32)
