"""The model book, kept as one fact of the ledger: a flip is one change of one value."""

from collections.abc import Callable
from typing import Final

from headwater.domain.model_book import ModelBook
from headwater.storage.ledger.ledger import Ledger

_FACT: Final = "models"


def read_book(ledger: Ledger) -> ModelBook:
    return ModelBook.from_text(ledger.fact(_FACT))


def change_book(ledger: Ledger, change: Callable[[ModelBook], ModelBook]) -> ModelBook:
    """Read, change and write in one transaction, so that two changes never undo each other."""
    text = ledger.change_fact(_FACT, lambda before: change(ModelBook.from_text(before)).to_text())
    return ModelBook.from_text(text)
