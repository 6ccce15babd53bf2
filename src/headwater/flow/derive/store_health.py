"""Whose fault it is when a raw store refuses an object: that object's, or the store's.

An error alone does not tell: a policy that denies one object and a key that was rotated are both a 403, a bad sector
and a dying disk are both EIO. So somebody else is asked for, there and then: where another object can be read, the
store answers, and the fault is the object's; where none can, it is the store's, and the work waits.
"""

import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from headwater.domain.modality import Modality
from headwater.errors import AccessRefused, HeadwaterError, InvalidRequest, NotFound
from headwater.storage.raw.store import RawStore

WITNESSES: Final = 8  # who are asked at most: each of them may keep one waiting
SILENT_MAX: Final = 2  # a store that gives no answer twice gives none
_REMEMBERED: Final = 16
_LISTED: Final = 1_000  # one page of a listing


class StoreHealth:
    """Remembers a few objects that could be read, of as many customers as there are: one prefix may be denied."""

    def __init__(self, store: RawStore) -> None:
        self._store = store
        self._known: OrderedDict[str, str] = OrderedDict()

    def note_read(self, path: str) -> None:
        """It was there a moment ago, so it is a good one to ask for."""
        self._known[_owner(path)] = path
        self._known.move_to_end(_owner(path))
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def answers_others(self, refused: str, mates: Sequence[str]) -> bool:
        """Whether anything but `refused` can be read now; `mates` are objects that are about to be read as well."""
        refusals, silent = 0, 0
        for path in islice(self._witnesses(refused, mates), WITNESSES):
            try:
                for _ in self._store.chunks(path, 0, 1):
                    break
                self.note_read(path)
                return True
            except AccessRefused:
                refusals += 1
            except (NotFound, InvalidRequest):
                continue  # an event without bytes, or with a path that leads nowhere, says nothing of the store
            except HeadwaterError:
                silent += 1
                if silent >= SILENT_MAX:
                    return False
        return not refusals and not silent and self._answers_at_all()

    def _witnesses(self, refused: str, mates: Sequence[str]) -> Iterator[str]:
        """Those that could be read before, then mates of other customers, then whatever the store has, each once."""
        seen = {refused}
        others = sorted(mates, key=lambda path: _owner(path) == _owner(refused))
        known = list(reversed(self._known.values()))
        for path in chain(known, _by_owner(others), self._listed(refused)):
            if path not in seen:
                seen.add(path)
                yield path

    def _listed(self, refused: str) -> Iterator[str]:
        """Some of each kind, of different customers where a page of the listing has them."""
        for modality in Modality:
            try:
                page = [found.path for found in islice(self._store.list(modality.prefix), _LISTED)]
            except HeadwaterError:
                continue
            yield from islice(_by_owner([path for path in page if path != refused]), 2)

    def _answers_at_all(self) -> bool:
        """Where there is no other object: a store that says of a name that it has none has understood who asks."""
        try:
            for _ in self._store.chunks(f"{Modality.AUDIO.prefix}/{uuid.uuid4().hex}", 0, 1):
                break
        except NotFound:
            return True
        except HeadwaterError:
            return False
        return True


def _owner(path: str) -> str:
    """Kind and customer: what policies are written for."""
    return "/".join(path.split("/")[:2])


def _by_owner(paths: Sequence[str]) -> Iterator[str]:
    """One of every owner first, then the rest."""
    first = {_owner(path): path for path in reversed(paths)}
    yield from first.values()
    yield from (path for path in paths if path not in set(first.values()))
