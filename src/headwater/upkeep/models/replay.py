"""A replay as it is ordered: quoted, bounded by a budget, under its lease, told with what it came to.

The derivation itself is `flow.drive.replay`.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.domain.model_book import KnownModel
from headwater.errors import DataFault
from headwater.storage.ledger.model_book import change_book
from headwater.storage.memo.memo import open_memo
from headwater.upkeep import work
from headwater.upkeep.models.budget import Budget, allow_within
from headwater.upkeep.models.named import card_of_known, find_candidate, settled_book
from headwater.upkeep.models.quote import Quote, Quoting
from headwater.upkeep.parts import Parts


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was quoted, what it came to, and whether the model is complete now."""

    quote: Quote
    finished: bool
    done: int
    spent: dict[str, float]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        actual = {"objects": self.done, "seconds": round(self.seconds, 1), **self.spent}
        return {"quote": self.quote.to_dict(), "actual": actual, "finished": self.finished}


def quote_replay(parts: Parts, step: str, model: str) -> Quote:
    """Pure: what a replay would read, call and cost; starts no JVM."""
    known, book = find_candidate(parts, step, model), settled_book(parts)
    quoting = Quoting(parts.reader, parts.settings, book, open_memo(parts.settings), os.cpu_count() or 1)
    return quoting.quote(book.get(step, known.fingerprint) or known, card_of_known(parts, known))


def replay_model(
    parts: Parts,
    step: str,
    model: str,
    budget: Budget,
    report: Callable[[str, int], None] | None = None,
    stop: threading.Event | None = None,
) -> Replayed:
    """Begun, or gone on with where it was left. Of a model that is kept, and has nothing to do, no Spark is started.

    DataFault where it came to the end and failed on every object that it was given.
    """
    quote, begun = quote_replay(parts, step, model), time.monotonic()
    known = find_candidate(parts, step, model)
    before = parts.book().get(step, known.fingerprint)
    if before is not None and before.kept and not quote.objects:
        return Replayed(quote, True, 0, {}, time.monotonic() - begun)
    stop = stop or threading.Event()
    with work.alone(parts, "replay", stop) as held, work.recorded(parts, "replay") as entry:
        from headwater.flow.drive.register_models import settle_models
        from headwater.flow.drive.replay import replay

        run = work.new_run(parts, held, entry, report, stop)
        settle_models(run.settings, run.ledger, run.clock)
        book = change_book(run.ledger, lambda book: book.with_building(known))
        known = book.find(step, known.fingerprint)
        allow = allow_within(budget, quote, paid=card_of_known(parts, known).price > 0)
        finished = replay(run, known, allow)
        effort = entry.models.get(f"{step}/{known.fingerprint}", {})
        if finished:
            _require_some_answer(known, effort)
    spent = {name: value for name, value in effort.items() if name != "model"}
    return Replayed(quote, finished, entry.done.get("replay", 0), spent, time.monotonic() - begun)


def _require_some_answer(known: KnownModel, effort: Mapping[str, Any]) -> None:
    failed = int(effort.get("faults", 0))
    if failed and not effort.get("calls") and not effort.get("remembered"):
        raise DataFault(
            "BAD_OUTPUT",
            f"{known.label} failed on all {failed:,} that it was given, and readers see nothing of it. Why: headwater "
            f"quarantine; when it is mended: headwater retry; without it: headwater retire {known.step} {known.name}",
        )
