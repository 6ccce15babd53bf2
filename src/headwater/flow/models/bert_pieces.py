"""BERT's pieces of words, which two embedders read by: a text's numbers, and whether a word means something to them."""

from pathlib import Path
from typing import Final

from headwater.flow.models.word_pieces import sureness

UNKNOWN: Final = "[UNK]"


class BertPieces:
    """`most` pieces of a text are looked at; what comes later is not."""

    def __init__(self, file: Path, most: int) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(most)

    def numbers(self, text: str) -> list[int]:
        # One by one: beside longer texts, a text would be padded, and the tokenizer starts a thread on every core.
        found: list[int] = self._tokenizer.encode(text).ids
        return found

    def knows(self, word: str) -> float:
        """How sure it is that a word means something: 1, ½, ¼ for one that it has in shreds, or 0."""
        found = self._tokenizer.encode(valid(word), add_special_tokens=False).tokens
        return 0.0 if UNKNOWN in found else sureness(word, len(found))


def valid(text: str) -> str:
    """Half a surrogate pair would stop the tokenizer."""
    return text.encode(errors="replace").decode().strip()
