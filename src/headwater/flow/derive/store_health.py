"""Whose fault it is when a raw store refuses an object: that object's, or the store's.

An error alone does not tell: a policy that denies one object and a key that was rotated are both a 403, a bad sector
and a dying disk are both EIO. So somebody else is asked for, there and then: where another object can be read, the
store answers, and the fault is the object's; where none can, it is the store's, and the work waits. What else is denied
to the same customer tells nothing: a policy may be about it alone.
"""

import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
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

    def answers_others(self, refused: str, mates: Sequence[str]) -> bool:
        """Whether anything but `refused` can be read now; `mates` are objects that are about to be read as well."""
        found = _Found(_customer(refused))
        denied: set[str] = set()
        silent = 0
        for path in islice(self._witnesses(refused, mates, found), WITNESSES):
            try:
                for _ in self._store.chunks(path, 0, 1):
                    break
                self.note_read(path)
                return True
            except AccessRefused:
                denied.add(_customer(path))
            except (NotFound, InvalidRequest):
                continue  # an event without bytes, or with a path that leads nowhere, says nothing of the store
            except HeadwaterError:
                silent += 1
                if silent >= SILENT_MAX:
                    return False
        alone = denied == {found.customer} and not found.is_all
        return not silent and (alone or not denied) and self._answers_at_all()

    def _witnesses(self, refused: str, mates: Sequence[str], found: "_Found") -> Iterator[str]:
        """Each once: what could be read before, a mate of each owner, what the store has; its own customer's last."""
        near = [*reversed(self._known.values()), *_one_of_each(mates)]
        others = [path for path in near if _customer(path) != found.customer]
        seen = {refused}
        for path in chain(others, self._listed(found), near, mates, found.own):
            if path not in seen:
                seen.add(path)
                yield path

    def _listed(self, found: "_Found") -> Iterator[str]:
        """Two of each kind, of other customers, as soon as they are found."""
        for modality in Modality:
            others: dict[str, str] = {}
            try:
                count, page = 0, islice(self._store.list(modality.prefix), _LISTED + 1)
                for count, path in enumerate(listed.path for listed in page):
                    if _customer(path) != found.customer:
                        others.setdefault(_owner(path), path)
                    elif len(found.own) < _OWN:
                        found.own.append(path)
                    if len(others) == 2 or count == _LISTED:
                        break
                found.is_all &= not others and count < _LISTED
            except HeadwaterError:
                found.is_all = False
            yield from others.values()

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


@dataclass(slots=True)
class _Found:
    """What a listing has of a customer, and whether it was read to its end without another one."""

    customer: str
    own: list[str] = field(default_factory=list)
    is_all: bool = True


def _customer(path: str) -> str:
    return "/".join(path.split("/")[1:2])


def _owner(path: str) -> str:
    """Kind and customer: what policies are written for."""
    return "/".join(path.split("/")[:2])


def _one_of_each(paths: Sequence[str]) -> list[str]:
    """The first of every owner."""
    return list({_owner(path): path for path in reversed(paths)}.values())
