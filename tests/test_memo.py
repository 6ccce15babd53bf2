"""The memo in a directory, and what only a directory can show."""

import fcntl
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from behaviour_memo import *  # noqa: F403
from behaviour_memo import NOW, checksums, packing, put_as_before, shelf, stored
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from headwater.errors import DataFault
from headwater.settings import Settings, resolve
from headwater.storage.memo.memo import open_memo


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve(tmp_path, {}, {}, {})


def test_a_file_that_a_killed_writer_left_half_written_is_not_seen(settings: Settings, tmp_path: Path) -> None:
    (key,) = checksums(1)
    shelf(settings).put({key: {"text": "whole"}})
    (written,) = (tmp_path / "memo").rglob("*.answers")
    written.with_name(f"{written.name}#4711").write_bytes(b'{"checksum": "')
    assert shelf(settings).find([key]) == {key: {"text": "whole"}}
    assert [size.objects for size in open_memo(settings).sizes()] == [1]


def test_a_new_shelf_lasts_with_all_directories_above_it(settings: Settings, tmp_path: Path, synced: set[str]) -> None:
    """Else a power cut takes the directory, and the answer with it that was synced."""
    (key,) = checksums(1)
    shelf(settings).put({key: {"text": "paid"}})
    (written,) = (tmp_path / "memo").rglob("*.answers")
    above = written.relative_to(tmp_path).parents
    assert {str(tmp_path / each) for each in above} <= synced


def test_what_killed_writers_left_is_removed_when_it_is_old(settings: Settings, tmp_path: Path) -> None:
    (key,) = checksums(1)
    shelf(settings).put({key: {"text": "whole"}})
    (written,) = (tmp_path / "memo").rglob("*.answers")
    left, young = (written.with_name(f"{written.name}#{number}") for number in (4711, 4712))
    for path, age in ((left, 2), (young, 0)):
        path.write_bytes(b"half")
        os.utime(path, times=((NOW - timedelta(hours=age)).timestamp(),) * 2)
    shelf(settings).pack()
    assert not left.exists() and young.exists()


def test_a_damaged_index_is_named_with_the_way_out(settings: Settings) -> None:
    keys = checksums(20)
    shelf(settings).put({key: {"text": "x"} for key in keys})
    memo = open_memo(settings)
    ((name, data),) = stored(memo).items()
    memo.store.put(name, data[:-200] + bytes(164) + data[-36:])
    for work in (lambda: shelf(settings).find(keys), lambda: shelf(settings).forget(keys[:1])):
        with pytest.raises(DataFault, match=f"{name} is damaged. Delete it"):
            work()


def test_a_look_and_a_plan_write_nothing(settings: Settings, tmp_path: Path) -> None:
    (key,) = checksums(1)
    put_as_before(open_memo(settings), f"transcribe/feed0123feed0123/{'a' * 32}.jsonl", {key: {"text": "x"}})
    before = sorted(path for path in tmp_path.rglob("*"))
    assert shelf(settings).find([key]) and shelf(settings).known([key]) and shelf(settings).plan().objects
    assert sorted(path for path in tmp_path.rglob("*")) == before


_BOUNDED = """
import resource, sys
from pathlib import Path
import numpy as np
from headwater.settings import resolve
from headwater.storage.memo.memo import open_memo
memo = open_memo(resolve(Path(sys.argv[1]), {}, {}, {}))
shelf, rng = memo.shelf("embed", "feed"), np.random.default_rng(7)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
if sys.argv[2] == "look":
    keys = [bytes(row).hex() for row in np.random.default_rng(3).integers(0, 256, (60_000, 32), dtype=np.uint8)]
    before = peak()
    assert sum(len(shelf.find(keys[start : start + 500])) for start in range(0, 60_000, 6_000)) == 5_000
else:
    before = peak()
    shelf.pack()
print(peak() - before)
"""


def test_packing_and_looking_take_the_same_memory_however_many_answers_there_are(
    settings: Settings, tmp_path: Path
) -> None:
    keys = [bytes(row).hex() for row in np.random.default_rng(3).integers(0, 256, (60_000, 32), dtype=np.uint8)]
    vectors = np.random.default_rng(4).standard_normal((1_000, 384)).astype(np.float32)
    writer = open_memo(settings).shelf("embed", "feed")
    for start in range(0, 60_000, 1_000):
        writer.put({key: {"vector": vector} for key, vector in zip(keys[start : start + 1_000], vectors, strict=True)})
    grown = {}
    for work in ("pack", "look"):
        done = subprocess.run([sys.executable, "-c", _BOUNDED, tmp_path, work], check=True, capture_output=True)
        grown[work] = int(done.stdout)
    # 60,000 such vectors are 92 MB; to pack them took a gigabyte, and to look for one 200 MB.
    assert grown["pack"] < 180 and grown["look"] < 60, grown


def test_nobody_lists_while_a_packing_deletes(settings: Settings, tmp_path: Path) -> None:
    """In a directory, where names come in no order, half of a listing may be older than the other half."""
    keys = checksums(3)
    for key in keys:
        shelf(settings).put({key: {"text": "x"}})
    with packing(settings) as first:
        assert first.wait() == 0
    shelf(settings).put({keys[0]: {"text": "x"}})
    (lock,) = (tmp_path / "memo").rglob("lock#0")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with packing(settings) as waiting:
            try:
                wait_until(lambda: len(stored(open_memo(settings))) == 3)  # the packed file is there
                assert shelf(settings).find(keys).keys() == set(keys)
                assert waiting.poll() is None and len(stored(open_memo(settings))) == 3
            finally:
                fcntl.flock(held, fcntl.LOCK_UN)
            assert waiting.wait() == 0
    assert len(stored(open_memo(settings))) == 1


_SOME = st.sets(st.integers(0, 39), min_size=1, max_size=12)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _SOME, st.booleans(), st.integers(1, 9)),
        st.tuples(st.just("pack"), st.integers(0, 10)),
        st.tuples(st.just("forget"), _SOME),
    ),
    max_size=12,
)


@given(steps=_STEPS)
@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_whatever_is_put_packed_dropped_and_forgotten_the_rest_is_found(
    tiny_files: None, tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Beside a plain dictionary: key → the day on which it may go, 0 for never."""
    settings = resolve(tmp_path_factory.mktemp("memo"), {}, {}, {})
    # Every second key begins like the one before, so that their heads tell nothing.
    keys = [f"{checksum[:7]}0{number:056x}" for checksum in checksums(20) for number in range(2)]
    model: dict[int, int] = {}
    for what, *told in steps:
        if what == "put":
            some, paid, day = told
            shelf(settings, now=datetime.fromtimestamp(86_400 * day, UTC)).put(
                {keys[n]: {"n": n} for n in some}, paid=paid
            )
            model |= {n: 0 if paid or model.get(n) == 0 else max(day, model.get(n, 0)) for n in some}
        elif what == "forget":
            assert shelf(settings).forget([keys[n] for n in told[0]]) >= len(model.keys() & told[0])
            model = {n: day for n, day in model.items() if n not in told[0]}
        else:
            before = set(shelf(settings).known(keys))
            gone = {n for n, day in model.items() if 0 < day < told[0]}
            shelf(settings).pack(drop_before=told[0])
            lost = before - shelf(settings).known(keys)
            # What is less than half of a large file stays until it is more.
            assert lost <= {keys[n] for n in gone}
            model = {n: day for n, day in model.items() if keys[n] not in lost}
        assert shelf(settings).find(keys) == {keys[n]: {"n": n} for n in model}
