#!/usr/bin/env python3
"""What an environment weighs, package by package, as the table in docs/install.md tells it.

    python scripts/install_size.py            # of the environment that this Python is of
    python scripts/install_size.py --write    # and into the table, where a fresh environment is to speak

A package is what `pip install headwater` brings, extras left out. Its size is that of its files without bytecode, which
is there or not as whoever installed it decided.
"""

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE: Final = Path(__file__).parent.parent / "docs" / "install.md"
REST: Final = "all else"
MB: Final = 1_000_000
_ROW: Final = re.compile(r"^\| ([a-z][^|]*?) \| (\d+) \|", re.MULTILINE)


def packages(root: str = "headwater") -> dict[str, metadata.Distribution]:
    """All that is asked for, by whatever was asked for."""
    found: dict[str, metadata.Distribution] = {}
    waiting, seen = [(root, "")], set[tuple[str, str]]()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # taken out by hand, as the second OpenCV is
        for needed in map(Requirement, found[name].requires or []):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(needed.name), wanted) for wanted in ("", *needed.extras)]
    return found


def sizes() -> dict[str, float]:
    """In MB; a file that two packages bring is counted once."""
    seen: set[Path] = set()
    return {name: sum(_new(known, seen)) / MB for name, known in packages().items()}


def _new(known: metadata.Distribution, seen: set[Path]) -> Iterator[int]:
    for file in known.files or []:
        path = Path(str(known.locate_file(file)))
        if path not in seen and path.suffix != ".pyc" and path.is_file():
            seen.add(path)
            yield path.stat().st_size


def told() -> dict[str, int]:
    """The table's rows: the packages of each, by commas, and their MB."""
    return {found[1]: int(found[2]) for found in _ROW.finditer(PAGE.read_text(encoding="utf-8"))}


def measured(rows: list[str]) -> dict[str, float]:
    """The same rows in this environment; what none of them names is in the last."""
    left = sizes()
    found = {
        row: sum(left.pop(canonicalize_name(name), 0.0) for name in row.split(", ")) for row in rows if row != REST
    }
    return {**found, REST: sum(left.values())}


def main() -> None:
    found = measured(list(told()))
    for row, size in found.items():
        print(f"{size:7.0f}  {row}")
    print(f"{sum(found.values()):7.0f}  in all, without bytecode")
    if "--write" in sys.argv:
        page = _ROW.sub(lambda row: f"| {row[1]} | {found[row[1]]:.0f} |", PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
