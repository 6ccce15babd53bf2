"""Search: from a question to chunks of text, each with its place in its source.

Reads   index
Two lists are made, by vector and by words, and fused by rank: a hit's score is the mean of `RANKS / (RANKS + rank)`
over both, so 1.0 is first in both lists, and neither list's own scale matters. When the index lags behind
silver.embeddings, the answer says by how many vectors.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headwater.clock import to_text
from headwater.domain.meta import WantedFact
from headwater.domain.modality import Modality, modalities_with
from headwater.domain.model_book import ModelBook
from headwater.domain.steps import PICTURE
from headwater.errors import Conflict, InvalidRequest, Unavailable
from headwater.flow.models.answers import ask_vector
from headwater.flow.models.port import Model
from headwater.storage.index.vector_index import Entry, Filter, VectorIndex

LIMIT_MAX: Final = 1_000
QUERY_LETTERS_MAX: Final = 10_000
PER_OBJECT: Final = 3
RANKS: Final = 20
# Hashed vectors of unrelated texts meet by chance; below this a nearness alone says nothing.
COSINE_MIN: Final = 0.1
# A CLIP places any sentence at a tenth or so from any picture; a fifth is where likeness begins.
LIKENESS_MIN: Final = 0.2
SNIPPET_LETTERS: Final = 160
_DEPTH_MIN: Final = 30
_WORD: Final = re.compile(r"[^\W_]+")
_POINTER: Final = ("path", "offset", "size", "content_type", "checksum")


@dataclass(frozen=True, slots=True)
class Hit:
    """`marks` are the places of the asked words in `snippet`, as (start, end)."""

    entry: Entry
    score: float
    snippet: str
    marks: tuple[tuple[int, int], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.entry.chunk_id,
            "score": round(self.score, 4),
            "customer": self.entry.customer,
            "modality": self.entry.modality,
            "text": self.entry.text,
            "snippet": self.snippet,
            "model": self.entry.source_model,
            "locator": _present(self.entry.locator),
            "pointer": {name: self.entry.pointer.get(name) for name in _POINTER},
            "occurred_at": to_text(self.entry.occurred_at),
            "meta": self.entry.meta,
            "thread": self.entry.thread,
            "marks": [list(mark) for mark in self.marks],
        }


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    hits: tuple[Hit, ...]
    stale_by: int

    def to_dict(self) -> dict[str, Any]:
        return {"hits": [hit.to_dict() for hit in self.hits], "stale_by": self.stale_by}


def search(
    index: VectorIndex,
    embedder: Model,
    query: str,
    *,
    embedded: int,
    customer: str | None = None,
    modality: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 10,
    hidden: frozenset[str] = frozenset(),
    speaker: str | None = None,
    thread: str | None = None,
    where: tuple[WantedFact, ...] = (),
    pictures: Model | None = None,
) -> SearchAnswer:
    """`embedded` is the next seq of silver.embeddings; at most three hits come from one object.

    `pictures` is a model that places words among pictures; those are a list of their own.
    """
    only = _checked(query, Filter(customer, modality, since, until, hidden, speaker, thread, where), limit)
    depth = max(_DEPTH_MIN, 2 * limit)
    while True:
        near, worded = _candidates(index, embedder, query, depth, only)
        shown = _shown(index, pictures, query, depth, only)
        fused = _few_per_object(_fused(near, worded, shown))[:limit]
        if len(fused) == limit or max(len(near), len(worded), len(shown)) < depth or depth >= LIMIT_MAX:
            break
        depth *= 4
    asked = {_folded(word) for word in _WORD.findall(query)}
    hits = tuple(Hit(entry, score, *_snippet(entry.text, asked)) for entry, score in fused)
    return SearchAnswer(hits, max(0, embedded - index.position()))


def search_by_book(read_book: Callable[[], ModelBook], ask: Callable[[ModelBook], SearchAnswer]) -> SearchAnswer:
    """By the models that the book has as active. Where the one that was asked was flipped away from and retired
    meanwhile, by those that are active now."""
    while True:
        book = read_book()
        try:
            return ask(book)
        except (Conflict, Unavailable):
            if read_book() == book:
                raise


def _checked(query: str, only: Filter, limit: int) -> Filter:
    if not _WORD.search(query):
        raise InvalidRequest("There is no word in the query. Ask with a few words, such as: headwater search refund")
    if len(query) > QUERY_LETTERS_MAX:
        raise InvalidRequest(f"The query is longer than {QUERY_LETTERS_MAX} letters. Ask with a few words.")
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"limit is {limit}; it must be between 1 and {LIMIT_MAX}.")
    if only.modality is not None and only.modality not in set(Modality):
        raise InvalidRequest(f"modality is {only.modality}; it must be one of {', '.join(Modality)}.")
    if only.since and only.until and only.since >= only.until:
        raise InvalidRequest("since must lie before until.")
    return only


def _candidates(
    index: VectorIndex, embedder: Model, query: str, depth: int, only: Filter
) -> tuple[list[Entry], list[Entry]]:
    """Both at once: the index works outside Python's lock."""
    fingerprint = embedder.card.fingerprint
    with ThreadPoolExecutor(1) as beside:
        worded = beside.submit(index.search, fingerprint, query, depth, only)
        return index.search(fingerprint, ask_vector(embedder, query), depth, only), worded.result()


