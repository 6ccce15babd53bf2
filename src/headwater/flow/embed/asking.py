"""Asking an embedder: whose fault it is when it does not answer, what is left of its answers when they are judged, and
what each call cost.

An embedder that is down and a text that it cannot bear look alike: no vector. So a plain word is asked for: where that
is answered, the embedder is up, and each of the texts is asked for alone; those that fail even so are set aside, and
the others go on. Where it is not, everybody waits, and the word is asked for first until somebody is there again.
Of a batch that was answered in part, what is good is kept, and only the rest is asked for again, text by text. What a
call cost is noted with the texts that it was made for, whether or not its answer could be used.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from headwater.domain.groups import grouped
from headwater.domain.quarantine import FINAL, SLOW, TRANSIENT, known_fault
from headwater.errors import DataFault, Unavailable, sound_text
from headwater.flow.embed.model_process import Lost, ModelProcess
from headwater.flow.models.answers import checked_amount, checked_embedded, list_answers, model_faults
from headwater.flow.models.port import Embedded, Model, ModelCard
from headwater.flow.models.spending import OVER_BUDGET, Purse, billed, require_money

WORD: Final = "hello"
PATIENCE_SECONDS: Final = 60.0  # for an endpoint that says when it may be asked again
DETAIL_MAX: Final = 500
_NOT_ITS_WORDS: Final = (*FINAL, *TRANSIENT, SLOW)

Answer = dict[str, Any]  # vector and effort, or {"reason", "detail", "cost"}
Remember = Callable[[Mapping[str, Answer]], None]
Outcome = Embedded | DataFault


class Embedder:
    """A loaded model, and whether it was down when it was last asked."""

    def __init__(self, model: Model, sleep: Callable[[float], None] = time.sleep) -> None:
        self.model = model
        self._sleep = sleep
        self._down = False
        self._dimension = model.card.dimension
        self._owed = 0.0  # paid for calls that were made for no text

    def rest(self) -> None:
        """Between tasks."""
        if isinstance(self.model, ModelProcess):
            self.model.rest()

    def close(self) -> None:
        if isinstance(self.model, ModelProcess):
            self.model.close()

    def ask_all(self, texts: Sequence[str], remember: Remember, purse: Purse | None = None) -> dict[str, Answer]:
        """An answer for each; `remember` is given vectors as they come. Nothing is asked that `purse` cannot pay."""
        answers: dict[str, Answer] = {}
        for batch in batches_of(texts, self.model.card):
            asked = self._ask_batch(batch, purse)
            while True:
                try:
                    fresh = next(asked, None)
                except Unavailable as error:
                    self._down = True
                    return dict.fromkeys(texts, _aside("MODEL_DOWN", str(error))) | answers
                except DataFault as unpaid:  # there was no money for the word
                    return dict.fromkeys(texts, _faulty(unpaid)) | answers
                if fresh is None:
                    break
                # A memo that cannot be written is no fault of the model's.
                remember({text: answer for text, answer in fresh.items() if "vector" in answer})
                answers |= fresh
            if over := next((found for found in answers.values() if found.get("reason") == OVER_BUDGET), None):
                return {text: {**over, "cost": 0.0} for text in texts} | answers
        return answers

    def _ask_batch(self, batch: Sequence[str], purse: Purse | None) -> Iterator[dict[str, Answer]]:
        """As they come: what was answered before the embedder went down has been paid."""
        if self._down:
            self._require_answer(purse)
        try:
            first = self._ask(batch, purse)
        except Unavailable as error:
            self._wait(error)
            self._require_answer(purse)
            for text in batch:
                yield self._ask_alone(text, purse)
            return
        bad = {text: answer for text, answer in first.items() if "reason" in answer}
        yield {text: answer for text, answer in first.items() if text not in bad}
        for text, answer in bad.items():
            final = len(batch) == 1 or answer["reason"] == OVER_BUDGET
            yield {text: answer} if final else self._ask_alone(text, purse, answer["cost"])

    def _ask_alone(self, text: str, purse: Purse | None, spent: float = 0.0) -> dict[str, Answer]:
        """`spent` was paid for it before."""
        try:
            (alone,) = self._ask([text], purse).values()
        except Unavailable as error:
            self._wait(error)
            self._require_answer(purse)
            reason = error.reason if isinstance(error, Lost) else "CRASHED"
            alone = _aside(reason, f"The embedder answers other texts, but not this one: {error}")
        return {text: {**alone, "cost": alone["cost"] + spent}}

    def _wait(self, error: Unavailable) -> None:
        """An endpoint that failed often is left alone for a while, and says for how long."""
        try:
            seconds = float(error.after_seconds)
        except (TypeError, ValueError, AttributeError):  # a model of somebody else's may say anything
            seconds = 0.0
        self._sleep(min(PATIENCE_SECONDS, seconds) if seconds > 0 else 0.0)

    def _require_answer(self, purse: Purse | None) -> None:
        """Raises Unavailable where the embedder does not even answer a plain word, DataFault where that is too dear.

        A poor answer is one.
        """
        (outcome,), (cost,) = self._call([WORD], purse)
        if isinstance(outcome, DataFault) and outcome.reason == OVER_BUDGET:
            raise outcome
        self._owed += cost
        self._down = False

    def _ask(self, batch: Sequence[str], purse: Purse | None) -> dict[str, Answer]:
        started = time.perf_counter()
        outcomes, costs = self._call(batch, purse)
        seconds = (time.perf_counter() - started) / max(1, len(batch))
        costs[0], self._owed = costs[0] + self._owed, 0.0
        return {text: _answer(one, seconds, cost) for text, one, cost in zip(batch, outcomes, costs, strict=True)}

    def _call(self, batch: Sequence[str], purse: Purse | None) -> tuple[list[Outcome], list[float]]:
        """For each text what was answered, or why not, and what that cost. Raises Unavailable."""
        with billed(purse) as bill:
            try:
                outcomes = [self._judged(answer) for answer in self._run(batch)]
            except DataFault as fault:
                outcomes = [fault] * len(batch)
            except MemoryError:
                outcomes = [DataFault("TOO_LARGE", "The embedder has not enough memory for it.")] * len(batch)
            except Unavailable:
                self._owed += bill.cost
                raise
        outcomes = [_within_its_rights(one, purse) for one in outcomes]
        if bill.calls:
            return outcomes, _shared(bill.cost, batch)
        priced = [_priced(self.model.card, one, len(batch)) for one in outcomes]
        costs = [cost for _, cost in priced]
        if purse is not None:
            purse.spend(sum(costs))
        return [one for one, _ in priced], costs

    def _run(self, batch: Sequence[str]) -> list[Any]:
        with model_faults():
            if self.model.card.price and not getattr(self.model, "tells_waiting", False):
                require_money(self.model.card.cost())
            return list_answers(self.model.run(batch), len(batch))

    def _judged(self, answer: object) -> Outcome:
        """One useless vector must not cost the others."""
        try:
            outcome = checked_embedded(answer, self._dimension)
        except DataFault as fault:
            return fault
        # A model that does not tell how long its vectors are is held to its first.
        self._dimension = len(outcome.vector)
        return outcome


def batches_of(texts: Sequence[str], card: ModelCard) -> Iterator[list[str]]:
    """As many as the model takes at once; padding costs least among texts of one length."""
    return grouped(
        sorted(texts, key=len),
        lambda text: len(text.encode()),
        most_bytes=card.batch_bytes,
        most_items=card.batch_items,
    )


def _priced(card: ModelCard, outcome: Outcome, batch: int) -> tuple[Outcome, float]:
    """Of a model that says nothing of its calls: one for the whole batch, shared out among its texts."""
    if isinstance(outcome, DataFault) and outcome.reason == OVER_BUDGET:
        return outcome, 0.0
    tokens = outcome.tokens if isinstance(outcome, Embedded) else 0
    try:
        with model_faults():
            cost = card.cost(tokens=tokens) / (batch if card.price_unit == "call" else 1)
            return outcome, checked_amount(cost, "cost")
    except DataFault as fault:
        return fault, 0.0


def _shared(cost: float, texts: Sequence[str]) -> list[float]:
    """A call's cost, shared out to each of its texts by their length, so that what the rows cost is what was paid."""
    whole = sum(len(text) + 1 for text in texts)
    return [cost * (len(text) + 1) / whole for text in texts]


def _answer(outcome: Outcome, seconds: float, cost: float) -> Answer:
    if isinstance(outcome, DataFault):
        return _faulty(outcome, cost)
    effort = {"model_seconds": seconds, "tokens": outcome.tokens, "cost": cost, "attempts": outcome.attempts}
    return {"vector": outcome.vector, **effort, "remembered": False}


def _within_its_rights(outcome: Outcome, purse: Purse | None) -> Outcome:
    """Whether a model is down, a store fails, a text waits or money is up is not for a model to say.

    Only who asked knows: then texts wait, and none is set aside.
    """
    if isinstance(outcome, DataFault) and (
        outcome.reason in _NOT_ITS_WORDS or (outcome.reason == OVER_BUDGET and purse is None)
    ):
        return DataFault("CRASHED", f"{outcome.reason}: {outcome.detail}")
    return outcome


def _faulty(fault: DataFault, cost: float = 0.0) -> Answer:
    reason, detail = known_fault(fault.reason, fault.detail)
    return _aside(reason, detail, cost)


def _aside(reason: str, detail: str, cost: float = 0.0) -> Answer:
    return {"reason": reason, "detail": sound_text(detail)[:DETAIL_MAX], "cost": cost}
