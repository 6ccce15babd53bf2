"""What a sample of the index knows besides how often a term is there."""

import random

from headwater.domain.terms import STEM, one_edit_away
from headwater.flow.question import edits_of
from headwater.storage.index.sample import _NO_VECTORS as NO_VECTORS
from headwater.storage.index.sample import Sample


def sample_of(*terms: str) -> Sample:
    return Sample(1, 1, 1, dict.fromkeys(terms, 1), NO_VECTORS)


def test_whatever_is_one_letter_away_from_a_word_of_five_letters_ends_alike() -> None:
    draw = random.Random(3)
    for length in (5, 6, 9):
        word = "".join(draw.choices("abcde", k=length))
        others = set(edits_of(word, "abcdefz")) | {STEM + edit for edit in edits_of(word, "abc")}
        alike = sample_of(*others, "unrelated").ending_alike(word)
        assert {other for other in others if one_edit_away(word, other.removeprefix(STEM))} <= alike
        assert "unrelated" not in alike


def test_terms_that_end_alike_are_those_of_every_word_asked_for() -> None:
    assert sample_of("refund", "funding", "~fund", "laptop").ending_alike("fundus", "repeat") == {
        "funding", "~fund", "refund",
    }  # fmt: skip
    assert sample_of().ending_alike("refund") == set()