def _shown(index: VectorIndex, pictures: Model | None, query: str, depth: int, only: Filter) -> list[Entry]:
    """Pictures that look like the query."""
    if pictures is None or only.modality not in {None, *modalities_with(PICTURE)}:
        return []
    found = index.search(pictures.card.fingerprint, ask_vector(pictures, query), depth, only)
    return [entry for entry in found if entry.score >= LIKENESS_MIN]


def _fused(near: list[Entry], worded: list[Entry], shown: list[Entry]) -> list[tuple[Entry, float]]:
    """Best first; equal scores by nearness, then by id, so that an answer can be repeated.

    A picture has no words to be found by, so it can be first in one list only.
    """
    scores: defaultdict[str, float] = defaultdict(float)
    known = {entry.chunk_id: entry for entry in worded}
    told = [entry for entry in near if entry.score >= COSINE_MIN or entry.chunk_id in known]
    for ranked in (told, worded, shown):
        for rank, entry in enumerate(ranked):
            scores[entry.chunk_id] += RANKS / (RANKS + rank) / 2
    known |= {entry.chunk_id: entry for entry in (*told, *shown)}
    cosine = {entry.chunk_id: entry.score for entry in (*told, *shown)}
    order = sorted(scores, key=lambda name: (-scores[name], -cosine.get(name, 0.0), name))
    return [(known[name], scores[name]) for name in order]


def _few_per_object(ranked: Iterable[tuple[Entry, float]]) -> list[tuple[Entry, float]]:
    seen: Counter[str] = Counter()
    kept = []
    for entry, score in ranked:
        seen[entry.object_id] += 1
        if seen[entry.object_id] <= PER_OBJECT:
            kept.append((entry, score))
    return kept


def _snippet(text: str, asked: set[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The stretch of text with most of the asked words, cut at blanks, and where they stand in it."""
    matches = [found.span() for found in _WORD.finditer(text) if _matches(_folded(found[0]), asked)]
    start = _best_start(text, matches)
    end = min(len(text), start + SNIPPET_LETTERS)
    if end < len(text) and (blank := text.rfind(" ", start, end)) > start:
        end = blank
    before, after = "…" if start > 0 else "", "…" if end < len(text) else ""
    shift = len(before) - start
    marks = tuple((low + shift, high + shift) for low, high in matches if low >= start and high <= end)
    return before + text[start:end] + after, marks


def _best_start(text: str, matches: list[tuple[int, int]]) -> int:
    if len(text) <= SNIPPET_LETTERS or not matches:
        return 0
    # Some words before the first match are worth as much as those after it.
    lead = SNIPPET_LETTERS // 4
    room = SNIPPET_LETTERS - lead
    best = max(matches, key=lambda match: (sum(match[0] <= low < match[0] + room for low, _ in matches), -match[0]))
    start = min(max(0, best[0] - lead), len(text) - SNIPPET_LETTERS)
    return text.find(" ", start, best[0]) + 1 or start


def _matches(word: str, asked: set[str]) -> bool:
    """Equal, or of one stem as far as four letters can tell: invoice, invoices."""
    return word in asked or any(
        len(other) >= 4 and len(word) >= 4 and word.startswith(other[: max(4, len(other) - 2)]) for other in asked
    )


def _folded(word: str) -> str:
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))


def _present(locator: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (locator or {}).items() if value is not None}
