"""What a memo promises wherever it is: what was put is found, whoever looks, packed or not, until it is forgotten.

The file that imports these tests gives the fixture `settings`: of a lake whose memo is empty.
"""

import base64
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.settings import Settings
from headwater.storage.memo import merge as memo_merge
from headwater.storage.memo import pack as memo_pack
from headwater.storage.memo import shelf as memo_shelf
from headwater.storage.memo.memo import Memo, open_memo
from headwater.storage.memo.shelf import Shelf

PRINT = "feed0123feed0123"
PLACE = f"transcribe/{PRINT}"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = int(NOW.timestamp()) // 86_400


def shelf(settings: Settings, step: str = "transcribe", now: datetime = NOW) -> Shelf:
    """As another worker sees it: nothing is held from before."""
    return open_memo(settings, lambda: now).shelf(step, PRINT)


def checksums(count: int) -> list[str]:
    return [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]


def stored(memo: Memo) -> dict[str, bytes]:
    names = [str(item["path"]) for page in memo.store.list() for item in page]
    return {name: bytes(memo.store.get(name).bytes()) for name in names}


@pytest.fixture
def tiny_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of a few answers, so that a thousand of them make runs of every size."""
    monkeypatch.setattr(memo_merge, "FILE_BYTES", 2_000)
    monkeypatch.setattr(memo_pack, "FILE_BYTES", 2_000)
    monkeypatch.setattr(memo_pack, "SMALL_RUN", 1_000)
    monkeypatch.setattr(memo_merge, "SMALL_BYTES", 500)
    monkeypatch.setattr(memo_shelf, "SMALL_BYTES", 500)
    yield


def test_what_was_put_is_found_by_everybody_and_nothing_else_is(settings: Settings) -> None:
    one, two, other = checksums(3)
    assert shelf(settings).find([one]) == {}
    answers = {one: {"text": "héllo\u2028\nthere"}, two: {"text": None}}
    shelf(settings).put(answers)
    assert shelf(settings).find([one, two, other]) == answers
    assert shelf(settings).known([one, two, other]) == {one, two}
    assert shelf(settings, "caption").find([one]) == {}


def test_put_twice_is_put_once(settings: Settings) -> None:
    (key,) = checksums(1)
    for _ in range(2):
        shelf(settings).put({key: {"text": "hello"}})
    assert shelf(settings).find([key]) == {key: {"text": "hello"}}
    packed = shelf(settings).pack()
    assert (packed.files_before, packed.files_after) == (2, 1)
    assert shelf(settings).find([key]) == {key: {"text": "hello"}}


def test_a_vector_comes_back_as_it_was_and_is_kept_as_its_bytes(settings: Settings) -> None:
    vector = np.random.default_rng(1).standard_normal(384).astype(np.float32)
    of_text, of_picture, none = checksums(3)
    answers = {
        of_text: {"vector": vector, "cost": 0.25},
        of_picture: {"row": {"vector": vector.tolist(), "model_seconds": 0.5}},
        none: {"row": {"vector": [], "text": "x" * 1_000, "segments": [{"text": "ü", "start_ms": 0}]}},
    }
    shelf(settings).put(answers)
    for packed in (False, True):
        found = shelf(settings).find(answers)
        assert found[of_text]["vector"].dtype == np.float32 and found[of_text]["cost"] == 0.25
        assert found[of_text]["vector"].tobytes() == vector.tobytes()
        assert found[of_picture]["row"].pop("vector").tobytes() == vector.tobytes()
        assert found[of_picture] == {"row": {"model_seconds": 0.5}}
        assert len(found[none]["row"].pop("vector")) == 0
        assert found[none]["row"] == {"text": "x" * 1_000, "segments": [{"text": "ü", "start_ms": 0}]}
        assert any(data.count(vector.tobytes()) == 2 for data in stored(open_memo(settings)).values())
        if not packed:
            shelf(settings).put({checksums(4)[3]: {"text": "more"}})
            shelf(settings).pack()


def test_packing_leaves_one_object_and_every_answer(settings: Settings) -> None:
    keys = checksums(1_200)
    for start in range(0, 1_200, 100):
        shelf(settings).put({key: {"text": key} for key in keys[start : start + 100]})
    shelf(settings).pack()
    shelf(settings).put({"f" * 64: {"text": "later"}})
    memo = open_memo(settings)
    assert [size.objects for size in memo.sizes()] == [2]
    assert memo.shelf("transcribe", PRINT).find([*keys, "f" * 64]) == {
        **{key: {"text": key} for key in keys},
        "f" * 64: {"text": "later"},
    }
    assert memo.shelf("transcribe", PRINT).find(["0" * 64, "e" * 64]) == {}


def test_a_reader_who_looked_before_the_packing_still_finds_what_he_knew(settings: Settings) -> None:
    keys = checksums(4)
    shelf(settings).put({key: {"n": 1} for key in keys[:2]})
    memo = open_memo(settings)
    early = memo.shelf("transcribe", PRINT)
    assert len(early.find(keys)) == 2
    shelf(settings).put({key: {"n": 1} for key in keys[2:]})
    shelf(settings).pack()
    assert early.find(keys).keys() >= set(keys[:2])
    memo.refresh()
    assert len(early.find(keys)) == 4


def test_what_is_forgotten_is_gone_from_every_shelf_and_every_byte(settings: Settings) -> None:
    keys = checksums(4)
    for step in ("transcribe", "caption"):
        for packed in (False, True):
            shelf(settings, step).put({key: {"text": f"secret {key}"} for key in keys[2 * packed : 2 * packed + 2]})
            if packed:
                shelf(settings, step).pack()
    memo = open_memo(settings)
    assert memo.forget([keys[0], keys[3]]) == 4
    assert set(memo.shelf("caption", PRINT).find(keys)) == {keys[1], keys[2]}
    told = b"".join(name.encode() + data for name, data in stored(memo).items())
    for key in (keys[0], keys[3]):
        assert not any(form in told for form in (key.encode(), bytes.fromhex(key), key[:8].encode()))


def test_a_look_reads_what_it_asks_for_and_not_the_shelf(settings: Settings) -> None:
    keys = checksums(6_000)
    vectors = np.random.default_rng(2).standard_normal((len(keys), 384)).astype(np.float32)
    writer = shelf(settings)
    for start in range(0, len(keys), 1_000):
        writer.put({key: {"vector": vectors[start + n]} for n, key in enumerate(keys[start : start + 1_000])})
    writer.pack()
    memo = open_memo(settings)
    found = memo.shelf("transcribe", PRINT).find(keys[10:20])
    assert all(found[key]["vector"].tobytes() == vectors[n].tobytes() for n, key in enumerate(keys[10:20], 10))
    assert memo.files.bytes_read < 250_000, "of 9 MB"
    held = memo._cache.bytes
    read = memo.files.bytes_read
    assert memo.shelf("transcribe", PRINT).find([hashlib.sha256(b"unknown").hexdigest()]) == {}
    assert memo.shelf("transcribe", PRINT).known(keys) == set(keys)
    assert held <= memo._cache.bytes < 200_000 and memo.files.bytes_read - read < 1_500_000


def test_small_files_that_cannot_hold_what_is_asked_for_are_not_opened(settings: Settings) -> None:
    keys = checksums(30)
    for key in keys[:20]:
        shelf(settings).put({key: {"text": "x" * 5_000}})
    memo = open_memo(settings)
    assert memo.shelf("transcribe", PRINT).find(keys[20:]) == {}
    assert memo.files.bytes_read == 0
    assert set(memo.shelf("transcribe", PRINT).find(keys[:2])) == set(keys[:2])
    assert memo.files.bytes_read < 2 * 6_000


def test_a_worker_that_puts_one_by_one_leaves_few_files(settings: Settings) -> None:
    writer, keys = shelf(settings), checksums(300)
    for key in keys:
        writer.put({key: {"text": key}})
    assert writer.find(keys) == {key: {"text": key} for key in keys}
    (size,) = open_memo(settings).sizes()
    assert size.objects < 3 * memo_shelf.OWN_FILES
    assert len(shelf(settings).find(keys)) == 300


def test_what_short_lived_workers_left_does_not_pile_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo_shelf, "SMALL_FILES_MOST", 20)
    keys = checksums(60)
    for key in keys:
        worker = shelf(settings)
        worker.find([key])
        worker.put({key: {"text": key}})
    (size,) = open_memo(settings).sizes()
    assert size.objects <= 21
    assert len(shelf(settings).find(keys)) == 60


def test_packing_again_rewrites_what_is_new_and_leaves_what_is_large(settings: Settings, tiny_files: None) -> None:
    keys, made = checksums(900), set[str]()
    for round_ in range(18):
        fresh = keys[50 * round_ : 50 * round_ + 50]
        shelf(settings).put({key: {"text": key[:16]} for key in fresh})
        shelf(settings).put({fresh[0]: {"text": fresh[0][:16]}})
        before = set(stored(open_memo(settings)))
        shelf(settings).pack()
        after = set(stored(open_memo(settings)))
        made |= after - before
        assert set(shelf(settings).find(keys[: 50 * round_ + 50])) == set(keys[: 50 * round_ + 50])
    answers = [int(name.rpartition("/")[2].split("-")[3][1:]) for name in made]
    # Without sizes that wait for their like it would be 9 times each, and ever more.
    assert sum(answers) <= 3 * len(keys)
    runs = {name.split("-")[1] for name in stored(open_memo(settings))}
    assert len(runs) <= 2 * memo_pack.FAN_IN


def test_keys_that_begin_alike_are_told_apart(settings: Settings, tiny_files: None) -> None:
    keys = [
        f"{'00000001' if n % 3 else '0000000f'}{number}" for n, number in enumerate(k[8:] for k in checksums(3_000))
    ]
    for start in range(0, len(keys), 1_500):
        shelf(settings).put({key: {"text": key} for key in keys[start : start + 1_500]})
    for _ in range(2):
        assert shelf(settings).find(keys) == {key: {"text": key} for key in keys}
        assert shelf(settings).find(["00000001" + "f" * 56, "0" * 64, "f" * 64]) == {}
        shelf(settings).pack()


def put_as_before(memo: Memo, name: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
    """As 0.1 wrote its files."""
    if name.endswith(".jsonl"):
        lines = (json.dumps({"checksum": key, "result": value}, ensure_ascii=False) for key, value in answers.items())
        memo.store.put(name, "\n".join(lines).encode())
        return
    order, buffer = sorted(answers), io.BytesIO()
    texts = [json.dumps(answers[checksum], ensure_ascii=False) for checksum in order]
    pq.write_table(pa.table({"checksum": order, "result": texts}), buffer, row_group_size=500, compression="zstd")
    memo.store.put(name, buffer.getvalue())


def test_answers_from_before_are_found_and_brought_over(settings: Settings) -> None:
    keys, memo = checksums(1_300), open_memo(settings)
    vector = np.arange(4, dtype=np.float32)
    old = {key: {"vector": base64.b64encode(vector.tobytes()).decode(), "cost": 0.0} for key in keys[:1_200]}
    put_as_before(memo, f"{PLACE}/{'f' * 32}.parquet", old)
    put_as_before(memo, f"{PLACE}/{'0' * 32}.jsonl", {key: {"text": "lóose\u2028"} for key in keys[1_200:1_210]})
    shelf(settings).put({key: {"text": "new"} for key in keys[1_210:1_220]})
    for packed in (False, True):
        found = shelf(settings).find(keys)
        assert len(found) == 1_220
        assert all(found[key]["vector"].tobytes() == vector.tobytes() for key in keys[:1_200])
        assert found[keys[1_205]] == {"text": "lóose\u2028"} and found[keys[1_215]] == {"text": "new"}
        assert shelf(settings).known(keys) == set(found)
        if not packed:
            # Whether it was free then nobody knows any more.
            assert shelf(settings).pack(drop_before=DAY + 9_999).dropped == 0
            assert all(name.endswith(".answers") for name in stored(memo))
    assert memo.forget(keys[:1]) == 1 and len(shelf(settings).find(keys)) == 1_219


def test_one_old_file_alone_is_brought_over_too(settings: Settings) -> None:
    (key,) = checksums(1)
    put_as_before(open_memo(settings), f"{PLACE}/{'a' * 32}.jsonl", {key: {"text": "x"}})
    assert shelf(settings).plan().objects == 1
    shelf(settings).pack()
    assert [name.endswith(".answers") for name in stored(open_memo(settings))] == [True]
    assert shelf(settings).plan().objects == 0


def test_free_answers_go_when_they_are_old_and_paid_ones_stay(settings: Settings) -> None:
    keys = checksums(40)
    old, older = NOW - timedelta(days=10), NOW - timedelta(days=20)
    for moment, begin in ((older, 0), (old, 10), (NOW, 20)):
        shelf(settings, now=moment).put({key: {"text": "free"} for key in keys[begin : begin + 10]}, paid=False)
    shelf(settings, now=older).put({key: {"text": "paid"} for key in keys[30:]}, paid=True)
    # Once more, later, or for money: it is kept for as long as the better of the two.
    shelf(settings, now=NOW).put({keys[0]: {"text": "free"}}, paid=False)
    shelf(settings, now=older).put({keys[1]: {"text": "paid"}})
    assert shelf(settings).plan(drop_before=DAY - 5).drop >= 18
    assert len(shelf(settings).find(keys)) == 40, "a plan changes nothing"
    assert shelf(settings).pack(drop_before=DAY - 5).dropped == 18
    assert set(shelf(settings).find(keys)) == {*keys[:2], *keys[20:]}
    assert shelf(settings).plan(drop_before=DAY - 5).drop == 0
    assert shelf(settings).pack(drop_before=DAY + 1).dropped == 11
    assert set(shelf(settings).find(keys)) == {keys[1], *keys[30:]}


def test_a_large_file_is_rewritten_for_what_it_loses_when_that_is_half(settings: Settings, tiny_files: None) -> None:
    keys = checksums(40)
    for moment, some in ((NOW - timedelta(days=9), keys[:25]), (NOW, keys[25:])):
        shelf(settings, now=moment).put({key: {"text": "free"} for key in some}, paid=False)
    shelf(settings).pack()
    before = set(stored(open_memo(settings)))
    assert shelf(settings).pack(drop_before=DAY - 20).dropped == 0
    assert set(stored(open_memo(settings))) == before
    assert shelf(settings).plan(drop_before=DAY - 5).drop == 25
    assert shelf(settings).pack(drop_before=DAY - 5).dropped == 25
    assert set(shelf(settings).find(keys)) == set(keys[25:])
    # All of it gone, nothing is left.
    assert shelf(settings).pack(drop_before=DAY + 5).dropped == 15
    assert stored(open_memo(settings)) == {}


def test_damaged_bytes_are_no_answer(settings: Settings) -> None:
    one, two = checksums(2)
    shelf(settings).put({one: {"text": "first one"}, two: {"text": "second one"}})
    memo = open_memo(settings)
    ((name, data),) = stored(memo).items()
    memo.store.put(name, data.replace(b"first", b"fiRst"))
    assert shelf(settings).find([one, two]) == {two: {"text": "second one"}}


def test_a_packed_file_is_listed_behind_its_parts(settings: Settings) -> None:
    """In a bucket names come in order: who misses a part because it was deleted comes to the packed file later."""
    keys = checksums(6)
    put_as_before(open_memo(settings), f"{PLACE}/{'f' * 32}.jsonl", {keys[0]: {"text": "x"}})
    for key in keys[1:]:
        shelf(settings).put({key: {"text": "x"}})
        parts = set(stored(open_memo(settings)))
        shelf(settings).pack()
        (packed,) = stored(open_memo(settings))
        assert packed > max(parts)
    shelf(settings).forget(keys[:1])
    (without,) = stored(open_memo(settings))
    assert without > packed


_PACK = """
import json, sys
from pathlib import Path
from headwater.settings import resolve
from headwater.storage.memo import merge as memo_merge, pack as memo_pack
from headwater.storage.memo.memo import open_memo
memo_merge.FILE_BYTES = memo_pack.FILE_BYTES = 20_000
memo_pack.SMALL_RUN = 10_000
settings = resolve(Path(sys.argv[1]), {}, json.loads(sys.argv[2]), {})
for _ in range(int(sys.argv[3])):
    open_memo(settings).pack()
