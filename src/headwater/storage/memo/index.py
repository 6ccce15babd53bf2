"""Looking into the memo's files: which records may hold what is asked for, told by pages of the index alone.

Pages are read by range as they are needed, and the latest are held, up to a bound: what a worker holds does not depend
on how much there is. What a file does not have is told by its pages, and costs nothing once they are held.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np

from headwater.storage.memo.file import FENCE, HEADER, TAIL, AnswerFile, Bounds, Heads, Record, read_page, read_record
from headwater.storage.memo.store import MemoStore, Range

CACHE_BYTES: Final = 32 << 20  # the index of 2.5 million answers
_PAGES_GAP: Final = 64 << 10  # two pages that are nearer than that are read in one go
_RECORDS_GAP: Final = 16 << 10
_COST: Final = 200  # bytes, about, of what Python holds around a page


class PageCache:
    """The latest pages and fences of all files; safe among threads."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, name: str, page: int) -> bytes | None:
        with self._lock:
            data = self._held.get((name, page))
            if data is not None:
                self._held.move_to_end((name, page))
            return data

    def put(self, name: str, page: int, data: bytes) -> None:
        with self._lock:
            if (name, page) not in self._held:
                self._held[name, page] = data
                self.bytes += len(data) + _COST
            while self.bytes > self._limit and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                self.bytes -= len(dropped) + _COST


class Index:
    """What files hold, by way of their pages."""

    def __init__(self, store: MemoStore, cache: PageCache) -> None:
        self._store = store
        self._cache = cache

    def find(self, file: AnswerFile, keys: Sequence[bytes], heads: Heads) -> list[Record]:
        """The records of those keys, which are in order, that the file has. Bytes that went bad count as not there."""
        places = list(self._locate(file, heads))
        if not places:
            return []
        wanted = set(keys)
        found = (read_record(data) for data in self._store.read_ranges(file.name, places, _RECORDS_GAP))
        return [record for record in found if record is not None and record[0] in wanted]

    def known(self, file: AnswerFile, keys: Sequence[bytes], heads: Heads) -> set[bytes]:
        """As `find`, without reading the answers."""
        places = [(start, start + HEADER.size) for start, _ in self._locate(file, heads)]
        if not places:
            return set()
        found = self._store.read_ranges(file.name, places, 4 * HEADER.size)
        return {HEADER.unpack(data)[0] for data in found} & set(keys)

    def free_days(self, file: AnswerFile) -> dict[int, int]:
        """How many free answers the file has, by the day they were given."""
        if not file.droppable:
            return {}
        (tail,) = self._store.read_ranges(file.name, [(file.size - TAIL.size, file.size)], 0)
        begin, end, _ = TAIL.unpack(tail)
        (summary,) = self._store.read_ranges(file.name, [(begin, end)], 0)
        return {int(day): count for day, count in json.loads(summary)["free"].items()}

    def bounds(self, file: AnswerFile) -> Iterator[Bounds]:
        """Page by page where records begin and end; not held, because who reads all of a file reads it once."""
        for page, start in enumerate(self._fences(file)["start"].tolist()):
            (data,) = self._store.read_ranges(file.name, [file.page_range(page)], 0)
            yield read_page(file, data, start)[1]

    def _locate(self, file: AnswerFile, heads: Heads) -> Iterator[Range]:
        some = heads[file.may_hold(heads)]
        if not len(some):
            return
        fences = self._fences(file)
        # A head may be that of several keys, of which one page has the last and the next one the first.
        low = np.maximum(fences["head"].searchsorted(some, "left") - 1, 0)
        high = np.maximum(fences["head"].searchsorted(some, "right") - 1, 0)
        needed = np.unique(np.concatenate([low, high])).tolist()
        for page, data in self._pages(file, needed):
            held, bounds = read_page(file, data, int(fences["start"][page]))
            asked = np.unique(some[(low <= page) & (page <= high)])
            for begin, end in zip(held.searchsorted(asked, "left"), held.searchsorted(asked, "right"), strict=True):
                yield from ((int(bounds[row]), int(bounds[row + 1])) for row in range(begin, end))

    def _fences(self, file: AnswerFile) -> Any:
        if file.pages == 1:
            return np.array([(file.heads[0], 0)], dtype=FENCE)
        data = self._cache.get(file.name, -1)
        if data is None:
            (data,) = self._store.read_ranges(file.name, [file.fences_range], 0)
            self._cache.put(file.name, -1, data)
        return np.frombuffer(data, dtype=FENCE)

    def _pages(self, file: AnswerFile, pages: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        held = {page: self._cache.get(file.name, page) for page in pages}
        missing = [page for page in pages if held[page] is None]
        if missing:
            read = self._store.read_ranges(file.name, [file.page_range(page) for page in missing], _PAGES_GAP)
            for page, data in zip(missing, read, strict=True):
                held[page] = data
                self._cache.put(file.name, page, data)
        yield from ((page, data) for page, data in held.items() if data is not None)
