"""Sample: some of an index's entries, drawn evenly, to weigh words and nearness by. Pure.

What is rare and what is near differ from lake to lake and from embedder to embedder, so both are learned from what the
index holds: how many entries have a term, and how near a vector lies to texts that have nothing to do with it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Vectors = npt.NDArray[np.float32]

ENTRIES_MAX: Final = 1_000
_RUN: Final = 20  # neighbours are drawn together: on S3 each place costs a request
_NO_VECTORS: Final[Vectors] = np.zeros((0, 1), np.float32)


@dataclass(frozen=True, eq=False)
class Sample:
    """`entries` are all that the index had when `drawn` of them were drawn; `holding` says how many of those have a
    term. `vectors` are of unit length, or zero."""

    entries: int
    drawn: int
    holding: Mapping[str, int]
    vectors: Vectors

    @classmethod
    def of(cls, rows: pa.Table, entries: int) -> Self:
        """Rows of `terms` and `vector`."""
        holding = Counter(term for terms in rows["terms"].to_pylist() for term in set(terms.split()))
        vectors = rows["vector"].combine_chunks()
        flat = vectors.flatten() if isinstance(vectors, pa.Array) else pa.concat_arrays(
            [chunk.flatten() for chunk in vectors.chunks]
        )  # fmt: skip
        return cls(entries, len(rows), holding, unit(flat.to_numpy(zero_copy_only=False).reshape(len(rows), -1)))

    @property
    def is_all(self) -> bool:
        return self.drawn >= self.entries

    @cached_property
    def letters(self) -> str:
        """Those that words are made of, common ones first."""
        counted: Counter[str] = Counter()
        for term, count in self.holding.items():
            counted.update(dict.fromkeys(filter(str.isalpha, term), count))
        return "".join(letter for letter, _ in counted.most_common(40))

    def has_outgrown(self, entries: int) -> bool:
        """Whether an index of so many entries needs another one."""
        return entries != self.entries if min(entries, self.entries) < ENTRIES_MAX else (
            not self.entries / 2 < entries < self.entries * 2
        )  # fmt: skip


NOTHING: Final = Sample(0, 0, {}, _NO_VECTORS)


def unit(rows: Vectors) -> Vectors:
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    made: Vectors = (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return made


def places(entries: int) -> list[int]:
    """Which of so many entries are drawn: runs of neighbours, evenly spread."""
    if entries <= ENTRIES_MAX:
        return list(range(entries))
    runs = ENTRIES_MAX // _RUN
    return [run * entries // runs + at for run in range(runs) for at in range(_RUN)]
