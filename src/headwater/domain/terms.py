"""Terms: a text cut into what can be looked up, by the index when it takes a text in and by search when it is asked.

A word gives itself and, where an ending can be taken off, its stem behind `STEM`: `crashing` gives `crashing` and
`~crash`. What is written in one piece with signs inside, such as a code, an address or a file's name, gives its words
and the whole without its signs. Scripts without blanks give each character and each pair of neighbours. Pure.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

STEM: Final = "~"
TERM_LETTERS_MAX: Final = 80
# Accents go; the marks by which other scripts write their vowels stay.
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
_MARKS: Final = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0dff"
# Thai to Burmese, Khmer, Chinese and Japanese; and Korean, whose particles cling to the word.
_UNBROKEN: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WORD: Final = f"(?:(?![{_UNBROKEN}])[^\\W_][{_MARKS}]*)+"
_PIECE: Final = re.compile(f"[{_UNBROKEN}]+|{_WORD}(?:[-_.,:/\\\\@+&'’]{_WORD})*")
_PART: Final = re.compile(_WORD)
_BEGINS_UNBROKEN: Final = re.compile(f"[{_UNBROKEN}]")
# What an apostrophe cuts off is no word: neighbour's, don't.
_CUT_OFF_LETTERS: Final = 2
_APOSTROPHES: Final = ("'", "’")
_STEM_LETTERS_MIN: Final = 3
_ENDING: Final = re.compile(r"(?:ings?|ed|es|(?<!s)s|e|(?<=\w{6})en)$")
_DOUBLED: Final = re.compile(r"([^aeiou\d])\1$")
_VOWEL: Final = re.compile("[aeiouy]")
_DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Piece:
    """Something written without a blank inside, and where it stands: `text[start:end]`.

    `words` are its parts, folded, and `whole` what they make together. In a script without blanks it has no words.
    """

    start: int
    end: int
    words: tuple[str, ...]
    whole: str

    def terms(self) -> Iterator[str]:
        if not self.words:
            yield from self.whole
            yield from pairs_of(self.whole)
            return
        for word in dict.fromkeys((*self.words, self.whole)):
            yield word
            if (stem := stem_of(word)) != word:
                yield STEM + stem


def pieces_of(text: str) -> Iterator[Piece]:
    for found in _PIECE.finditer(text):
        plain = folded(found[0])
        words = () if _BEGINS_UNBROKEN.match(plain) else tuple(_words(plain))
        yield Piece(found.start(), found.end(), words, "".join(words)[:TERM_LETTERS_MAX] if words else plain)


def terms_of(text: str) -> Iterator[str]:
    """As often as they occur."""
    for piece in pieces_of(text):
        yield from piece.terms()


def asked_terms(text: str) -> tuple[str, ...]:
    """What texts may hold of this one: its words, their stems, and other forms of them."""
    return tuple(dict.fromkeys(term for piece in pieces_of(text) for term in _asked(piece)))


def _asked(piece: Piece) -> Iterator[str]:
    if not piece.words:
        yield from pairs_of(piece.whole) if len(piece.whole) > 1 else piece.whole
    for word in (*piece.words, *((piece.whole,) if piece.words else ())):
        yield from forms_of(word)


def forms_of(word: str) -> tuple[str, str, str]:
    """The word itself first; then what other forms of it are found by."""
    stem = stem_of(word)
    return word, stem, STEM + stem


def pairs_of(unbroken: str) -> Iterator[str]:
    return (unbroken[at : at + 2] for at in range(len(unbroken) - 1))


@lru_cache(maxsize=50_000)
def stem_of(word: str) -> str:
    """Without the endings by which English bends a word, and by which its neighbours make a plural."""
    if len(word) <= _STEM_LETTERS_MIN or _DIGIT.search(word):
        return word
    bare = _ENDING.sub("", word)
    if len(bare) < _STEM_LETTERS_MIN or not _VOWEL.search(bare):
        bare = word
    if len(bare) > _STEM_LETTERS_MIN and _DOUBLED.search(bare):
        bare = bare[:-1]
    return bare[:-1] + "i" if len(bare) > _STEM_LETTERS_MIN and bare.endswith("y") else bare


def folded(text: str) -> str:
    """Without capitals, accents and other shapes of the same letter."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold())))


def one_edit_away(word: str, other: str) -> bool:
    """A letter more, less or other, or two neighbours swapped."""
    if abs(len(word) - len(other)) > 1 or word == other:
        return False
    start = next((at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    one, two = word[start:], other[start:]
    return one[1:] == two[1:] or one[1:] == two or one == two[1:] or (one[:2] == two[1::-1] and one[2:] == two[2:])


def _words(plain: str) -> Iterator[str]:
    for found in _PART.finditer(plain):
        cut_off = plain[found.start() - 1 : found.start()] in _APOSTROPHES
        if not (cut_off and len(found[0]) <= _CUT_OFF_LETTERS):
            yield found[0][:TERM_LETTERS_MAX]
