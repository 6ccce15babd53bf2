"""How far what a model heard or read is from what was said or written."""

from collections.abc import Sequence


def word_error_rate(truth: str, heard: str) -> float:
    """Words to change, add or leave out, for each true word. 0 is perfect; it can exceed 1."""
    words = truth.lower().split()
    return edits(words, heard.lower().split()) / max(1, len(words))


def character_accuracy(truth: str, read: str) -> float:
    """The share of true characters that were read, blanks included, runs of white space counted once."""
    true, found = " ".join(truth.split()), " ".join(read.split())
    return 1 - edits(true, found) / max(1, len(true))


def edits(truth: Sequence[str], found: Sequence[str]) -> int:
    """The Levenshtein distance."""
    row = list(range(len(found) + 1))
    for done, wanted in enumerate(truth, 1):
        corner, row[0] = row[0], done
        for at, item in enumerate(found, 1):
            corner, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, corner + (wanted != item))
    return row[-1]
