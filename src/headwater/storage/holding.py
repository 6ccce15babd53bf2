"""Holding a lease: taken, kept alive by a heartbeat, given back; lost, it stops the work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headwater.clock import Clock
from headwater.errors import Conflict, Unavailable
from headwater.storage.ledger import Ledger

TTL_SECONDS: Final = 60.0  # a holder on another machine that is silent for this long is taken for dead


@contextmanager
def holding(ledger: Ledger, name: str, owner: str, clock: Clock, lost: Callable[[], None]) -> Iterator[None]:
    """Conflict names the holder where there is one. `lost` is called if another took over while we slept."""
    now = ledger.clock(clock)
    lease = ledger.acquire_lease(name, owner, TTL_SECONDS, now())
    done, taken = threading.Event(), threading.Event()

    def beat() -> None:
        while not done.wait(TTL_SECONDS / 4):
            try:
                ledger.heartbeat(lease, now())
            except Unavailable:
                continue
            except Conflict:
                taken.set()
                lost()
                return

    thread = threading.Thread(target=beat, name=f"lease-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        ledger.release(lease)
    if taken.is_set():
        raise Conflict(f"Another process took over the lease {name} while this one was silent; it has stopped.")
