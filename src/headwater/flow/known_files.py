"""Known files: what was put before, so that a second put of the same changes nothing.

Reads   the ledger's claims
Writes  the ledger's claims
Key     of a file its customer, folders, name and checksum; of an event its customer and id.
A raw key has the day on which the file was last written, and copying or touching a file changes that. The first put of
the same bytes under the same name decides for all later ones, also where two put at once. A claim is made before the
bytes are stored: who is killed in between left a day, and the next put stores them there.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from headwater.domain.event import Event
from headwater.domain.keys import event_key, on_day, without_day
from headwater.domain.line import read_line
from headwater.errors import Conflict, HeadwaterError
from headwater.storage.ledger.ledger import Ledger

FILE: Final = "file"
FLAT_FILE: Final = "flat-file"  # of a lake from before folders were kept: every name stands alone
FLAT_FILES_FACT: Final = "files.flat"
_PUT: Final = "put"
_NO_LOG: Final = -1  # where a claim has its partition


@dataclass(slots=True)
class _Asked:
    key: str
    checksum: str
    answer: str | None = None
    error: HeadwaterError | None = None


class KnownFiles:
    """Of one lake; for many threads. Those that wait while one asks the ledger are asked for together, next."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._has_flat = ledger.fact(FLAT_FILES_FACT) is not None
        self._waiting: list[_Asked] = []
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def first_key(self, key: str, checksum: str) -> str:
        """The raw key of these bytes under this name: `key`, unless they were put before on another day."""
        asked = _Asked(key, checksum)
        with self._lock:
            self._waiting.append(asked)
        with self._turn:
            if asked.answer is None and asked.error is None:
                with self._lock:
                    some, self._waiting = self._waiting, []
                self._answer(some)
        if asked.error is not None:
            raise asked.error
        return asked.answer or key

    def check_id(self, event: Event) -> None:
        """Conflict where the id is taken, as far as that is known: by what a run has read, or what was put here."""
        key, content = _identity(event)
        for kind in ("event", _PUT):
            same, _ = self._ledger.find_claims(kind, [(key, content)]).get(key, (True, 0))
            if not same:
                raise Conflict(
                    f"{event.event_id} is the id of another event of {event.customer}, with other content. "
                    "The first stays; give this one another --id."
                )

    def note_id(self, event: Event) -> None:
        """Once it is published, and not before: an event that never went out takes no id."""
        key, content = _identity(event)
        self._ledger.claim_first(_PUT, [(key, content, _NO_LOG, 0)])

    def _answer(self, some: Sequence[_Asked]) -> None:
        try:
            flat = self._flat([asked for asked in some if asked.key.count("/") > 3]) if self._has_flat else {}
            new = [asked for asked in some if id(asked) not in flat]
            firsts = self._ledger.claim_first(FILE, [file_claim(asked.key, asked.checksum) for asked in new])
        except HeadwaterError as error:
            for asked in some:
                asked.error = error
            return
        for asked in some:
            name = _name(asked.key, asked.checksum)
            asked.answer = flat.get(id(asked)) or on_day(asked.key, date.fromordinal(firsts[name][2]))

    def _flat(self, some: Sequence[_Asked]) -> dict[int, str]:
        """Those that an older version stored without their folders."""
        keys = {id(asked): _without_folders(asked.key) for asked in some}
        names = {id(asked): _name(keys[id(asked)], asked.checksum) for asked in some}
        found = self._ledger.find_claims(FLAT_FILE, [(name, "") for name in set(names.values())])
        return {
            one: on_day(keys[one], date.fromordinal(found[name][1])) for one, name in names.items() if name in found
        }


def file_claim(key: str, checksum: str) -> tuple[str, str, int, int]:
    """The claim of what is stored there. Its day is all that a second put has to be told."""
    return _name(key, checksum), "", _NO_LOG, date.fromisoformat(key.split("/", 3)[2]).toordinal()


def _name(key: str, checksum: str) -> str:
    return f"{without_day(key)}\0{checksum}"


def _without_folders(key: str) -> str:
    prefix, customer, day, name = key.split("/", 3)
    return f"{prefix}/{customer}/{day}/{name.rpartition('/')[2]}"


def _identity(event: Event) -> tuple[str, str]:
    return event_key(event.event_id, event.customer), read_line(
        event.to_json().encode(errors="replace")
    ).content_hash or ""
