"""Sample: some of an index's entries, drawn evenly, to weigh words and nearness by. Pure.

What is rare and what is near differ from lake to lake and from embedder to embedder, so both are learned from what the
index holds: how many entries have a term, and how near a vector lies to texts that have nothing to do with it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.domain.terms import STEM

Vectors = npt.NDArray[np.float32]

ENTRIES_MAX: Final = 1_000
_RUN: Final = 20  # neighbours are drawn together: on S3 each place costs a request
# One wrong letter, or two swapped, leaves either the first two of five as they were or the last two.
_END: Final = 2
_NO_VECTORS: Final[Vectors] = np.zeros((0, 1), np.float32)


@dataclass(frozen=True, eq=False)
class Sample:
    """`indexed` are all that the index had, `entries` those that are seen, `drawn` how many of them are here; `holding`
    says how many of the drawn have a term. `vectors` are of unit length, or zero."""

    indexed: int
    entries: int
    drawn: int
    holding: Mapping[str, int]
    vectors: Vectors

    @classmethod
    def of(cls, rows: pa.Table, indexed: int, hidden: Collection[str] = ()) -> Self:
        """Rows of `terms`, `vector` and whose texts they are; those of `hidden` models count for nothing."""
        seen = rows.filter(pc.invert(pc.is_in(rows["source_fingerprint"], pa.array(sorted(hidden), pa.string()))))
        entries = round(indexed * len(seen) / len(rows))
        if len(rows) < indexed:  # there may be one that was not drawn
            entries = max(entries, len(seen) + 1)
        if not len(seen):
            return cls(indexed, entries, 0, {}, _NO_VECTORS)
        rows = seen
        holding = Counter(term for terms in rows["terms"].to_pylist() for term in set(terms.split()))
        vectors = rows["vector"].combine_chunks()
        flat = vectors.flatten() if isinstance(vectors, pa.Array) else pa.concat_arrays(
            [chunk.flatten() for chunk in vectors.chunks]
        )  # fmt: skip
        return cls(
            indexed, entries, len(rows), holding, unit(flat.to_numpy(zero_copy_only=False).reshape(len(rows), -1))
        )

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

    @cached_property
    def _by_ends(self) -> Mapping[tuple[bool, str], list[str]]:
        ends: defaultdict[tuple[bool, str], list[str]] = defaultdict(list)
        for term in self.holding:
            bare = term.removeprefix(STEM)
            ends[True, bare[:_END]].append(term)
            ends[False, bare[-_END:]].append(term)
        return ends

    def ending_alike(self, *words: str) -> set[str]:
        """Terms that begin or end as one of the words does; whatever is one letter away from five is among them."""
        ends = ((True, word[:_END]) for word in words), ((False, word[-_END:]) for word in words)
        return {term for end in chain(*ends) for term in self._by_ends.get(end, ())}

    def has_outgrown(self, indexed: int) -> bool:
        """Whether an index of so many entries needs another one."""
        return indexed != self.indexed if min(indexed, self.indexed) < ENTRIES_MAX else (
            not self.indexed / 2 < indexed < self.indexed * 2
        )  # fmt: skip


NOTHING: Final = Sample(0, 0, 0, {}, _NO_VECTORS)


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
