"""A lake that may only be read, from somebody else's directory or a mount that takes no writes: it is read."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from lakes import CALL, small_lake

PROGRAM: Final = [sys.executable, "-m", "headwater"]
# Root may write whatever the bits say, unless it goes without that right.
MORTAL: Final = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.getuid() == 0 else []

pytestmark = pytest.mark.skipif(bool(MORTAL) and shutil.which("setpriv") is None, reason="root needs setpriv for it")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Without one bit that would let anybody write."""
    directory = small_lake(tmp_path_factory.mktemp("read-only") / "lake")
    put = [*PROGRAM, "--lake", str(directory), "put", "--text", "hi", "--customer", "a"]
    subprocess.run(put, check=True, capture_output=True)
    found = [directory, *directory.rglob("*")]
    for place in found:
        place.chmod(0o555 if place.is_dir() else 0o444)
    yield directory
    for place in found:
        place.chmod(0o755 if place.is_dir() else 0o644)


def ask(lake: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    line = [*MORTAL, *PROGRAM, "--lake", str(lake), *arguments]
    return subprocess.run(line, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    "line",
    [
        ("search", "refund"), ("status",), ("sql", "SELECT count(*) FROM transcripts"), ("show", "transcripts"),
        ("trace", CALL), ("models",), ("quarantine",),
    ],
    ids=lambda line: line[0],
)  # fmt: skip
def test_a_lake_that_may_only_be_read_is_read(lake: Path, line: tuple[str, ...]) -> None:
    answer = ask(lake, *line)
    assert answer.returncode == 0, answer.stderr


def test_who_would_write_to_it_is_told_that_it_cannot_be_written(lake: Path) -> None:
    put, dismiss = ask(lake, "put", "--text", "hello", "--customer", "acme"), ask(lake, "run", "--once")
    assert put.returncode != 0 and "Permission denied" in put.stdout + put.stderr
    assert dismiss.returncode == 2 and "the lake can be read, and no more" in dismiss.stderr
