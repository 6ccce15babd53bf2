"""One file of the memo: answers in the order of their keys, and an index that tells where each one stands.

    records   key (32 bytes), day, checksum, answer; one after the other
    summary   JSON: how many free answers of which day
    pages     of 1,024 answers: the head of each key (4 bytes), then where each record ends (8 bytes)
    fences    of each page: its first head, and where its first record begins
    tail      where summary and pages begin, and a mark

A key is the SHA-256 of what was asked, so heads are as good as keys for telling what is not there. A file's name tells
its generation, the run of files it belongs to and its part in it, how many answers it has, and the heads of all of them
if they are few, else of the first and the last: whether a file need be opened at all is seen in a listing.
A day is when a free answer was given, in days since 1970; 0 is kept for ever.
"""

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt

from headwater import telemetry
from headwater.errors import DataFault
from headwater.storage.memo.store import StoredFile

PAGE: Final = 1_024
FILE_BYTES: Final = 32 << 20  # built in memory; eight of them at once are copied by a migration
HEADER: Final = struct.Struct("<32sII")
TAIL: Final = struct.Struct("<QQ8s")
FENCE: Final = np.dtype([("head", "<u4"), ("start", "<u8")])
_ENTRY: Final = 12  # bytes of a page for each answer
_MARK: Final = b"HWMEMO1\n"
_NAMED_HEADS: Final = 8  # more would make names too long for some file systems
# A generation is above those of the files that went into it, so that a packed file's name is behind its parts'.
_NAME: Final = re.compile(r"(.*)/g(\d{8})-([0-9a-f]{12})-(\d{5})-([fp])(\d+)-((?:[0-9a-f]{8})+)\.answers")

Record = tuple[bytes, int, bytes]  # key, day, answer
Heads = npt.NDArray[np.uint32]
Bounds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """What a file's name and size tell. `droppable` says that some of its answers are free."""

    name: str
    size: int
    generation: int
    run: str
    part: int
    droppable: bool
    answers: int
    heads: tuple[int, ...]

    @classmethod
    def of(cls, file: StoredFile) -> Self | None:
        """None where the name is not of this kind."""
        found = _NAME.fullmatch(file.name)
        if found is None:
            return None
        heads = tuple(int(found[7][at : at + 8], 16) for at in range(0, len(found[7]), 8))
        numbers = int(found[2]), found[3], int(found[4]), found[5] == "f", int(found[6])
        return cls(file.name, file.size, *numbers, heads)

    @property
    def place(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def pages(self) -> int:
        return -(-self.answers // PAGE)

    @property
    def fences_range(self) -> tuple[int, int]:
        end = self.size - TAIL.size
        return end - FENCE.itemsize * self.pages, end

    def page_range(self, page: int) -> tuple[int, int]:
        begin = self.fences_range[0] - _ENTRY * self.answers
        return begin + _ENTRY * PAGE * page, begin + _ENTRY * min(self.answers, PAGE * (page + 1))

    def may_hold(self, heads: Heads) -> slice:
        """Which of these heads, in their order, this file could have."""
        first, last = self.heads[0], self.heads[-1]
        begin, end = int(heads.searchsorted(first)), int(heads.searchsorted(last, "right"))
        if begin < end and self.answers == len(self.heads) and not np.isin(heads[begin:end], self.heads).any():
            return slice(0, 0)
        return slice(begin, end)


class FileBuilder:
    """Takes records in the order of their keys, and makes a file of them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._keys: list[bytes] = []
        self._ends: list[int] = []
        self._free: Counter[int] = Counter()
        self.size = 0

    def add(self, key: bytes, day: int, answer: bytes) -> None:
        header = HEADER.pack(key, day, crc32(answer, day))
        self._parts += (header, answer)
        self.size += len(header) + len(answer)
        self._keys.append(key)
        self._ends.append(self.size)
        if day:
            self._free[day] += 1

    def finish(self, place: str, generation: int, run: str, part: int) -> tuple[AnswerFile, bytes]:
        heads, ends = heads_of(self._keys), np.array(self._ends, dtype="<u8")
        summary = json.dumps({"free": {str(day): count for day, count in sorted(self._free.items())}}).encode()
        starts = range(0, len(heads), PAGE)
        pages = [heads[at : at + PAGE].astype("<u4").tobytes() + ends[at : at + PAGE].tobytes() for at in starts]
        fences = np.array([(heads[at], self._ends[at - 1] if at else 0) for at in starts], dtype=FENCE)
        tail = TAIL.pack(self.size, self.size + len(summary), _MARK)
        data = b"".join([*self._parts, summary, *pages, fences.tobytes(), tail])
        named = [int(head) for head in (heads if len(heads) <= _NAMED_HEADS else heads[[0, -1]])]
        letter = "f" if self._free else "p"
        summary_name = f"{letter}{len(heads)}-{''.join(f'{head:08x}' for head in named)}"
        name = f"{place}/g{generation:08}-{run}-{part:05}-{summary_name}.answers"
        file = AnswerFile(name, len(data), generation, run, part, letter == "f", len(heads), tuple(named))
        return file, data


def head_of(key: bytes) -> int:
    return int.from_bytes(key[:4])


def heads_of(keys: list[bytes]) -> Heads:
    return np.array([head_of(key) for key in keys], dtype=np.uint32)


def read_page(file: AnswerFile, data: bytes, start: int) -> tuple[Heads, Bounds]:
    """Heads, and the bounds between records: one more than there are heads."""
    count = len(data) // _ENTRY
    heads = np.frombuffer(data, dtype="<u4", count=count)
    ends = np.frombuffer(data, dtype="<i8", count=count, offset=4 * count)
    bounds: Bounds = np.concatenate((np.array([start], dtype=np.int64), ends))
    if (np.diff(bounds) < HEADER.size).any():
        raise DataFault("CORRUPT", f"The memo's {file.name} is damaged. Delete it: what it held is asked again.")
    return heads, bounds


def read_record(data: bytes) -> Record | None:
    """None where its bytes are not those that were written: as good as no answer."""
    key, day, checksum = HEADER.unpack_from(data)
    answer = data[HEADER.size :]
    return (key, day, answer) if crc32(answer, day) == checksum else None


def split_records(data: bytes, bounds: Bounds) -> Iterator[Record]:
    """`bounds` are those of the records in `data`, which begins at the first."""
    for begin, end in zip((bounds[:-1] - bounds[0]).tolist(), (bounds[1:] - bounds[0]).tolist(), strict=True):
        if (record := read_record(data[begin:end])) is not None:
            yield record
        else:
            telemetry.note("memo.damaged", level="warning", bytes=end - begin)


def records_of(file: AnswerFile, data: bytes) -> Iterator[Record]:
    """Of a file that was read whole."""
    start = 0
    for page in range(file.pages):
        _, bounds = read_page(file, data[slice(*file.page_range(page))], start)
        yield from split_records(data[start : bounds[-1]], bounds)
        start = int(bounds[-1])
