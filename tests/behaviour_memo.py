"""What a memo promises wherever it is: what was put is found, whoever looks, packed or not, until it is forgotten.

The file that imports these tests gives the fixture `settings`: of a lake whose memo is empty.
"""

import hashlib

from headwater.settings import Settings
from headwater.storage.memo import Shelf, open_memo

PRINT = "feed0123feed0123"


def shelf(settings: Settings, step: str = "transcribe") -> Shelf:
    """As another worker sees it: nothing is held from before."""
    return open_memo(settings).shelf(step, PRINT)


def checksums(count: int) -> list[str]:
    return [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]


def test_what_was_put_is_found_by_everybody_and_nothing_else_is(settings: Settings) -> None:
    one, two, other = checksums(3)
    assert shelf(settings).find([one]) == {}
    # A line separator in a text is no end of a line of the file.
    answers = {one: {"text": "héllo\u2028\nthere"}, two: {"text": None}}
    shelf(settings).put(answers)
    assert shelf(settings).find([one, two, other]) == answers
    assert shelf(settings, "caption").find([one]) == {}


def test_put_twice_is_put_once(settings: Settings) -> None:
    (key,) = checksums(1)
    for _ in range(2):
        shelf(settings).put({key: {"text": "hello"}})
    assert shelf(settings).find([key]) == {key: {"text": "hello"}}
    assert shelf(settings).pack() == 1
    assert shelf(settings).find([key]) == {key: {"text": "hello"}}


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
    stored = [bytes(memo.store.get(item["path"]).bytes()) for page in memo.store.list() for item in page]
    assert not any(keys[0].encode() in data or keys[3].encode() in data for data in stored)
