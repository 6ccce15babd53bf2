"""Question: what is asked for, word by word, each weighed by how rare it is; and how well a text's terms fit it. Pure.

A word fits literally, in another form, or with one letter wrong, in this order. What is rare counts for most: of
`order 10042`, the number is nearly all, where many lines say order.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

from headwater.domain.terms import STEM, Piece, forms_of, one_edit_away, pairs_of, pieces_of, stem_of
from headwater.storage.index.sample import Sample
from headwater.storage.index.vector_index import Candidate

Knows = Callable[[str], float]

OTHER_FORM: Final = 0.9
MISTYPED: Final = 0.75
MISTYPED_LETTERS_MIN: Final = 5
# Of a code whose parts are all there, but not together; and of one of which only some are.
APART: Final = 0.8
IN_PART: Final = 0.4
# A word that so many of all entries have tells nothing beside one that fewer have.
COMMON_SHARE: Final = 0.15
RARE_DRAWN: Final = 2
# A word that nobody ever wrote here says as much as the rarest beside it, and half more; a number says it all.
UNHEARD: Final = 1.5
UNHEARD_MIN: Final = 0.5
TRUSTED_SHARE: Final = 0.25
# A word that an embedder is less sure of is taken for a misspelt one, if there is another that may be meant.
LIKELY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Word:
    """`held` is in how many entries some form of it is, as far as is known."""

    text: str
    forms: tuple[str, ...]
    held: float
    is_certain: bool
    mistyped: frozenset[str] = frozenset()

    @property
    def terms(self) -> tuple[str, ...]:
        return self.text, *self.forms

    def fit(self, terms: Collection[str]) -> float:
        if self.text in terms:
            return 1.0
        if any(form in terms for form in self.forms):
            return OTHER_FORM
        return MISTYPED if self.mistyped and not self.mistyped.isdisjoint(terms) else 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """A word, or a code of several words, which stands for more than they do."""

    words: tuple[Word, ...]
    whole: Word

    def fit(self, terms: Collection[str], weights: Mapping[str, float]) -> float:
        if len(self.words) == 1 or (whole := self.whole.fit(terms)) < OTHER_FORM:
            fits = [(word.fit(terms), weights[word.text]) for word in self.words]
            share = sum(fit * weight for fit, weight in fits) / sum(weight for _, weight in fits)
            if len(fits) == 1:
                return share
            return share * (APART if all(fit for fit, _ in fits) else IN_PART)
        return whole


@dataclass(frozen=True)
class Question:
    text: str
    parts: tuple[Part, ...]
    entries: int
    weights: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str, sample: Sample) -> Self:
        parts = []
        seen: set[str] = set()
        for words, whole in _asked(text):
            if whole not in seen:
                seen.add(whole)
                known = tuple(_word(word, sample) for word in words)
                parts.append(Part(known, _word(whole, sample)))
        return cls(text, tuple(parts), sample.entries)._weighed()

    @property
    def words(self) -> Iterator[Word]:
        """Each once; a code's whole is one of them."""
        found = {word.text: word for part in self.parts for word in (*part.words, part.whole)}
        return iter(found.values())

    @property
    def terms(self) -> tuple[str, ...]:
        """What to look up: without what half the index has, if there is anything else."""
        telling = [word for word in self.words if word.held <= COMMON_SHARE * self.entries]
        return _terms(telling or list(self.words))

    @property
    def rare_terms(self) -> tuple[str, ...]:
        return _terms(word for word in self.words if not word.is_certain)

    @property
    def unheard(self) -> tuple[Word, ...]:
        return tuple(word for word in self.words if word.is_certain and not word.held)

    def counted(self, found: Iterable[Candidate], is_there: Callable[[Word], bool]) -> Self:
        """With how many entries have each of the words that were too rare to be drawn, of those that were found."""
        held = Counter(term for entry in found for term in set(entry.terms.split()))

        def count(word: Word) -> Word:
            if word.is_certain:
                return word
            least = max(held[term] for term in word.terms)
            # One of several rare words may have been crowded out.
            return replace(word, held=float(least or is_there(word)), is_certain=True)

        return self._with(count)

    def corrected(self, mistyped: Mapping[str, Collection[str]]) -> Self:
        """With what may have been meant by words that nobody ever wrote."""
        return self._with(
            lambda word: replace(word, mistyped=frozenset(mistyped[word.text])) if word.text in mistyped else word
        )

    def fit(self, terms: Collection[str]) -> float:
        """How much of what was asked for is there: 1 is all of it, word for word."""
        weights = self._weights_of_parts
        fits = (part.fit(terms, self.weights) for part in self.parts)
        return sum(fit * weight for fit, weight in zip(fits, weights, strict=True)) / (sum(weights) or 1.0)

    @cached_property
    def _weights_of_parts(self) -> list[float]:
        return [max(self.weights[word.text] for word in (*part.words, part.whole)) for part in self.parts]

    def placed(self, knows: Knows | None, sample: Sample) -> tuple[str, bool]:
        """What an embedder is to place of it, and whether most of that means something to the lake or to the embedder.

        Of one that tells how well it `knows` words, those that say nothing to it are kept away: it would place them by
        their letters. Those that are mistyped are put right.
        """
        sure = {word.text for word in self.words if word.held or (knows is not None and knows(word.text) >= 1)}
        trusted = sum(self.weights[name] for name in sure) >= TRUSTED_SHARE * sum(self.weights.values())
        pieces = [self._meant(piece, sure, knows, sample) for piece in pieces_of(self.text)]
        return " ".join(filter(None, pieces)), trusted

    def _meant(self, piece: Piece, sure: set[str], knows: Knows | None, sample: Sample) -> str | None:
        as_asked = self.text[piece.start : piece.end]
        words = piece.words or tuple(pairs_of(piece.whole)) or (piece.whole,)
        if knows is None:  # but of a number that is nowhere it can know the spelling only
            is_nowhere = any(map(str.isdigit, piece.whole)) and sure.isdisjoint((*words, piece.whole))
            return None if is_nowhere else as_asked
        sense = [_sense(word, sure, knows) for word in words]
        most = min(sense) if piece.words else max(sense)
        if most >= LIKELY:
            return as_asked
        meant = _most_held(_word(words[0], sample), sample) if len(words) == 1 else None
        # Shreds alone would be placed by their letters.
        return meant or (as_asked if most and sure else None)

    def _with(self, change: Callable[[Word], Word]) -> Self:
        parts = tuple(Part(tuple(map(change, part.words)), change(part.whole)) for part in self.parts)
        return replace(self, parts=parts)._weighed()

    def _weighed(self) -> Self:
        known = {word.text: _rarity(word.held, self.entries) ** 2 for word in self.words if word.held}
        most = max(UNHEARD_MIN, min(1.0, UNHEARD * max(known.values(), default=1.0)))
        unheard = {word.text: 1.0 if any(map(str.isdigit, word.text)) else most for word in self.words if not word.held}
        return replace(self, weights={**unheard, **known})


