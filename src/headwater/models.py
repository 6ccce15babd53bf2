"""A lake's models, as Python sees them: `lake.models.replay("transcribe", "faster-whisper")`.

Each method mirrors a command. What a flip needs and how far a budget reaches is decided here; the rest is called.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.components import Components
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.upkeep import work

if TYPE_CHECKING:
    from headwater.flow.drive.replay import Allow
    from headwater.flow.models.port import Model
    from headwater.flow.spent import Spent
    from headwater.upkeep.models.quote import Quote
    from headwater.upkeep.models.retire import RetirePlan


@dataclass(frozen=True, slots=True)
class Budget:
    """What a replay may take: money, in the currency of the prices, or time. None is no bound."""

    money: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was quoted, what it came to, and whether the model is complete now."""

    quote: "Quote"
    finished: bool
    done: int
    spent: dict[str, float]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        actual = {"objects": self.done, "seconds": round(self.seconds, 1), **self.spent}
        return {"quote": self.quote.to_dict(), "actual": actual, "finished": self.finished}


class Models:
    def __init__(self, components: Components) -> None:
        self._parts = components

    def list(self) -> list[dict[str, Any]]:
        """Every model that the lake knows, with what it has made; starts no JVM."""
        from headwater.upkeep.models.list import list_models

        return list_models(self._parts.reader, self._parts.settings, self.book())

    def book(self) -> ModelBook:
        """What is known; before the first run, what the settings will begin with."""
        from headwater.flow.models.choice import settled
        from headwater.flow.models.loaded import models_of

        return settled(self._parts.book(), models_of(self._parts.settings), (), self._parts.clock())

    def quote(self, step: str, model: str) -> "Quote":
        """What a replay would read, call and cost; starts no JVM."""
        from headwater.storage.memo.memo import open_memo
        from headwater.upkeep.models.quote import Quoting

        settings = self._parts.settings
        known, book = self._candidate(step, model), self.book()
        workers = os.cpu_count() or 1
        quoting = Quoting(self._parts.reader, settings, book, open_memo(settings), workers)
        return quoting.quote(book.get(step, known.fingerprint) or known, self._card(known))

    def replay(
        self,
        step: str,
        model: str,
        *,
        budget: Budget = Budget(),  # noqa: B008  a value
        report: Callable[[str, int], None] | None = None,
        stop: threading.Event | None = None,
    ) -> Replayed:
        """Bring a model in beside the active one, or go on where it was left; with nothing to do, no Spark."""
        from headwater.storage.ledger.model_book import change_book

        quote, begun = self.quote(step, model), time.monotonic()
        known = self._candidate(step, model)
        before = self._parts.book().get(step, known.fingerprint)
        if before is not None and before.kept and not quote.objects:
            return Replayed(quote, True, 0, {}, time.monotonic() - begun)
        stop = stop or threading.Event()
        with work.alone(self._parts, "replay", stop) as held, work.recorded(self._parts, "replay") as entry:
            from headwater.flow.drive.register_models import settle_models
            from headwater.flow.drive.replay import replay

            run = work.new_run(self._parts, held, entry, report, stop)
            settle_models(run.settings, run.ledger, run.clock)
            book = change_book(run.ledger, lambda book: book.with_building(known))
            known = book.find(step, known.fingerprint)
            finished = replay(run, known, _allow(quote, budget, paid=self._card(known).price > 0))
            spent = entry.models.get(f"{step}/{known.fingerprint}", {})
        told = {name: value for name, value in spent.items() if name != "model"}
        return Replayed(quote, finished, entry.done.get("replay", 0), told, time.monotonic() - begun)

    def compare(self, step: str, one: str, other: str) -> dict[str, Any]:
        """Two models' rows side by side; starts no JVM."""
        from headwater.upkeep.models.compare import Comparing

        book = self.book()
        comparing = Comparing(self._parts.reader, self._parts.index, self._loaded)
        return comparing.compare(book.find(step, one), book.find(step, other))

    def activate(self, step: str, model: str, *, force: bool = False) -> dict[str, Any]:
        """Let readers see this one's rows from now on; starts no JVM. With `force`, though objects wait for it."""
        from headwater.storage.ledger.model_book import change_book

        book = self._parts.book()
        known, before = book.find(step, model), book.active(step)
        self._require_followed(known)
        if not force:
            self._require_answered(known)
        with work.alone(self._parts, "activate") as held:
            change_book(held.ledger, lambda book: book.activated(book.find(step, known.fingerprint)))
        return {
            "step": step,
            "active": known.label,
            "fingerprint": known.fingerprint,
            "before": before.label if before else None,
            "before_fingerprint": before.fingerprint if before else None,
        }

    def plan_retire(self, step: str, model: str) -> "RetirePlan":
        """What `retire` would take away; starts no JVM."""
        from headwater.errors import NotFound
        from headwater.upkeep.models.retire import find_cut_short, plan_retire

        try:
            return plan_retire(self._parts.reader, self.book().find(step, model))
        except NotFound:
            if left := find_cut_short(self._parts.ledger, step, model):
                return left
            raise

    def retire(
        self,
        step: str,
        model: str,
        report: Callable[[str], None] | None = None,
        *,
        plan: "RetirePlan | None" = None,
    ) -> "RetirePlan":
        """Take a model out. Conflict, and nothing changed, where it is active or no longer what `plan` has."""
        from headwater.upkeep.models.retire import Retire
        from headwater.upkeep.task import apply

        plan = plan or self.plan_retire(step, model)
        apply(
            Retire(self._parts, plan), self._parts, plan, stepped=lambda step, _: report(step.about) if report else None
        )
        return plan

    def _candidate(self, step: str, model: str) -> KnownModel:
        """A model by name, as the settings make it now; or one of the book, by its fingerprint."""
        from headwater.errors import HeadwaterError
        from headwater.flow.models.choice import known_model
        from headwater.flow.models.loaded import models_of

        models, now = models_of(self._parts.settings), self._parts.clock()
        try:
            return known_model(models, step, model, State.BUILDING, now, replayed=True)
        except HeadwaterError:
            for known in self._parts.book().of(step):
                if model in {known.label, known.fingerprint}:
                    return known
            raise

    def _card(self, known: KnownModel) -> Any:
        from headwater.flow.models.choice import card_of
        from headwater.flow.models.loaded import models_of

        return card_of(models_of(self._parts.settings), known.step, known.name)

    def _loaded(self, known: KnownModel) -> "Model":
        from headwater.flow.models.choice import require_same
        from headwater.flow.models.registry import load_model

        model = load_model(known.name, self._parts.settings.models)
        require_same(known, model.card)
        model.load()
        return model

    def _require_followed(self, known: KnownModel) -> None:
        """A flip of what search shows needs an index that has it all, or a run that is bringing it up."""
        from headwater.domain.tables import EMBEDDINGS
        from headwater.errors import Conflict
        from headwater.storage.tables.read_progress import read_progress

        ledger = self._parts.ledger
        behind = read_progress(self._parts.settings, EMBEDDINGS).next_seq - self._parts.index.position()
        if behind > 0 and ledger.holder("run", ledger.clock(self._parts.clock)()) is None:
            raise Conflict(f"The index is {behind:,} vectors behind {known.label}. First: headwater run --once")

    def _require_answered(self, known: KnownModel) -> None:
        """An endpoint that was down has objects waiting for it: readers would miss them.

        Those whose bytes nobody can have are missed with any model.
        """
        from headwater.errors import Conflict
        from headwater.upkeep.quarantine import count_waiting_for

        if waiting := count_waiting_for(self._parts.reader, self._parts.ledger, known.fingerprint):
            raise Conflict(
                f"{waiting:,} of the objects still wait for {known.label}, which did not answer. "
                "First: headwater retry, or headwater run; all the same: --force"
            )


def _allow(quote: "Quote", budget: Budget, *, paid: bool) -> "Allow":
    from headwater.flow.drive.replay import Allowance

    begun = time.monotonic()

    def allow(spent: "Spent", position: int) -> Allowance | None:
        if budget.seconds is not None and time.monotonic() - begun >= budget.seconds:
            return None
        if budget.money is None or not paid:
            return Allowance(until=1 << 62)
        left = budget.money - spent.cost
        if left <= 0:
            return None
        # No batch is begun that the quote says it cannot pay; what the quote cannot tell, the calls themselves do.
        until = quote.affordable(position, left)
        return Allowance(until, left) if until is not None else None

    return allow
