"""Memo: what a model answered, remembered before any table is committed, so that no call is ever made twice.

Key: (checksum of the content, step, model fingerprint). A shelf holds one model's answers for one step: loose batches,
each written whole by the worker that made the calls and never changed, and packed files that compaction makes of them,
sorted by checksum. Put twice is put once: a result is determined by its key, so whichever is found is the same.
Everything is on the lake's own store, so workers on other machines find it too.
"""

import io
import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from headwater.errors import Unavailable
from headwater.settings import Settings
from headwater.storage.s3 import S3Target, is_s3
from headwater.storage.whole_file import write_whole

if TYPE_CHECKING:
    import pyarrow as pa

LOOSE, PACKED = ".jsonl", ".parquet"
_ROWS_IN_GROUP: Final = 500

Result = dict[str, Any]


def open_memo(settings: Settings) -> "Memo":
    uri = settings.text("memo.uri")
    if is_s3(uri):
        target = S3Target.from_settings(uri, settings, "memo.uri")
        return Memo(target.store(target.session()))
    root = Path(uri.removeprefix("file://"))
    return Memo(LocalStore(root, mkdir=True), root)


@dataclass(frozen=True, slots=True)
class ShelfSize:
    step: str
    fingerprint: str
    objects: int
    bytes: int


class Memo:
    """`root` is the directory behind a local store, so that what was answered survives a power cut."""

    def __init__(self, store: ObjectStore, root: Path | None = None) -> None:
        self.store = store
        self.root = root
        self._shelves: dict[tuple[str, str], Shelf] = {}

    def shelf(self, step: str, fingerprint: str) -> "Shelf":
        key = (step, fingerprint)
        return self._shelves.setdefault(key, Shelf(self, f"{step}/{fingerprint}"))

    def refresh(self) -> None:
        """Look at the store again at the next question: others may have added something."""
        for shelf in self._shelves.values():
            shelf.fresh = False

    def sizes(self) -> list[ShelfSize]:
        """What is on each shelf, from a listing."""
        found: dict[str, list[int]] = {}
        with translated():
            for page in self.store.list():
                for item in page:
                    found.setdefault(str(item["path"]).rpartition("/")[0], []).append(int(item["size"]))
        named = ((name.partition("/"), sizes) for name, sizes in sorted(found.items()) if name.count("/") == 1)
        return [ShelfSize(step, print_, len(sizes), sum(sizes)) for (step, _, print_), sizes in named]

    def pack(self, least: int = 2) -> int:
        """Pack every shelf with so many loose batches; returns how many objects became fewer."""
        return sum(self.shelf(size.step, size.fingerprint).pack(least) for size in self.sizes())

    def forget(self, checksums: Collection[str]) -> int:
        """Take out what was answered about these contents, by any model; returns how many answers."""
        return sum(self.shelf(size.step, size.fingerprint).forget(set(checksums)) for size in self.sizes())


