"""Packing a shelf: which of its files are merged, so that they stay few and each answer is rewritten seldom.

Files below 16 MB are merged whenever there are two; what is larger waits until eight runs of one size are there, each
size eight times the one before. So an answer is rewritten a few times in a year, and even a shelf of a hundred million
has a few tens of runs. Free answers that are too old leave with what is merged, or when they are half of a file.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.storage.memo.file import FILE_BYTES, AnswerFile
from headwater.storage.memo.files_of_0_1 import OldFile
from headwater.storage.memo.index import Index
from headwater.storage.memo.merge import File

SMALL_RUN: Final = 16 << 20
FAN_IN: Final = 8
RUNS_AT_ONCE: Final = 32  # of each a megabyte is in memory
FILES_AT_ONCE: Final = 2_000  # small ones, which are in memory together


@dataclass(frozen=True, slots=True)
class PackPlan:
    """`merges` are the files that become one run, each; `drop_before` is the day before which free answers go."""

    files: int
    merges: tuple[tuple[File, ...], ...]
    drop_before: int = 0
    drop: int = 0

    @property
    def objects(self) -> int:
        """How many files are rewritten."""
        return sum(map(len, self.merges))

    def drops(self, key: bytes, day: int) -> bool:
        return 0 < day < self.drop_before


def plan_pack(files: Sequence[File], index: Index, drop_before: int = 0) -> PackPlan:
    """Pure: reads the summaries of files that hold free answers, and nothing where none are to go."""
    small, runs = _sorted_out(files)
    merges = list(_small_groups(small))
    merges += _run_groups(runs)
    merged = {file.name for merge in merges for file in merge}
    old = {
        file.name: _older(index.free_days(file), drop_before)
        for file in files
        if drop_before and isinstance(file, AnswerFile)
    }
    # Alone, a file is rewritten for what it loses only when that is half of it.
    halves = [
        file
        for file in files
        if isinstance(file, AnswerFile) and file.name not in merged and 2 * old.get(file.name, 0) >= file.answers
    ]
    merges += [(file,) for file in halves]
    gone = sum(old.get(file.name, 0) for merge in merges for file in merge)
    return PackPlan(len(files), tuple(merges), drop_before, gone)


def _sorted_out(files: Sequence[File]) -> tuple[list[File], list[list[AnswerFile]]]:
    """Small files, and runs of larger ones."""
    runs: defaultdict[str, list[AnswerFile]] = defaultdict(list)
    small: list[File] = [file for file in files if isinstance(file, OldFile)]
    for file in files:
        if isinstance(file, AnswerFile):
            runs[file.run].append(file)
    for run in list(runs.values()):
        if sum(file.size for file in run) < SMALL_RUN:
            small += run
            del runs[run[0].run]
    return small, list(runs.values())


def _small_groups(small: Sequence[File]) -> Iterator[tuple[File, ...]]:
    """As many as fit into memory together. One file is left as it is, unless it is of an older kind."""
    group: list[File] = []
    groups = [group]
    for file in sorted(small, key=lambda file: file.size):
        if group and (len(group) == FILES_AT_ONCE or sum(each.size for each in group) + file.size > FILE_BYTES):
            group = []
            groups.append(group)
        group.append(file)
    for group in groups:
        if len(group) > 1 or any(isinstance(file, OldFile) for file in group):
            yield tuple(group)


def _run_groups(runs: Sequence[list[AnswerFile]]) -> Iterator[tuple[File, ...]]:
    """Runs of about one size, where there are enough of them."""
    by_size: defaultdict[int, list[list[AnswerFile]]] = defaultdict(list)
    for run in runs:
        by_size[_tier(sum(file.size for file in run))].append(run)
    for same in by_size.values():
        for start in range(0, len(same), RUNS_AT_ONCE):
            some = same[start : start + RUNS_AT_ONCE]
            if len(some) >= FAN_IN:
                yield tuple(file for run in some for file in run)


def _tier(size: int) -> int:
    tier = 0
    while size >= SMALL_RUN:
        size, tier = size // FAN_IN, tier + 1
    return tier


def _older(days: dict[int, int], before: int) -> int:
    return sum(count for day, count in days.items() if day < before)
