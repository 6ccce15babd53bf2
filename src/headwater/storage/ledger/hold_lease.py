"""Holding a lease: taken, kept alive by a heartbeat, given back; lost, it stops the work.

Who took a lease over from a holder that may only be asleep must shut that one out of the tables. If he ends without
having done so, because there was nothing to do or he failed half-way, it is left to the next holder: a fact in the
ledger says so until it is done.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Final

from headwater.clock import Clock
from headwater.errors import Conflict, Unavailable
from headwater.storage.ledger.database import lost_lease
from headwater.storage.ledger.lease import Lease
from headwater.storage.ledger.ledger import Ledger

TTL_SECONDS: Final = 60.0  # a holder on another machine that is silent for this long is taken for dead


class Held:
    """A lease in our hands, and the ledger for the work that is done under it."""

    def __init__(self, ledger: Ledger, lease: Lease) -> None:
        self._ledger = ledger
        self.lease = lease

    @property
    def ledger(self) -> Ledger:
        """Refuses every change once another has the lease."""
        return self._ledger.under(self.lease)

    def raise_above(self, epoch: int) -> None:
        """So that tables which have seen a greater epoch than the ledger, which may be an older copy, take ours."""
        if epoch >= self.lease.epoch:
            self._ledger.set_fact(_unfenced(self.lease.name), str(self.lease.epoch))
            self.lease = self._ledger.raise_epoch(self.lease, epoch)

    def note_fenced(self) -> None:
        """Every table has seen our epoch: who held the lease before is shut out, and the next holder need not care."""
        self.ledger.set_fact(_unfenced(self.lease.name), "")
        self.lease = replace(self.lease, takeover=False)


def _unfenced(name: str) -> str:
    """The fact that is empty where nobody who held the lease before can be in the way any more."""
    return f"unfenced.{name}"


def _acquire(ledger: Ledger, name: str, owner: str, now: datetime) -> Lease:
    """Killed before the fact is written, we are a holder that never gave it back: the next one takes over from us."""
    lease = ledger.acquire_lease(name, owner, TTL_SECONDS, now)
    if lease.takeover:
        ledger.under(lease).set_fact(_unfenced(name), str(lease.epoch))
    return replace(lease, takeover=bool(ledger.fact(_unfenced(name))))


@contextmanager
def hold_lease(ledger: Ledger, name: str, owner: str, clock: Clock, lost: Callable[[], None]) -> Iterator[Held]:
    """Conflict names the holder where there is one. `lost` is called if another took over while we slept."""
    now = ledger.clock(clock)
    held = Held(ledger, _acquire(ledger, name, owner, now()))
    done, taken = threading.Event(), threading.Event()

    def look() -> None:
        try:
            ledger.heartbeat(held.lease, now())
        except Unavailable:
            pass
        except Conflict:
            taken.set()
            lost()

    def beat() -> None:
        while not done.wait(TTL_SECONDS / 4) and not taken.is_set():
            look()

    thread = threading.Thread(target=beat, name=f"lease-{name}", daemon=True)
    thread.start()
    try:
        yield held
        if not taken.is_set():
            look()  # who slept, and ended before the next beat, must not say that all went well
    finally:
        done.set()
        thread.join()
        ledger.release(held.lease)
    if taken.is_set():
        raise Conflict(lost_lease(name))
