"""A shelf: one model's answers for one step, by the checksum of what was asked.

A worker puts what its model answered as one small file, whole or not at all, and merges its own small files sixteen at
a time, so that they stay few between two packings. A look lists the shelf and opens only what may hold what is asked.
Put twice is put once: an answer is determined by its key, so whichever is found is the same.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, TypeVar

from headwater.clock import Clock
from headwater.errors import Unavailable
from headwater.storage.memo.answer import decode_answer, encode_answer
from headwater.storage.memo.file import AnswerFile, FileBuilder, Heads, Record, heads_of
from headwater.storage.memo.files_of_0_1 import OldFile, find_in_old
from headwater.storage.memo.index import Index, PageCache
from headwater.storage.memo.merge import SMALL_BYTES, Drop, File, Merged, Merger, keep_all
from headwater.storage.memo.pack import PackPlan, plan_pack
from headwater.storage.memo.store import READS_AT_ONCE, MemoStore

Answer = dict[str, Any]
T = TypeVar("T")
OWN_FILES: Final = 16
SMALL_FILES_MOST: Final = 256  # half of more than that are merged by whoever sees them when he puts
KEYS_AT_ONCE: Final = 10_000
_TRIES: Final = 100  # each time somebody else has packed in between, which takes longer than a look
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Packed:
    """Files before and after, and free answers that went."""

    files_before: int
    files_after: int
    dropped: int


class Shelf:
    def __init__(self, store: MemoStore, cache: PageCache, place: str, clock: Clock) -> None:
        self.fresh = False
        self._lock = RLock()
        self._store = store
        self._cache = cache
        self._index = Index(store, cache)
        self._place = place
        self._clock = clock
        self._files: dict[str, File] = {}
        self._own: defaultdict[int, list[AnswerFile]] = defaultdict(list)  # by how often they were merged

    def find(self, checksums: Collection[str]) -> dict[str, Answer]:
        """What was answered, of these."""
        found: dict[str, Answer] = {}
        for keys in _in_parts(checksums):
            for records in self._ask(keys, self._find_in):
                found.update((key.hex(), decode_answer(answer)) for key, _, answer in records)
        return found

    def known(self, checksums: Collection[str]) -> set[str]:
        """Which of these were answered, without reading the answers."""
        held: set[str] = set()
        for keys in _in_parts(checksums):
            held.update(key.hex() for found in self._ask(keys, self._known_in) for key in found)
        return held

    def put(self, answers: Mapping[str, Mapping[str, Any]], *, paid: bool = True) -> None:
        """One file for all of them, whole or not at all. What was not paid for may be dropped when it is old."""
        if not answers:
            return
        day = 0 if paid else self._today()
        builder = FileBuilder()
        for checksum in sorted(answers):
            builder.add(bytes.fromhex(checksum), day, encode_answer(answers[checksum]))
        file, data = builder.finish(self._place, 0, _new_run(), 0)
        self._store.write(file.name, data)
        with self._lock:
            self._files[file.name] = file
            self._merge_own(file, 0)
            self._merge_left()

    def plan(self, *, drop_before: int = 0) -> PackPlan:
        """What packing would do; writes nothing. `drop_before` is a day since 1970."""
        self.fresh = False
        return plan_pack(self._look(), self._index, drop_before)

    def pack(self, *, drop_before: int = 0) -> Packed:
        """Merge until nothing is left to merge. Killed half-way, the next one goes on."""
        self._store.remove_leftovers(self._place, self._clock())
        plan = self.plan(drop_before=drop_before)
        before, dropped = plan.files, 0
        for _ in range(_TRIES):
            for files in plan.merges:
                # Gone: somebody else packs as well, and a new plan tells what is left.
                with suppress(FileNotFoundError):
                    dropped += self._merge(files, plan.drops).dropped
            if not plan.merges:
                break
            plan = self.plan(drop_before=drop_before)
        return Packed(before, plan.files, dropped)

    def forget(self, checksums: Collection[str]) -> int:
        """Take out what was answered about these, from every byte; returns how many answers."""
        gone, keys = 0, {bytes.fromhex(checksum) for checksum in checksums}
        while files := self._files_with(sorted(keys)):
            for file in files:
                with suppress(FileNotFoundError):
                    gone += self._merge([file], lambda key, _: key in keys).dropped
        return gone

    def _files_with(self, keys: Sequence[bytes]) -> list[File]:
        self.fresh = False
        heads, found = heads_of(list(keys)), list[File]()
        for file in self._look():
            with suppress(FileNotFoundError):
                found += [file] if self._known_in(file, keys, heads) else []
        return found

    def _ask(self, keys: Sequence[bytes], look_in: Callable[[File, Sequence[bytes], Heads], T]) -> list[T]:
        heads = heads_of(list(keys))
        for _ in range(_TRIES):
            files = [file for file in self._look() if _may_hold(file, heads)]
            try:
                return self._each(files, lambda file: look_in(file, keys, heads))
            except FileNotFoundError:  # packed by somebody else meanwhile
                self.fresh = False
        raise Unavailable(f"The memo's {self._place} changes faster than it can be read. Try again.")

    def _each(self, files: Sequence[File], look: Callable[[File], T]) -> list[T]:
        """Several files at once where each is a request."""
        if self._store.root is not None or len(files) < 2:
            return list(map(look, files))
        with ThreadPoolExecutor(READS_AT_ONCE) as readers:
            return list(readers.map(look, files))

    def _find_in(self, file: File, keys: Sequence[bytes], heads: Heads) -> list[Record]:
        if isinstance(file, OldFile):
            return find_in_old(self._store, self._cache, file, set(keys), heads)
        return self._index.find(file, keys, heads)

    def _known_in(self, file: File, keys: Sequence[bytes], heads: Heads) -> set[bytes]:
        if isinstance(file, OldFile):
            return {record[0] for record in find_in_old(self._store, self._cache, file, set(keys), heads)}
        return self._index.known(file, keys, heads)

    def _look(self) -> list[File]:
        with self._lock:
            if not self.fresh:
                listed = self._store.files(self._place)
                parsed = [AnswerFile.of(file) or OldFile.of(file) for file in listed]
                self._files = {file.name: file for file in parsed if file is not None}
                self.fresh = True
            return list(self._files.values())

    def _merge_own(self, file: AnswerFile, times: int) -> None:
        if file.size >= SMALL_BYTES:
            return
        own = self._own[times]
        own.append(file)
        if len(own) == OWN_FILES:
            self._own[times] = []
            for merged in self._merge_unless_gone(own):
                self._merge_own(merged, times + 1)

    def _merge_left(self) -> None:
        """What killed or short-lived workers left. Several may see it at once, so each begins somewhere else."""
        small = [file for file in self._files.values() if isinstance(file, AnswerFile) and file.size < SMALL_BYTES]
        if len(small) > SMALL_FILES_MOST:
            somewhere = _new_run()
            ordered = sorted(small, key=lambda file: (file.run < somewhere, file.run))
            self._merge_unless_gone(ordered[: SMALL_FILES_MOST // 2])

    def _merge_unless_gone(self, files: Sequence[File]) -> list[AnswerFile]:
        try:
            return self._merge(files).files
        except FileNotFoundError:  # packed by somebody else
            self.fresh = False
            return []

    def _merge(self, files: Sequence[File], drop: Drop = keep_all) -> Merged:
        """One file that is rewritten stays in its run; several become a new one."""
        alone = files[0] if len(files) == 1 and isinstance(files[0], AnswerFile) else None
        run, part = (alone.run, alone.part) if alone else (_new_run(), 0)
        merged = Merger(self._store, self._index, run, part).merge(self._place, files, drop)
        with self._lock:
            for file in files:
                self._files.pop(file.name, None)
            self._files.update((file.name, file) for file in merged.files)
        return merged

    def _today(self) -> int:
        return int(self._clock().timestamp()) // _DAY_SECONDS


def _may_hold(file: File, heads: Heads) -> bool:
    if isinstance(file, OldFile):
        return True
    some = file.may_hold(heads)
    return bool(some.start < some.stop)


def _in_parts(checksums: Collection[str]) -> Iterator[list[bytes]]:
    keys = sorted({bytes.fromhex(checksum) for checksum in checksums})
    for start in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[start : start + KEYS_AT_ONCE]


def _new_run() -> str:
    return uuid.uuid4().hex[:12]
