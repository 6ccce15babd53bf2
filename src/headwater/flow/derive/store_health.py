"""Whose fault it is when a raw store refuses an object: that object's, or the store's.

An error alone does not tell: a policy that denies one object and a key that was rotated are both a 403, a bad sector
and a dying disk are both EIO. So something else is asked for, there and then. Where another object can be read, the
fault is the object's. Where it was *denied*, and so is all that is about to be read, the store is asked for a name of
our own: one that answers that knows who asks, and has denied the others for good. Where it gave no answer for an
object, that name tells only where there is no other object. All else is the store's fault, and the work waits.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from headwater.domain.modality import Modality
from headwater.errors import AccessRefused, HeadwaterError, InvalidRequest, NotFound
from headwater.storage.raw.store import RawStore

WITNESSES: Final = 8  # who are asked at most: each of them may keep one waiting
SILENT_MAX: Final = 2  # a store that gives no answer twice gives none
_REMEMBERED: Final = 16
_OWN: Final = 4  # of the refused one's own customer, should there be nobody else
_LISTED: Final = 10_000  # of each kind, ten pages: one customer may fill many


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

    def blames(self, refused: str, mates: Sequence[str], *, is_denied: bool) -> bool:
        """Whether it is the object's own fault; `mates` are objects that are about to be read as well."""
        near = [*reversed(self._known.values()), *_one_of_each(mates)]
        # A policy may be about its customer alone.
        others = [path for path in near if _customer(path) != _customer(refused)]
        asking = _Asking(self._store, refused)
        if not asking.reads_any(others):
            if is_denied and not asking.silent and self._store.is_answering():
                return True
            if not asking.reads_any(chain(self._listed(refused), near, mates)):
                return not is_denied and not asking.silent and self._store.is_answering()
        self.note_read(asking.read)
        return True

    def _listed(self, refused: str) -> Iterator[str]:
        """Two of each kind, of other customers; then some of its own customer's."""
        own: list[str] = []
        for modality in Modality:
            others: dict[str, str] = {}
            try:
                for path in (listed.path for listed in islice(self._store.list(modality.prefix), _LISTED)):
                    if _customer(path) != _customer(refused):
                        others.setdefault(_owner(path), path)
                    elif len(own) < _OWN:
                        own.append(path)
                    if len(others) == 2:
                        break
            except HeadwaterError:
                continue
            yield from others.values()
        yield from own


@dataclass(slots=True)
class _Asking:
    """Other objects are asked for, each once, until one can be read or enough could not."""

    store: RawStore
    refused: str
    silent: int = 0  # that gave no answer at all
    read: str = ""
    _seen: set[str] = field(default_factory=set)

    def reads_any(self, paths: Iterable[str]) -> bool:
        self._seen.add(self.refused)
        for path in paths:
            if path in self._seen:
                continue
            if len(self._seen) > WITNESSES or self.silent >= SILENT_MAX:
                return False
            self._seen.add(path)
            if self._reads(path):
                self.read = path
                return True
        return False

    def _reads(self, path: str) -> bool:
        try:
            for _ in self.store.chunks(path, 0, 1):
                break
            return True
        except (AccessRefused, NotFound, InvalidRequest):
            return False  # an event without bytes, or with a path that leads nowhere, says nothing of the store
        except HeadwaterError:
            self.silent += 1
            return False


def _customer(path: str) -> str:
    return "/".join(path.split("/")[1:2])


def _owner(path: str) -> str:
    """Kind and customer: what policies are written for."""
    return "/".join(path.split("/")[:2])


def _one_of_each(paths: Sequence[str]) -> list[str]:
    """The first of every owner."""
    return list({_owner(path): path for path in reversed(paths)}.values())
