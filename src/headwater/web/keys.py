"""Keys: which call an `Idempotency-Key` was given to, so that another call under it is refused.

What was put says by itself that it is there already, also after a restart of the server; that it was asked for
differently is known for as long as the server lives.
"""

import threading
from typing import Final

from headwater.errors import Conflict

_KEPT: Final = 10_000


class Keys:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], str] = {}

    def check(self, token: str, key: str, digest: str) -> None:
        """`digest` is of all that is asked for. Conflict where this caller gave the key to something else."""
        with self._lock:
            if self._known.setdefault((token, key), digest) != digest:
                raise Conflict("That Idempotency-Key was given to another call. Take another one.")
            if len(self._known) > _KEPT:
                self._known.pop(next(iter(self._known)))
