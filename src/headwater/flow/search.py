"""Search: from a question to chunks of text, each with its place in its source.

Reads   index
Candidates come by words and by meaning, and each is judged by both: how much of what was asked for it has, rare words
before common ones, and how much nearer it lies than chance. So a score means the same for every question, and what
nothing fits is answered with nothing. When the index lags behind silver.embeddings, the answer says by how much.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headwater.domain.meta import WantedFact
from headwater.domain.modality import Modality, modalities_with
from headwater.domain.model_book import ModelBook
from headwater.domain.steps import PICTURE as PICTURE_STEP
from headwater.errors import Conflict, InvalidRequest, Unavailable
from headwater.flow.answer import BOTH, MEANING, PICTURE, WORDS, Hit, SearchAnswer
from headwater.flow.models.answers import ask_vector
from headwater.flow.models.port import Model
from headwater.flow.nearness import likeness_of
from headwater.flow.question import Question, Word, edits_of, may_be_mistyped, meant_by
from headwater.flow.snippet import snippet_of
from headwater.storage.index.sample import Sample
from headwater.storage.index.vector_index import Candidate, Filter, Terms, Vector, VectorIndex

LIMIT_MAX: Final = 1_000
QUERY_LETTERS_MAX: Final = 10_000
PER_OBJECT: Final = 3
# Words count from half of what was asked for on: beneath, as many texts have them by chance as fit by meaning.
WORDS_FROM: Final = 0.5
WORDS_WORTH: Final = 0.9
# Who has some of the words stands behind who fits well, and is shown if it is a third: also one of two, where the
# other was never written here and counts for half more.
SOME_WORDS_WORTH: Final = 0.3
MEANING_WORTH: Final = 0.8
MEANING_POWER: Final = 0.5
# What lies beyond chance at all.
MEANING_LEAST: Final = 0.15
# What is shown, and what is a reason why it was found.
SCORE_MIN: Final = 0.1
_DEPTH_MIN: Final = 50


@dataclass(frozen=True, slots=True)
class Found:
    """Candidates by chunk id, and how like the question they are; what is not among the nearest is like by 0."""

    entries: dict[str, Candidate]
    likeness: dict[str, float]
    most: int


@dataclass(frozen=True, slots=True)
class Ranked:
    entry: Candidate
    score: float
    why: str
    likeness: float


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

    `pictures` is a model that places words among pictures; what it finds has no words to be judged by.
    """
    only = _checked(query, Filter(customer, modality, since, until, hidden, speaker, thread, where), limit)
    question = Question.read(query, sample := index.sample(embedder.card.fingerprint, hidden))
    depth = max(_DEPTH_MIN, 2 * limit)
    while True:
        question, found = _candidates(index, embedder, question, sample, depth, only)
        shown = _shown(index, pictures, query, depth, only)
        ranked = _few_per_object(_ranked(question, found, shown))[:limit]
        if len(ranked) == limit or max(found.most, len(shown)) < depth or depth >= LIMIT_MAX:
            break
        depth *= 4
    asked = frozenset(term for word in question.words for term in (word.text, *word.forms, *word.mistyped))
    return SearchAnswer(_hits(ranked, asked), max(0, embedded - index.position()))


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
    if not any(char.isalnum() for char in query):
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
    index: VectorIndex, embedder: Model, question: Question, sample: Sample, depth: int, only: Filter
) -> tuple[Question, Found]:
    """By meaning and by words, asked at once."""
    probe, is_trusted = _probe(embedder, question, sample)
    asked = ([] if probe is None else [probe], _worded(question))
    found = index.candidates(embedder.card.fingerprint, [*asked[0], *asked[1]], depth, only)
    near, worded = found[: len(asked[0])], [entry for entries in found[len(asked[0]) :] for entry in entries]
    question, more = _looked_up(index, embedder.card.fingerprint, question, worded, sample, depth, only)
    entries = {entry.chunk_id: entry for entries in (worded, more, *near) for entry in entries}
    likeness: dict[str, float] = {}
    if probe is not None and near[0]:
        like = likeness_of(embedder, probe, sample, is_trusted=is_trusted)
        likeness = {entry.chunk_id: like(entry.score) for entry in near[0]}
    return question, Found(entries, likeness, max(len(likeness), len(worded) + len(more)))


def _probe(embedder: Model, question: Question, sample: Sample) -> tuple[Vector | None, bool]:
    """What lies near to it, if it says anything to the embedder; and whether it has words that mean something here."""
    text, is_trusted = question.placed(getattr(embedder, "knows", None), sample)
    probe = ask_vector(embedder, text) if text else None
    return probe if probe is not None and probe.any() else None, is_trusted


