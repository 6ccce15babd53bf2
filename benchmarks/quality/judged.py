"""The texts, the questions with their judged answers, and how well a list of answers does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

AT: Final = 10
HERE: Final = Path(__file__).parent
# Words that are in none of the texts, nor near any that is.
NONSENSE: Final = (
    "qwertzuiop", "zyxwvut", "blorptang", "xylqueff", "vrindlemok", "ghastrilopy", "jumfrackle", "skwozzit",
    "plimverdash", "trogglenix", "wubbafrant", "kreltomic", "mnopqrst", "fyzzgrab", "dwinkleparsh", "oxtrivance",
    "hublingore", "yaktrellon", "cvbnmasdf", "zoopferlick",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    kind: str
    text: str
    answers: frozenset[str]


def read_texts() -> dict[str, str]:
    return dict(_lines("support.txt"))


def read_questions() -> list[Question]:
    return [Question(kind, text, frozenset(names.split())) for kind, text, names in _lines("questions.txt")]


def _lines(name: str) -> list[list[str]]:
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def ndcg(found: Sequence[str], answers: frozenset[str]) -> float:
    """1 where all answers stand first; an answer further down counts less."""
    gained = sum(1 / math.log2(rank + 2) for rank, name in enumerate(found[:AT]) if name in answers)
    return gained / sum(1 / math.log2(rank + 2) for rank in range(min(AT, len(answers))))


def recall(found: Sequence[str], answers: frozenset[str]) -> float:
    return len(answers & set(found[:AT])) / min(AT, len(answers))
