"""Call policy of an endpoint: how many calls at a time, how fast, how often again, and when to leave it alone.

Key        one `CallPolicy` for each loaded model; every thread that is in the model's `run` shares it
Invariant  a call ends within `deadline_seconds` plus one try that was under way, and an endpoint that is down gets one
           request in `breaker_seconds`.

Knows nothing of HTTP: a try that may succeed later raises TryAgain, everything else is an answer.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from headwater.clock import Clock, utc_now
from headwater.errors import DataFault, Unavailable

BACKOFF_SECONDS: Final = 0.5  # the first wait lies between nothing and this; each one after may be twice as long
BACKOFF_SECONDS_MAX: Final = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """`requests_per_second` 0 is no limit. `deadline_seconds` is for all tries of a call and the waits between them."""

    concurrency: int = 4
    requests_per_second: float = 0.0
    deadline_seconds: float = 300.0
    timeout_seconds: float = 60.0
    breaker_failures: int = 6
    breaker_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class TimeAndChance:
    """Time and chance, by the front door."""

    clock: Callable[[], float] = time.monotonic
    now: Clock = utc_now
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random


class TryAgain(Exception):
    """A try failed and the next one may not; `after_seconds` is how long the other side asked us to wait."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class CallPolicy:
    """Of one endpoint: concurrency, rate, retries with backoff, and a circuit breaker."""

    def __init__(self, name: str, limits: CallLimits, timing: TimeAndChance | None = None) -> None:
        self._name = name
        self._limits = limits
        self._timing = timing or TimeAndChance()
        self._places = threading.BoundedSemaphore(limits.concurrency)
        self._rate = RateLimiter(limits.requests_per_second, self._timing.clock)
        self.breaker = CircuitBreaker(name, limits.breaker_failures, limits.breaker_seconds, self._timing.clock)

    def deadline(self) -> float:
        """When a piece of work that begins now must be done, by its clock."""
        return self._timing.clock() + self._limits.deadline_seconds

    def call(self, attempt: Callable[[float], T], until: float | None = None) -> tuple[T, int]:
        """What `attempt(seconds it may take)` answers, and how many tries it took.

        `until` is the deadline of a work that takes several calls. Raises Unavailable when the deadline is over or the
        circuit is open, and whatever else `attempt` raises.
        """
        until = self.deadline() if until is None else until
        tries = 0
        while True:
            self.breaker.check()
            self._take_turn(until)
            with self._place(until):
                seconds = min(self._limits.timeout_seconds, until - self._timing.clock())
                tries += 1
                try:
                    return self.breaker.watch(attempt, seconds), tries
                except TryAgain as failure:
                    trouble = failure
            self.breaker.check()
            self._wait_after(trouble, tries, until)

    def _take_turn(self, until: float) -> None:
        wait = self._rate.reserve(until)
        if wait is None:
            raise self._too_late("its rate, or the wait it asked for, leaves no room for another request")
        self._sleep(wait)

    @contextmanager
    def _place(self, until: float) -> Iterator[None]:
        if not self._places.acquire(timeout=max(0.0, until - self._timing.clock())):
            raise self._too_late("all its places were taken")
        try:
            if self._timing.clock() >= until:
                raise self._too_late("all its places were taken")
            yield
        finally:
            self._places.release()

    def _wait_after(self, trouble: TryAgain, tries: int, until: float) -> None:
        asked = trouble.after_seconds
        wait = self._backoff(tries) if asked is None else asked + self._backoff(1)
        if asked is not None:
            self._rate.hold(asked)
        if self._timing.clock() + wait >= until:
            raise self._too_late(f"{trouble} at try {tries}")
        self._sleep(wait)

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._timing.sleep(seconds)

    def _too_late(self, reason: str) -> Unavailable:
        return Unavailable(
            f"{self._name} gave no answer within {self._limits.deadline_seconds:g} s: {reason}. "
            "Check the endpoint; the work goes on when it answers again."
        )

    def _backoff(self, tries: int) -> float:
        """Full jitter: callers that failed together do not come back together."""
        return self._timing.chance() * min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2.0 ** min(tries - 1, 20))


class RateLimiter:
    """Requests evenly spaced, and none before the time that the other side has asked for."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._gap = 1 / per_second if per_second > 0 else 0.0
        self._clock = clock
        self._next = clock()
        self._lock = threading.Lock()

    def reserve(self, until: float) -> float | None:
        """Takes the next turn, if it comes before `until`; seconds to wait for it."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            if turn >= until:
                return None
            self._next = turn + self._gap
            return turn - now

    def hold(self, seconds: float) -> None:
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class CircuitBreaker:
    """Closed, it lets everything through; after so many failures in a row it is open, and then one call may try."""

    def __init__(self, name: str, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._name = name
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._trouble = ""
        self._open_until: float | None = None
        self._trying = False
        self._lock = threading.Condition()

    def check(self) -> None:
        """Raises Unavailable while nothing may pass."""
        with self._lock:
            self._refuse()

    def watch(self, attempt: Callable[[float], T], seconds: float) -> T:
        """Raises Unavailable while open; else what `attempt(seconds)` answers or raises, which is remembered."""
        with self._lock:
            self._refuse()
            # While one tries, the others wait for what becomes of it: they have done nothing to be refused for.
            self._lock.wait_for(lambda: not self._trying, seconds)
            self._refuse()
            trying = self._trying = self._open_until is not None
        try:
            answer = attempt(seconds)
            self._note("")
            return answer
        except TryAgain as failure:
            # Who says when to come back is alive.
            self._note("" if failure.after_seconds is not None else str(failure))
            raise
        except DataFault:
            self._note("")
            raise
        except Unavailable as error:
            self._note(str(error))
            raise
        finally:
            if trying:
                self._tried()

    def _tried(self) -> None:
        with self._lock:
            self._trying = False
            self._lock.notify_all()

    def _refuse(self) -> None:
        if self._open_until is None:
            return
        left = self._open_until - self._clock()
        if left > 0:
            raise Unavailable(
                f"{self._name} failed {self._failures} times in a row and is left alone for {max(left, 0):.0f} s: "
                f"{self._trouble}. Check the endpoint; the work goes on when it answers again.",
                after_seconds=left,
            )

    def _note(self, trouble: str) -> None:
        with self._lock:
            if not trouble:
                self._failures, self._open_until = 0, None
                return
            self._failures += 1
            self._trouble = trouble.rstrip(".")
            if self._failures >= self._limit or self._open_until is not None:
                self._open_until = self._clock() + self._seconds