def _sense(word: str, sure: set[str], knows: Knows) -> float:
    """What an embedder makes of a word: of a number it knows the spelling only."""
    if any(map(str.isdigit, word)):
        return 0.0
    return 1.0 if word in sure else knows(word)


def _rarity(held: float, entries: int) -> float:
    """1 for what one entry has, near 0 for what all have."""
    return max(0.05, math.log((entries + 1) / (held + 0.5)) / math.log((entries + 1) / 1.5)) if entries > 1 else 1.0


def _asked(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Words of each piece, and what they make together; of a script without blanks each pair is a word."""
    for piece in pieces_of(text):
        if piece.words:
            yield piece.words, piece.whole
        else:
            for pair in pairs_of(piece.whole) if len(piece.whole) > 1 else piece.whole:
                yield (pair,), pair


def _word(text: str, sample: Sample) -> Word:
    _, *forms = dict.fromkeys(forms_of(text))
    drawn = min(sample.drawn, sum(sample.holding.get(form, 0) for form in (text, *forms)))
    held = drawn * sample.entries / max(1, sample.drawn)
    return Word(text, tuple(forms), held, sample.is_all or drawn > RARE_DRAWN)


def _terms(words: "Collection[Word] | Iterator[Word]") -> tuple[str, ...]:
    return tuple(dict.fromkeys(term for word in words for term in (word.text, *word.forms, *sorted(word.mistyped))))


def meant_by(word: Word, sample: Sample) -> set[str]:
    """Terms of the sample that are one letter away from the word, or from its stem."""
    if not may_be_mistyped(word):
        return set()
    stem = stem_of(word.text)
    return {
        term
        for term in sample.ending_alike(word.text, stem)
        if abs(len(bare := term.removeprefix(STEM)) - len(stem)) <= 3
        and (one_edit_away(word.text, bare) or (len(stem) >= MISTYPED_LETTERS_MIN and one_edit_away(stem, bare)))
    }


def _most_held(word: Word, sample: Sample) -> str | None:
    meant = [term for term in meant_by(word, sample) if not term.startswith(STEM)]
    return max(meant, key=lambda term: (sample.holding[term], term), default=None)


def may_be_mistyped(word: Word) -> bool:
    return len(word.text) >= MISTYPED_LETTERS_MIN and word.text.isalpha()


def edits_of(text: str, letters: str) -> Iterator[str]:
    """Everything that is one letter away from it."""
    for at in range(len(text) + 1):
        head, tail = text[:at], text[at:]
        if tail:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in letters)
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        yield from (head + letter + tail for letter in letters)
