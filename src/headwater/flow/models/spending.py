"""Spending: each call that costs money is counted as it is made, and not made where the money does not reach.

Key        the thread that works on something: whoever has it work says who hears of the costs, and how much there is
Invariant  with a purse, no call is made that it cannot pay; where nobody can tell beforehand what a call will cost, it
           is made while there is money left, alone, so that the purse is overdrawn by that one call at most.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from headwater.errors import DataFault

OVER_BUDGET: Final = "OVER_BUDGET"
_EPSILON: Final = 1e-9  # sums of prices are not exact

Charged = Callable[[float], None]


class Purse:
    """What may still be spent. Threads share it."""

    def __init__(self, money: float) -> None:
        self._left = money
        self._alone = threading.Lock()
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        return self._left

    def spend(self, cost: float) -> None:
        """What was spent without being reserved."""
        with self._lock:
            self._left -= cost

    def require(self, cost: float) -> None:
        """Raises DataFault OVER_BUDGET where it is not there."""
        if self._left <= _EPSILON or cost > self._left + _EPSILON:
            raise over_budget(cost, self._left)

    @contextmanager
    def reserve(self, most: float | None) -> Iterator["Reserved"]:
        """`most` is what the call will cost at the most; None where nobody knows. Raises DataFault OVER_BUDGET."""
        if most is not None:
            with self._taken(most) as reserved:
                yield reserved
            return
        with self._alone, self._taken(0.0) as reserved:
            yield reserved

    @contextmanager
    def _taken(self, most: float) -> Iterator["Reserved"]:
        with self._lock:
            self.require(most)
            self._left -= most
        reserved = Reserved()
        try:
            yield reserved
        finally:
            with self._lock:
                self._left += most - reserved.cost


@dataclass(slots=True)
class Reserved:
    """What the call has cost is set when it is known; one that was never answered has cost nothing that is known."""

    cost: float = 0.0


@dataclass(slots=True)
class Bill:
    """What calls have cost so far."""

    calls: int = 0
    cost: float = 0.0


@dataclass(slots=True)
class _Till:
    bill: Bill = field(default_factory=Bill)
    purse: Purse | None = None
    charged: Charged | None = None


_till: ContextVar[_Till | None] = ContextVar("till", default=None)


@contextmanager
def billed(purse: Purse | None = None, charged: Charged | None = None) -> Iterator[Bill]:
    """Counts what this thread's calls cost in here, and holds them to `purse`; `charged` hears of each."""
    till = _Till(purse=purse, charged=charged)
    token = _till.set(till)
    try:
        yield till.bill
    finally:
        _till.reset(token)


def require_money(cost: float) -> None:
    """For a model that says nothing of its calls: what it is about to cost must be there."""
    till = _till.get()
    if till is not None and till.purse is not None:
        till.purse.require(cost)


def money_left() -> float | None:
    """What this thread's calls may still cost; None where nobody counts."""
    till = _till.get()
    return None if till is None or till.purse is None else max(0.0, till.purse.left)


def note_paid(cost: float) -> None:
    """A call that was made elsewhere for this thread, and paid."""
    till = _till.get()
    if till is not None and cost > 0:
        if till.purse is not None:
            till.purse.spend(cost)
        _charge(till, cost)


@contextmanager
def paid_call(most: float | None) -> Iterator[Reserved]:
    """Around a call that was answered or not; `most` as a purse takes it. What it cost is charged, however it ends."""
    till = _till.get()
    if till is None:
        yield Reserved()
        return
    if till.purse is None:
        with _noted(till, Reserved()) as reserved:
            yield reserved
        return
    with till.purse.reserve(most) as reserved, _noted(till, reserved):
        yield reserved


@contextmanager
def _noted(till: _Till, reserved: Reserved) -> Iterator[Reserved]:
    try:
        yield reserved
    finally:
        if reserved.cost:
            _charge(till, reserved.cost)


def _charge(till: _Till, cost: float) -> None:
    till.bill.calls += 1
    till.bill.cost += cost
    if till.charged is not None:
        till.charged(cost)


def over_budget(most: float, left: float) -> DataFault:
    return DataFault(OVER_BUDGET, f"The next call costs up to {most:.6g}; {max(0.0, left):.6g} of the budget is left.")
