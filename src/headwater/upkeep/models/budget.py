"""What a replay may take, and how far that reaches: asked before each of its batches."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.flow.drive.replay import Allow, Allowance
    from headwater.flow.spent import Spent
    from headwater.upkeep.models.quote import Quote

_TO_THE_END: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Budget:
    """Money, in the currency of the prices, or time. None is no bound."""

    money: float | None = None
    seconds: float | None = None


def allow_within(budget: Budget, quote: "Quote", *, paid: bool) -> "Allow":
    """Time counts from here. Money only bounds a model that is paid."""
    from headwater.flow.drive.replay import Allowance

    begun = time.monotonic()

    def allow(spent: "Spent", position: int) -> "Allowance | None":
        if budget.seconds is not None and time.monotonic() - begun >= budget.seconds:
            return None
        if budget.money is None or not paid:
            return Allowance(until=_TO_THE_END)
        left = budget.money - spent.cost
        if left <= 0:
            return None
        # No batch is begun that the quote says it cannot pay; what the quote cannot tell, the calls themselves do.
        until = quote.affordable(position, left)
        return Allowance(until, left) if until is not None else None

    return allow
