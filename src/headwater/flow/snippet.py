"""Snippet: the stretch of a text that shows best what was asked for, and where it stands in it. Pure."""

from collections.abc import Collection, Iterator
from typing import Final

from headwater.domain.terms import Piece, pieces_of

SNIPPET_LETTERS: Final = 160

Marks = tuple[tuple[int, int], ...]


def snippet_of(text: str, asked: Collection[str]) -> tuple[str, Marks]:
    """The stretch with most of the asked terms, cut at blanks, and their places in it as (start, end)."""
    matches = [place for piece in pieces_of(text) for place in _places(piece, asked)]
    start = _best_start(text, matches)
    end = min(len(text), start + SNIPPET_LETTERS)
    if end < len(text) and (blank := text.rfind(" ", start, end)) > start:
        end = blank
    before, after = "…" if start > 0 else "", "…" if end < len(text) else ""
    shift = len(before) - start
    marks = tuple((low + shift, high + shift) for low, high in matches if low >= start and high <= end)
    return before + text[start:end] + after, marks


def _places(piece: Piece, asked: Collection[str]) -> Iterator[tuple[int, int]]:
    if piece.words:
        if any(term in asked for term in piece.terms()):
            yield piece.start, piece.end
        return
    letters = piece.whole
    wanted = [letters[at] in asked or letters[max(0, at - 1) : at + 1] in asked or letters[at : at + 2] in asked
              for at in range(len(letters))]  # fmt: skip
    if len(letters) != piece.end - piece.start:  # folding made two letters of one, so places in it are none in the text
        wanted = [any(wanted)] * (piece.end - piece.start)
    start = None
    for at, is_wanted in enumerate((*wanted, False)):
        if is_wanted and start is None:
            start = at
        elif not is_wanted and start is not None:
            yield piece.start + start, piece.start + at
            start = None


def _best_start(text: str, matches: list[tuple[int, int]]) -> int:
    if len(text) <= SNIPPET_LETTERS or not matches:
        return 0
    # Some words before the first match are worth as much as those after it.
    lead = SNIPPET_LETTERS // 4
    room = SNIPPET_LETTERS - lead
    best = max(matches, key=lambda match: (sum(match[0] <= low < match[0] + room for low, _ in matches), -match[0]))
    start = min(max(0, best[0] - lead), len(text) - SNIPPET_LETTERS)
    return text.find(" ", start, best[0]) + 1 or start
