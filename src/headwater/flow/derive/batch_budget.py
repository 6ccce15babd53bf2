"""Batch budget: how long a batch waits for one of its objects, and what it may spend."""

from dataclasses import dataclass
from typing import Final

from headwater.errors import DataFault
from headwater.flow.models.answers import checked_amount
from headwater.flow.models.spending import OVER_BUDGET, over_budget

PATIENCE_SECONDS_MIN: Final = 5.0
_EPSILON: Final = 1e-9

Fault = tuple[str, str]


@dataclass(slots=True)
class BatchBudget:
    """None is no bound but the limits. `money` is what is left of it."""

    patience: float | None = None
    money: float | None = None

    def halve_patience(self) -> None:
        """Half the patience after each that was set aside or hung: a hundred slow ones must not add up."""
        if self.patience is not None:
            self.patience = max(min(self.patience, PATIENCE_SECONDS_MIN), self.patience / 2)

    def spend(self, cost: float) -> None:
        if self.money is not None:
            self.money -= cost

    def note_fault(self, fault: Fault) -> None:
        """What one could not pay, the next one in the batch does not try to: what is done must be without gaps."""
        if self.money is not None and fault[0] == OVER_BUDGET:
            self.money = 0.0

    @property
    def exhausted(self) -> Fault | None:
        """Why nothing more may be begun, if so."""
        if self.money is None or self.money > _EPSILON:
            return None
        fault = over_budget(0.0, 0.0)
        return fault.reason, fault.detail


def amount(cost: object) -> float:
    """What an answer says that it cost; nothing, where that is no amount of money."""
    try:
        return checked_amount(cost, "cost")
    except DataFault:
        return 0.0
