"""Activate: the flip. One value of the ledger changes, and tables and search turn together from the next question on.

Reads   the model book, quarantine, how far the index has come
Writes  the model book
Invariant: readers miss nothing by it. The model is complete (`ModelBook.activated`), the index has all its vectors or a
run is bringing them, no object waits for an answer that it did not give, and what it failed on has no row that readers
see now, unless somebody let it go.
"""

from typing import Any

from headwater.domain.model_book import KnownModel
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import Conflict
from headwater.storage.ledger.model_book import change_book
from headwater.storage.tables.read_progress import read_progress
from headwater.upkeep import work
from headwater.upkeep.exclusion import RUN_LEASE
from headwater.upkeep.parts import Parts
from headwater.upkeep.quarantine import count_missed, count_waiting_for


def activate(parts: Parts, step: str, model: str, *, force: bool = False) -> dict[str, Any]:
    """Conflict where readers would miss something; with `force`, not for objects that wait for it or failed by it."""
    book = parts.book()
    known, before = book.find(step, model), book.active(step)
    _require_followed(parts, known)
    if not force:
        _require_answered(parts, known)
        _require_nothing_missed(parts, known, before)
    with work.alone(parts, "activate") as held:
        change_book(held.ledger, lambda book: book.activated(book.find(step, known.fingerprint)))
    return {
        "step": step,
        "active": known.label,
        "fingerprint": known.fingerprint,
        "before": before.label if before else None,
        "before_fingerprint": before.fingerprint if before else None,
    }


def _require_followed(parts: Parts, known: KnownModel) -> None:
    """A flip of what search shows needs an index that has it all, or a run that is bringing it up."""
    ledger = parts.ledger
    behind = read_progress(parts.settings, EMBEDDINGS).next_seq - parts.index.position()
    if behind > 0 and ledger.holder(RUN_LEASE, ledger.clock(parts.clock)()) is None:
        raise Conflict(f"The index is {behind:,} vectors behind {known.label}. First: headwater run --once")


def _require_answered(parts: Parts, known: KnownModel) -> None:
    """An endpoint that was down has objects waiting for it: readers would miss them.

    Those whose bytes nobody can have are missed with any model.
    """
    if waiting := count_waiting_for(parts.reader, parts.ledger, known.fingerprint):
        raise Conflict(
            f"{waiting:,} of the objects still wait for {known.label}, which did not answer. "
            "First: headwater retry, or headwater run; all the same: --force"
        )


def _require_nothing_missed(parts: Parts, known: KnownModel, before: KnownModel | None) -> None:
    """What failed by either model is missed with any; what readers see now would be gone."""
    if before is None or before == known:
        return
    if missed := count_missed(parts.reader, parts.ledger, known, before):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in missed.items())
        raise Conflict(
            f"Readers would miss {sum(missed.values()):,} of the objects that they see by {before.label}: "
            f"{known.label} failed on them ({reasons}). Why: headwater quarantine; once more: headwater retry; "
            "without them: headwater quarantine dismiss, or --force"
        )
