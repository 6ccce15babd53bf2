"""The corpus as it arrives: a base, 1 % more, and for the stream a few to warm up and 1 % later.

`inbox` is what the peers look at; it grows by hard links, so every file is there once. Headwater is given the drops.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import corpus


@dataclass(frozen=True, slots=True)
class Size:
    calls: int
    pictures: int
    lines: int

    def part(self, share: float) -> "Size":
        return Size(*(max(1, round(count * share)) for count in (self.calls, self.pictures, self.lines)))

    @property
    def rows(self) -> int:
        return self.calls + self.pictures + self.lines


@dataclass(frozen=True, slots=True)
class Drops:
    base: Path
    more: Path
    stream: Path
    inbox: Path

    def deliver(self, drop: Path) -> None:
        """Into the inbox."""
        for file in drop.glob("*/*"):
            target = self.inbox / file.relative_to(drop)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, target)


def make_drops(directory: Path, size: Size) -> Drops:
    shutil.rmtree(directory, ignore_errors=True)
    more = size.part(0.01)
    _drop(directory / "base", size, seed=7, first=0)
    _drop(directory / "more", more, seed=8, first=size.lines)
    _drop(directory / "stream" / "warm", Size(2, 2, 20), seed=9, first=2 * size.lines)
    _drop(directory / "stream" / "later", more, seed=10, first=3 * size.lines)
    return Drops(directory / "base", directory / "more", directory / "stream", directory / "inbox")


def _drop(target: Path, size: Size, *, seed: int, first: int) -> None:
    """Names and numbers of their own, so that nothing arrives twice."""
    made = corpus.make_corpus(size.calls, size.pictures, size.lines, seed)
    for kind in ("calls", "pictures"):
        (target / kind).mkdir(parents=True)
        for file in (made / kind).iterdir():
            os.link(file, target / kind / f"{target.name}-{file.name}")
    lines = (made / "chat.txt").read_text().splitlines()
    renumbered = [f"{first + number} {line.split(maxsplit=1)[1]}\n" for number, line in enumerate(lines)]
    (target / "chat").mkdir()
    (target / "chat" / f"{target.name}.txt").write_text("".join(renumbered))
