"""Who goes over every key of a lake, or of two stores, holds none of them in memory."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lakes import parts_of, small_lake
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.domain.tables import EVENTS
from headwater.errors import Conflict
from headwater.lake import Lake
from headwater.storage.io.key_file import KeyFile
from headwater.storage.raw.directory_store import DirectoryRawStore
from headwater.upkeep.migration.raw_objects import copy_late, copy_raw
from headwater.upkeep.rescan import plan_rescan

EVENTS_MANY = 100_000
LATER = datetime.now(UTC) + timedelta(hours=1)
ORPHAN = "audio/acme/2026-03-01/orphan.wav"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Its tables know far more objects than its raw store has."""
    with lakes.open(small_lake(tmp_path_factory.mktemp("large") / "lake")) as opened:
        names = (f"audio/acme/2026-03-01/{'long' * 20}-{number}.wav" for number in range(EVENTS_MANY))
        given = [{"event_id": name, "object_id": name} for name in names]
        append(parts_of(opened).catalog.load_table(EVENTS.name), rows(EVENTS, given, 100))
        parts_of(opened).raw_store.put_bytes(ORPHAN, b"RIFF", "audio/wav")
        yield opened


@contextmanager
def little_memory(most_mb: int = 16) -> Iterator[None]:
    """All names of the large lake take twice that."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most_mb << 20
    finally:
        tracemalloc.stop()


def test_a_rescan_finds_its_orphan_among_many_in_little_memory(large: Lake) -> None:
    parts = parts_of(large)
    with little_memory():
        plan = plan_rescan(parts.raw_store, parts.reader, parts.log, now=LATER)
    assert [found.path for found in plan.orphans] == [ORPHAN]


def test_a_migration_copies_raw_objects_in_little_memory_and_tells_which_are_damaged(
    large: Lake, tmp_path: Path
) -> None:
    target, told = SimpleNamespace(raw_store=DirectoryRawStore(tmp_path / "raw")), list[str]()
    with little_memory():
        copy_raw(parts_of(large), target, told.append)  # type: ignore[arg-type]
    assert {found.path for found in target.raw_store.list()} == {
        found.path for found in parts_of(large).raw_store.list()
    }
    assert all("does not match its checksum" in line and ORPHAN not in line for line in told)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A lake, and the place that its objects were copied to."""
    with lakes.open(small_lake(tmp_path / "lake")) as opened:
        source, target = parts_of(opened), SimpleNamespace(raw_store=DirectoryRawStore(tmp_path / "there"))
        copy_raw(source, target, lambda _: None)  # type: ignore[arg-type]
        yield source, target


def test_what_came_meanwhile_is_copied_after_them(two: tuple[Any, Any]) -> None:
    source, target = two
    late = [f"audio/acme/2026-03-01/late-{number}.wav" for number in range(3)]
    for key in late:
        source.raw_store.put_bytes(key, b"RIFF", "audio/wav")
    told = list[str]()
    copy_late(source, target, told.append)
    assert told == ["3 raw objects that came meanwhile are copied"]
    assert [found.path for found in target.raw_store.list()] == [found.path for found in source.raw_store.list()]
    copy_late(source, target, told.append)
    assert len(told) == 1, "twice is once"


@pytest.mark.parametrize("late", [(), ("audio/acme/2026-03-01/late.wav",)])
def test_a_target_with_objects_of_others_is_refused_before_anything_is_copied(
    two: tuple[Any, Any], late: tuple[str, ...]
) -> None:
    source, target = two
    for key in late:
        source.raw_store.put_bytes(key, b"RIFF", "audio/wav")
    for key, here in (("audio/b/2026-03-01/theirs.wav", None), ("audio/a/2026-03-01/other.wav", b"short")):
        target.raw_store.put_bytes(key, b"longer", "audio/wav")
        if here:
            source.raw_store.put_bytes(key, here, "audio/wav")
    with pytest.raises(Conflict, match=r"2 objects that are not the lake's, such as audio/a/2026-03-01/other\.wav"):
        copy_late(source, target, lambda _: None)
    assert not any(target.raw_store.head(key) for key in late)


def test_a_key_file_keeps_any_name_once_and_in_order() -> None:
    odd = os.fsdecode(b"audio/\xff.wav")
    with KeyFile() as keys:
        keys.add([("b", "1"), (odd, "2"), ("a", "3"), ("b", "4"), ("ä\x00", "5")])
        assert (list(keys), len(keys)) == (["a", "audio/\udcff.wav", "b", "ä\x00"], 4)
        assert (keys.get("b"), keys.get(odd), keys.get("c")) == ("4", "2", None)
        assert odd in keys and "c" not in keys
        keys.discard("b")
        keys.discard("c")
        assert list(keys) == ["a", odd, "ä\x00"]


_MANY_KEYS = """
import resource
from headwater.storage.io.key_file import KeyFile

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

with KeyFile() as keys:
    keys.add((f"{number:020}", "") for number in range(1000))
    before = peak()
    keys.add((f"{number * 7919 % 1_000_003:0200}", "size") for number in range(400_000))
    assert len(keys) == 401_000 and f"{7919:0200}" in keys
    print(peak() - before)
"""


def test_a_key_file_goes_to_the_disk_and_leaves_nothing_there(tmp_path: Path) -> None:
    environment = {**os.environ, "SQLITE_TMPDIR": str(tmp_path)}
    line = [sys.executable, "-c", _MANY_KEYS]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60, "they are 90 MB"
    assert list(tmp_path.iterdir()) == []