"""


def packing(settings: Settings, times: int = 1, fault: str = "") -> "subprocess.Popen[bytes]":
    names = ("memo.uri", "s3.endpoint", "s3.access_key", "s3.secret_key")
    told = json.dumps({name: settings[name] for name in names})
    environment = {**os.environ, "HEADWATER_FAULT": fault} if fault else None
    return subprocess.Popen([sys.executable, "-c", _PACK, str(settings.lake), told, str(times)], env=environment)


def test_a_packing_that_is_killed_loses_nothing_and_the_next_one_goes_on(settings: Settings) -> None:
    keys = checksums(1_000)
    for start in range(0, 1_000, 100):
        shelf(settings).put({key: {"text": key} for key in keys[start : start + 100]})
    for fault in ("memo.merged", "memo.merged:3"):
        with packing(settings, fault=fault) as killed:
            assert killed.wait() == -signal.SIGKILL
        assert len(shelf(settings).find(keys)) == 1_000
    with packing(settings) as done:
        assert done.wait() == 0
    assert shelf(settings).find(keys) == {key: {"text": key} for key in keys}
    (size,) = open_memo(settings).sizes()
    assert size.bytes < 300_000, "no answer is there more than a few times"


def test_looks_beside_packings_never_miss_what_was_there(settings: Settings) -> None:
    """Two that pack all the time, one that puts, and a look after each put."""
    keys, writer = checksums(60 if "://" in settings.text("memo.uri") else 400), shelf(settings)
    with packing(settings, 1_000) as one, packing(settings, 1_000) as other:
        try:
            for number, key in enumerate(keys):
                writer.put({key: {"text": key}})
                some = [keys[n] for n in range(0, number + 1, 7)]
                assert set(shelf(settings).find(some)) == set(some)
                if number % 20 == 0:
                    assert shelf(settings).known(keys) == set(keys[: number + 1])
        finally:
            one.kill()
            other.kill()
    assert shelf(settings).find(keys) == {key: {"text": key} for key in keys}
