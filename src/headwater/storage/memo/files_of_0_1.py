"""The memo's files of 0.1: loose batches of JSON lines, and Parquet files that were packed of them.

They are read where they are found, and brought over by the next packing. What an answer cost then is no proof that it
was free, so these are kept for ever. Vectors were base64 in JSON.
"""

import base64
import io
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from headwater.storage.memo.answer import encode_answer
from headwater.storage.memo.file import Heads, Record, heads_of
from headwater.storage.memo.index import PageCache
from headwater.storage.memo.store import MemoStore, StoredFile

_LOOSE, _PACKED = ".jsonl", ".parquet"
_VECTOR: Final = "vector"


@dataclass(frozen=True, slots=True)
class OldFile:
    name: str
    size: int

    @classmethod
    def of(cls, file: StoredFile) -> Self | None:
        return cls(file.name, file.size) if file.name.endswith((_LOOSE, _PACKED)) else None


def find_in_old(
    store: MemoStore, cache: PageCache, file: OldFile, keys: Collection[bytes], heads: Heads
) -> list[Record]:
    """What a file does not have is told by the heads of its keys, which are held once it was read."""
    held = cache.get(file.name, 0)
    if held is None:
        held = heads_of(_keys(store, file)).astype("<u4").tobytes()
        cache.put(file.name, 0, held)
    if not np.isin(heads, np.frombuffer(held, dtype="<u4")).any():
        return []
    if file.name.endswith(_LOOSE):
        return [record for record in _loose_records(store, file) if record[0] in keys]
    parquet, texts = _open_packed(store, file), {key.hex() for key in keys}
    groups = [group for group in range(parquet.num_row_groups) if _may_hold(parquet, group, texts)]
    return [record for group in groups for record in _group_records(parquet, group) if record[0] in keys]


def old_records(store: MemoStore, file: OldFile) -> Iterator[Record]:
    """All of them, in the order of their keys, a row group at a time."""
    if file.name.endswith(_LOOSE):
        yield from sorted(_loose_records(store, file))
        return
    parquet = _open_packed(store, file)
    for group in range(parquet.num_row_groups):
        yield from _group_records(parquet, group)


def _keys(store: MemoStore, file: OldFile) -> list[bytes]:
    if file.name.endswith(_LOOSE):
        return [record[0] for record in _loose_records(store, file)]
    checksums = _open_packed(store, file).read(columns=["checksum"])["checksum"]
    return [bytes.fromhex(checksum) for checksum in checksums.to_pylist()]


def _loose_records(store: MemoStore, file: OldFile) -> list[Record]:
    lines = [json.loads(line) for line in store.read(file.name).split(b"\n")]
    return [_record(line["checksum"], line["result"]) for line in lines]


def _open_packed(store: MemoStore, file: OldFile) -> Any:
    import pyarrow.parquet as pq

    # Buffered, because a footer is read in many small steps.
    return pq.ParquetFile(io.BufferedReader(_RangeFile(store, file), 1 << 16))


def _may_hold(parquet: Any, group: int, texts: Collection[str]) -> bool:
    """By the bounds of its checksums, which are in order."""
    bounds = parquet.metadata.row_group(group).column(0).statistics
    return bounds is None or any(bounds.min <= text <= bounds.max for text in texts)


def _group_records(parquet: Any, group: int) -> list[Record]:
    table = parquet.read_row_group(group, columns=["checksum", "result"])
    pairs = zip(table["checksum"].to_pylist(), table["result"].to_pylist(), strict=True)
    return [_record(checksum, json.loads(result)) for checksum, result in pairs]


def _record(checksum: str, result: dict[str, Any]) -> Record:
    vector = result.get(_VECTOR)
    if isinstance(vector, str):
        result = {**result, _VECTOR: np.frombuffer(base64.b64decode(vector), dtype="<f4")}
    return bytes.fromhex(checksum), 0, encode_answer(result)


class _RangeFile(io.RawIOBase):
    """A stored file as Parquet's reader wants it."""

    def __init__(self, store: MemoStore, file: OldFile) -> None:
        self._store = store
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._file.size)
        if end <= self._at:
            return 0
        (data,) = self._store.read_ranges(self._file.name, [(self._at, end)], 0)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