def _worded(question: Question) -> list[Terms]:
    """Words of which the sample knows too little are looked up by themselves, too: nothing that is common shall stand
    before the one entry that has them."""
    rare = question.rare_terms
    return [terms for terms in (question.terms, rare if set(rare) < set(question.terms) else ()) if terms]


def _looked_up(
    index: VectorIndex,
    fingerprint: str,
    question: Question,
    found: Sequence[Candidate],
    sample: Sample,
    depth: int,
    only: Filter,
) -> tuple[Question, Sequence[Candidate]]:
    """The question as it is known from what was found, and what else that brings: of words that nobody wrote, what may
    have been meant is looked up."""

    def find(terms: Terms) -> Sequence[Candidate]:
        return index.candidates(fingerprint, [terms], depth, only)[0] if terms else ()

    if not sample.is_all:
        question = question.counted(found, lambda word: any(index.candidates(fingerprint, [word.terms], 1, only)))
    meant = {
        word.text: meant_by(word, sample) | _edits(find, word, sample)
        for word in question.unheard
        if may_be_mistyped(word)
    }
    if not any(meant.values()):
        return question, ()
    return question.corrected(meant), find(tuple(sorted(set().union(*meant.values()))))


def _edits(find: Callable[[Terms], Sequence[Candidate]], word: Word, sample: Sample) -> set[str]:
    """Terms one letter away from it that the sample did not draw."""
    if sample.is_all:
        return set()
    edits = set(edits_of(word.text, sample.letters))
    return {term for entry in find(tuple(sorted(edits))) for term in entry.terms.split() if term in edits}


def _shown(
    index: VectorIndex, pictures: Model | None, query: str, depth: int, only: Filter
) -> list[tuple[Candidate, float]]:
    """Pictures that look like the query."""
    if pictures is None or only.modality not in {None, *modalities_with(PICTURE_STEP)}:
        return []
    fingerprint, probe = pictures.card.fingerprint, ask_vector(pictures, query)
    if not probe.any():
        return []
    [found] = index.candidates(fingerprint, [probe], depth, only)
    if not found:
        return []
    like = likeness_of(pictures, probe, index.sample(fingerprint, only.hidden), is_trusted=False)
    return [(entry, like(entry.score)) for entry in found]


def _hits(ranked: Sequence[Ranked], asked: frozenset[str]) -> tuple[Hit, ...]:
    entries = ((one, one.entry.shown()) for one in ranked)
    return tuple(Hit(entry, one.score, one.why, *snippet_of(entry.text, asked)) for one, entry in entries)


def _ranked(question: Question, found: Found, shown: Iterable[tuple[Candidate, float]]) -> list[Ranked]:
    """Best first; equal scores by nearness, then the shorter text, then by id, so that an answer can be repeated."""
    ranked = [_judged(question, entry, found.likeness.get(name, 0.0)) for name, entry in found.entries.items()]
    ranked += [Ranked(entry, MEANING_WORTH * _beyond_chance(like), PICTURE, like) for entry, like in shown]
    fitting = [one for one in ranked if one.score >= SCORE_MIN]
    return sorted(fitting, key=lambda one: (-one.score, -one.likeness, len(one.entry.terms), one.entry.chunk_id))


def _judged(question: Question, entry: Candidate, likeness: float) -> Ranked:
    fit = question.fit(frozenset(entry.terms.split()))
    words = WORDS_WORTH * max(0.0, fit - WORDS_FROM) / (1 - WORDS_FROM)
    meaning = MEANING_WORTH * _beyond_chance(likeness)
    score = max(1 - (1 - words) * (1 - meaning), SOME_WORDS_WORTH * fit)
    why = WORDS if not meaning else BOTH if SOME_WORDS_WORTH * fit >= SCORE_MIN else MEANING
    return Ranked(entry, score, why, likeness)


def _beyond_chance(likeness: float) -> float:
    return MEANING_LEAST + (1 - MEANING_LEAST) * likeness**MEANING_POWER if likeness > 0 else 0.0


def _few_per_object(ranked: Iterable[Ranked]) -> list[Ranked]:
    seen: Counter[str] = Counter()
    kept = []
    for one in ranked:
        seen[one.entry.object_id] += 1
        if seen[one.entry.object_id] <= PER_OBJECT:
            kept.append(one)
    return kept
