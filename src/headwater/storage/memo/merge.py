"""Merging files of the memo: streams of records in the order of their keys become one run of files.

Memory holds some of each stream and the one file that is being built, however much is merged. A file is written before
its parts are deleted, so a kill leaves answers twice, never none; twice is once when they are merged again. Of two that
merge the same files at once one finds them gone and stops; what it has written is twice, too.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from headwater import faults
from headwater.storage.memo.file import FILE_BYTES, AnswerFile, FileBuilder, Record, head_of, records_of, split_records
from headwater.storage.memo.files_of_0_1 import OldFile, old_records
from headwater.storage.memo.index import Index
from headwater.storage.memo.store import MemoStore

File = AnswerFile | OldFile
Drop = Callable[[bytes, int], bool]  # by key and day
SMALL_BYTES: Final = 1 << 20  # read whole; of a larger file about so much is in memory at a time
_LAST: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Merged:
    files: list[AnswerFile]
    answers: int
    dropped: int


def keep_all(key: bytes, day: int) -> bool:
    return False


class Merger:
    """Of one shelf's files. `run` names the files that it writes, `part` is the number of the first."""

    def __init__(self, store: MemoStore, index: Index, run: str, part: int = 0) -> None:
        self._store = store
        self._index = index
        self._run = run
        self._part = part

    def merge(self, place: str, inputs: Sequence[File], drop: Drop = keep_all) -> Merged:
        """FileNotFoundError where somebody else has merged one of these meanwhile."""
        generation = 1 + max((file.generation for file in inputs if isinstance(file, AnswerFile)), default=0)
        left, files, seen, kept = list(inputs), list[AnswerFile](), 0, 0
        builder = FileBuilder()
        for key, day, answer in _once(heapq.merge(*self._streams(inputs))):
            seen += 1
            if drop(key, day):
                continue
            kept += 1
            builder.add(key, day, answer)
            if builder.size >= FILE_BYTES:
                files.append(self._write(builder, place, generation, len(files)))
                left = self._delete(place, left, below=head_of(key))
                builder = FileBuilder()
        if builder.size:
            files.append(self._write(builder, place, generation, len(files)))
        self._delete(place, left, below=_LAST + 1)
        return Merged(files, kept, seen - kept)

    def _write(self, builder: FileBuilder, place: str, generation: int, number: int) -> AnswerFile:
        file, data = builder.finish(place, generation, self._run, self._part + number)
        self._store.write(file.name, data)
        faults.point("memo.merged")
        return file

    def _delete(self, place: str, files: Sequence[File], below: int) -> list[File]:
        """Those that end below a head are wholly in what was written; the others are left."""
        done = [file for file in files if (file.heads[-1] if isinstance(file, AnswerFile) else _LAST) < below]
        if done:
            self._store.delete(place, [file.name for file in done])
        return [file for file in files if file not in done]

    def _streams(self, inputs: Sequence[File]) -> list[Iterable[Record]]:
        """Each in the order of its keys."""
        old = [file for file in inputs if isinstance(file, OldFile)]
        small = [file for file in inputs if isinstance(file, AnswerFile) and file.size <= SMALL_BYTES]
        large = [file for file in inputs if isinstance(file, AnswerFile) and file.size > SMALL_BYTES]
        chains = [chain.from_iterable(map(self._records, files)) for files in _chained(large)]
        return [*(old_records(self._store, file) for file in old), self._small_records(small), *chains]

    def _small_records(self, files: Sequence[AnswerFile]) -> list[Record]:
        read = self._store.read_many([file.name for file in files])
        return sorted(record for file, data in zip(files, read, strict=True) for record in records_of(file, data))

    def _records(self, file: AnswerFile) -> Iterator[Record]:
        for bounds in self._index.bounds(file):
            begin = 0
            while begin < len(bounds) - 1:
                end = max(begin + 1, int(bounds.searchsorted(bounds[begin] + SMALL_BYTES, "right")) - 1)
                (data,) = self._store.read_ranges(file.name, [(int(bounds[begin]), int(bounds[end]))], 0)
                yield from split_records(data, bounds[begin : end + 1])
                begin = end


def _chained(files: Sequence[AnswerFile]) -> list[list[AnswerFile]]:
    """Files that follow one another, as those of a run do, are one stream: as few as there can be."""
    chains: list[list[AnswerFile]] = []
    for file in sorted(files, key=lambda file: file.heads):
        found = next((files for files in chains if files[-1].heads[-1] < file.heads[0]), None)
        if found is None:
            chains.append([file])
        else:
            found.append(file)
    return chains


def _once(records: Iterable[Record]) -> Iterator[Record]:
    """Of equal keys the one that is kept longest: for ever (day 0), else the latest."""
    held: Record | None = None
    for record in records:
        if held is not None and record[0] != held[0]:
            yield held
            held = None
        if held is None or (held[1] and (not record[1] or record[1] > held[1])):
            held = record
    if held is not None:
        yield held
