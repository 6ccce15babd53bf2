"""Memo: what a model answered, remembered before any table is committed, so that no call is ever made twice.

Key: (checksum of the content, step, model fingerprint). What is on the shelves is written by the workers that made the
calls, on the lake's own store, so that workers on other machines find it too; `headwater maintain` packs it. What any
one process holds or reads is bounded by what it asks for, whatever there is: see `memo_shelf` for how a shelf works,
`memo_file` for its files, `memo_pack` for packing, and decision 0010.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obstore.store import LocalStore, ObjectStore

from headwater.clock import Clock, utc_now
from headwater.settings import Settings
from headwater.storage.io.s3 import S3Target, is_s3
from headwater.storage.memo.index import PageCache
from headwater.storage.memo.shelf import Shelf
from headwater.storage.memo.store import MemoStore

Result = dict[str, Any]


def open_memo(settings: Settings, clock: Clock = utc_now) -> "Memo":
    uri = settings.text("memo.uri")
    if is_s3(uri):
        target = S3Target.from_settings(uri, settings, "memo.uri")
        return Memo(target.store(target.session()), clock=clock)
    root = Path(uri.removeprefix("file://"))
    return Memo(LocalStore(root, mkdir=True), root, clock)


@dataclass(frozen=True, slots=True)
class ShelfSize:
    step: str
    fingerprint: str
    objects: int
    bytes: int


class Memo:
    """`root` is the directory behind a local store, so that what was answered survives a power cut."""

    def __init__(self, store: ObjectStore, root: Path | None = None, clock: Clock = utc_now) -> None:
        self.store = store
        self.files = MemoStore(store, root)
        self._clock = clock
        self._cache = PageCache()
        self._shelves: dict[tuple[str, str], Shelf] = {}

    def shelf(self, step: str, fingerprint: str) -> Shelf:
        key = (step, fingerprint)
        if key not in self._shelves:
            self._shelves[key] = Shelf(self.files, self._cache, f"{step}/{fingerprint}", self._clock)
        return self._shelves[key]

    def refresh(self) -> None:
        """Look at the store again at the next question: others may have added something."""
        for shelf in self._shelves.values():
            shelf.fresh = False

    def sizes(self) -> list[ShelfSize]:
        """What is on each shelf, from a listing."""
        found: dict[str, list[int]] = {}
        for file in self.files.all_files():
            found.setdefault(file.name.rpartition("/")[0], []).append(file.size)
        named = ((name.partition("/"), sizes) for name, sizes in sorted(found.items()) if name.count("/") == 1)
        return [ShelfSize(step, print_, len(sizes), sum(sizes)) for (step, _, print_), sizes in named]

    def pack(self) -> int:
        """Pack every shelf; returns how many files became fewer."""
        packed = [self.shelf(size.step, size.fingerprint).pack() for size in self.sizes()]
        return sum(each.files_before - each.files_after for each in packed)

    def forget(self, checksums: Collection[str]) -> int:
        """Take out what was answered about these contents, by any model; returns how many answers."""
        return sum(self.shelf(size.step, size.fingerprint).forget(checksums) for size in self.sizes())
