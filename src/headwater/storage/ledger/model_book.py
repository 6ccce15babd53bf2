"""The model book, kept as one fact of the ledger: a flip is one change of one value.

Beside it, as another fact, what the code of models of one's own was whose fingerprints do not tell it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from headwater.domain.model_book import ModelBook
from headwater.storage.ledger.ledger import Ledger

_FACT: Final = "models"
_CODES: Final = "model_codes"


def read_book(ledger: Ledger) -> ModelBook:
    return ModelBook.from_text(ledger.fact(_FACT), _codes(ledger))


def change_book(ledger: Ledger, change: Callable[[ModelBook], ModelBook]) -> ModelBook:
    """Read, change and write in one transaction, so that two changes never undo each other."""
    codes = _codes(ledger)
    text = ledger.change_fact(_FACT, lambda before: change(ModelBook.from_text(before, codes)).to_text())
    return ModelBook.from_text(text, codes)


def note_codes(ledger: Ledger, seen: Mapping[str, str]) -> None:
    """What the code was when it was first seen, by fingerprint; the first word stands."""
    if seen:
        ledger.change_fact(_CODES, lambda before: json.dumps({**seen, **json.loads(before or "{}")}))


def _codes(ledger: Ledger) -> dict[str, str]:
    return dict(json.loads(ledger.fact(_CODES) or "{}"))
