"""How far what a model heard or read is from what was said or written."""

import re
from collections.abc import Sequence

import numpy as np


def word_error_rate(truth: str, heard: str) -> float:
    """Words to change, add or leave out, for each true word. 0 is perfect; it can exceed 1."""
    words = truth.lower().split()
    return edits(words, heard.lower().split()) / max(1, len(words))


def plain_words(text: str) -> str:
    """Without capitals and signs, which some models write and others do not."""
    return " ".join(re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text.lower()))


def character_accuracy(truth: str, read: str) -> float:
    """The share of true characters that were read, blanks included, runs of white space counted once."""
    true, found = " ".join(truth.split()), " ".join(read.split())
    return 1 - edits(true, found) / max(1, len(true))


def edits(truth: Sequence[str], found: Sequence[str]) -> int:
    """The Levenshtein distance, a row at a time: two calls of an hour take a second or two."""
    codes = {item: code for code, item in enumerate(dict.fromkeys((*truth, *found)))}
    given = np.array([codes[item] for item in found], dtype=np.int64)
    places = np.arange(len(given) + 1)
    row = places.copy()
    for done, wanted in enumerate(truth, 1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (given != codes[wanted]))
        # What is left is to leave words out, from the left: a running minimum of the distance to the diagonal.
        row = np.minimum.accumulate(np.concatenate(([done], changed)) - places) + places
    return int(row[-1])