@dataclass
class Shelf:
    """Which batch holds what is kept in mind; what it says is read when it is asked for, since vectors are large."""

    memo: Memo
    place: str
    fresh: bool = False
    _loose: dict[str, frozenset[str]] = field(default_factory=dict)
    _packed: dict[str, "_Packed"] = field(default_factory=dict)
    _where: dict[str, str] = field(default_factory=dict)  # the loose batch that holds a checksum

    def find(self, checksums: Collection[str]) -> dict[str, Result]:
        self._look()
        found: dict[str, Result] = {}
        for name in {self._where[checksum] for checksum in checksums if checksum in self._where}:
            answers = self._answers(name)
            if answers is None:  # packed by somebody else meanwhile
                self.fresh = False
                return self.find(checksums)
            found.update((checksum, answers[checksum]) for checksum in checksums if checksum in answers)
        for packed in self._packed.values():
            found.update(packed.find([checksum for checksum in checksums if checksum not in found]))
        return found

    def put(self, results: Mapping[str, Result]) -> None:
        """One object for all of them, whole or not at all."""
        lines = (json.dumps({"checksum": key, "result": value}, ensure_ascii=False) for key, value in results.items())
        name = f"{self.place}/{uuid.uuid4().hex}{LOOSE}"
        _write(self.memo, name, "\n".join(lines).encode())
        self._note(name, results)

    def pack(self, least: int = 2) -> int:
        """All in one sorted file; only then are the parts removed, so a kill leaves an answer twice, never none."""
        self._look()
        old = [*self._loose, *self._packed]
        if len(self._loose) < least:
            return 0
        self._replace(old, self._all())
        return len(old) - 1

    def forget(self, checksums: set[str]) -> int:
        self._look()
        everything = self._all()
        kept = {checksum: result for checksum, result in everything.items() if checksum not in checksums}
        if len(kept) < len(everything):
            self._replace([*self._loose, *self._packed], kept)
        return len(everything) - len(kept)

    def _all(self) -> dict[str, Result]:
        everything: dict[str, Result] = {}
        for packed in self._packed.values():
            everything.update(packed.all())
        for name in self._loose:
            everything.update(self._answers(name) or {})
        return everything

    def _replace(self, old: Sequence[str], kept: Mapping[str, Result]) -> None:
        if kept:
            _write(self.memo, f"{self.place}/{uuid.uuid4().hex}{PACKED}", _packed_bytes(kept))
        with translated():
            for name in old:
                self.memo.store.delete(name)
        self._loose.clear()
        self._packed.clear()
        self._where.clear()
        self.fresh = False

    def _look(self) -> None:
        while not self.fresh:
            with translated():
                names = {str(item["path"]) for page in self.memo.store.list(f"{self.place}/") for item in page}
            for gone in (self._loose.keys() | self._packed.keys()) - names:
                for checksum in self._loose.pop(gone, ()):
                    self._where.pop(checksum, None)
                self._packed.pop(gone, None)
            # What vanished in between was packed by somebody else, and the packed file is there by now: look again.
            self.fresh = all(self._open(name) for name in names - self._loose.keys() - self._packed.keys())

    def _open(self, name: str) -> bool:
        if name.endswith(LOOSE):
            answers = self._answers(name)
            if answers is not None:
                self._note(name, answers)
            return answers is not None
        if name.endswith(PACKED):
            data = self._read(name)
            if data is None:
                return False
            self._packed[name] = _Packed(data)
        return True

    def _note(self, name: str, checksums: Collection[str]) -> None:
        self._loose[name] = frozenset(checksums)
        self._where.update(dict.fromkeys(checksums, name))

    def _answers(self, name: str) -> dict[str, Result] | None:
        """Of a loose batch; None where it is gone."""
        data = self._read(name)
        if data is None:
            return None
        lines = [json.loads(line) for line in data.split(b"\n")]
        return {line["checksum"]: line["result"] for line in lines}

    def _read(self, name: str) -> bytes | None:
        try:
            with translated():
                return bytes(self.memo.store.get(name).bytes())
        except FileNotFoundError:
            return None


class _Packed:
    """A packed file, compressed as it is. The heads of its checksums are held, so that what it does not know costs
    nothing and of the rest only the row groups that hold it are decoded."""

    def __init__(self, data: bytes) -> None:
        import numpy as np
        import pyarrow.parquet as pq

        self._file: pq.ParquetFile = pq.ParquetFile(io.BytesIO(data))
        checksums = self._file.read(columns=["checksum"])["checksum"].to_pylist()
        self._heads = np.array([_head(checksum) for checksum in checksums], dtype=np.uint64)

    def find(self, checksums: Collection[str]) -> dict[str, Result]:
        groups = {place // _ROWS_IN_GROUP for checksum in checksums if (place := self._place(_head(checksum))) >= 0}
        if not groups:
            return {}
        wanted = set(checksums)
        rows = _pairs(self._file.read_row_groups(sorted(groups)))
        return {checksum: json.loads(result) for checksum, result in rows if checksum in wanted}

    def _place(self, head: int) -> int:
        """Where in the file it is, or -1."""
        place = int(self._heads.searchsorted(head))
        return place if place < len(self._heads) and int(self._heads[place]) == head else -1

    def all(self) -> dict[str, Result]:
        return {checksum: json.loads(result) for checksum, result in _pairs(self._file.read())}


def _head(checksum: str) -> int:
    """As good as the whole for telling what is there; the rest is compared when it is read."""
    return int(checksum[:16], 16)


def _pairs(table: "pa.Table") -> Iterator[tuple[str, str]]:
    return zip(table["checksum"].to_pylist(), table["result"].to_pylist(), strict=True)


def _packed_bytes(results: Mapping[str, Result]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    order = sorted(results)
    texts = [json.dumps(results[checksum], ensure_ascii=False) for checksum in order]
    buffer = io.BytesIO()
    table = pa.table({"checksum": order, "result": texts})
    pq.write_table(table, buffer, row_group_size=_ROWS_IN_GROUP, compression="zstd")
    return buffer.getvalue()


def _write(memo: Memo, name: str, data: bytes) -> None:
    if memo.root is None:
        with translated():
            memo.store.put(name, data)
        return
    try:  # obstore's local store would leave the data to the system's cache
        path = memo.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise Unavailable(f"The memo cannot be written: {error}") from error


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, OSError) as error:
        said = str(error).partition("\n")[0][:200]
        raise Unavailable(f"The memo does not answer: {said}. Try again.") from error
