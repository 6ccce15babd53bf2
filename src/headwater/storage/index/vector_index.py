"""Vector index: the port, its values, and the choice of an adapter by URI.

The index is a view of silver.embeddings: it can be deleted and rebuilt to the same answers. It keeps its own position
in that table beside its entries, so that a wiped index starts again from the first vector.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.domain.meta import WantedFact
from headwater.errors import InvalidRequest
from headwater.settings import Settings
from headwater.storage.index.sample import Sample
from headwater.storage.io.s3 import is_s3

Vector = npt.NDArray[np.float32]
Terms = tuple[str, ...]  # as `domain/terms.py` cuts them


@dataclass(frozen=True, slots=True)
class Filter:
    """What an entry must be before it is ranked at all; `since` included, `until` not.

    `hidden` are fingerprints of models whose texts are not to be seen: those beside the active one. `where` are facts
    of its meta, or labels, all of which it must have.
    """

    customer: str | None = None
    modality: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    hidden: frozenset[str] = frozenset()
    speaker: str | None = None
    thread: str | None = None
    where: tuple[WantedFact, ...] = ()


ANYTHING: Final = Filter()


@dataclass(frozen=True, slots=True)
class Entry:
    """One chunk of text as the index holds it. `score` is the cosine for a vector's probe, BM25 for terms.

    `terms` are those of its text and of its object's name, with blanks between.
    """

    chunk_id: str
    score: float
    seq: int
    object_id: str
    customer: str
    modality: str
    occurred_at: datetime
    text: str
    model: str
    source_model: str
    locator: Mapping[str, Any] | None
    pointer: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None
    thread: str | None = None
    terms: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What an entry is ranked by, as an entry has it; `shown` makes the entry itself, as it was when it was found."""

    chunk_id: str
    score: float
    object_id: str
    terms: str
    shown: Callable[[], Entry]


class VectorIndex(Protocol):
    """Twice is once: an entry is known by its chunk_id, also when several processes bring it at the same time."""

    def prepare(self) -> None:
        """Load what the first use would wait for. May run in a thread of its own, and raises nothing."""
        ...

    def upsert(self, rows: pa.Table) -> None:
        """Rows of silver.embeddings; each fingerprint among them has an index of its own."""
        ...

    def search(self, fingerprint: str, probe: Vector | Terms, k: int, only: Filter = ANYTHING) -> list[Entry]:
        """The k best, best first: nearest to a vector, or by terms, rare ones first; what is new counts, too."""
        ...

    def candidates(
        self, fingerprint: str, probes: Sequence[Vector | Terms], k: int, only: Filter = ANYTHING
    ) -> list[list[Candidate]]:
        """The same of each of several, which costs less than one after the other; for who ranks many and shows few."""
        ...

    def sample(self, fingerprint: str, hidden: frozenset[str] = frozenset()) -> Sample:
        """Some of this fingerprint's entries, of texts that no `hidden` model wrote; kept while the index stays about
        as large as it was."""
        ...

    def delete(self, chunk_ids: Collection[str] | None) -> None:
        """None empties the index and forgets its position."""
        ...

    def drop(self, fingerprint: str) -> None:
        """Everything that this model made: its vectors, or vectors of the texts that it wrote."""
        ...

    def present(self, chunk_ids: Collection[str]) -> set[str]: ...

    def count(self) -> int:
        """Entries when the position was last set or entries were deleted; costs one small read."""
        ...

    def position(self) -> int:
        """The first seq of silver.embeddings that has yet to be brought; costs one small read."""
        ...

    def set_position(self, seq: int, identity: str | None = None) -> None:
        """Also which index this is, from here on, where an identity is given."""
        ...

    def identity(self) -> str:
        """As it was set last; empty for an index that is new or was emptied. Costs one small read."""
        ...

    def optimise(self) -> None:
        """Organise what came in since, merge small files, drop old versions. Never needed for right answers."""
        ...


def open_index(settings: Settings) -> VectorIndex:
    """Opens nothing yet: the index's library costs seconds to import, and not every caller gets that far."""
    uri = settings.text("index.uri")
    scheme, separator, _ = uri.partition("://")
    if separator and scheme != "file" and not is_s3(uri):
        raise InvalidRequest(
            f"index.uri is {uri}, but {scheme} is not known here. Use a directory or s3://bucket/prefix."
        )
    from headwater.storage.index.lance_index import LanceIndex

    return LanceIndex(uri.removeprefix("file://"), settings)
