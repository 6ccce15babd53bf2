"""What a raw store promises, wherever it is: a key is written once, bytes come back as they were or not at all.

The file that imports these tests gives the fixture `store`: an empty one that takes parts of `PART_BYTES`.
"""

import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.domain.pointer import Pointer
from headwater.errors import Conflict, DataFault, InvalidRequest, NotFound, Unavailable
from headwater.storage.raw.store import RawStore

PART_BYTES = 5 << 20
KEY = "audio/acme/2026-01-31/call.wav"
LARGE = os.urandom(1 << 20) * 11 + b"tail"


def put_small(store: RawStore, key: str, data: bytes) -> Pointer:
    return store.put_bytes(key, data, "audio/wav")


def put_streamed(store: RawStore, key: str, data: bytes) -> Pointer:
    return store.put_stream(key, io.BytesIO(data), "audio/wav")


Put = Callable[[RawStore, str, bytes], Pointer]
BOTH_WAYS = pytest.mark.parametrize("put", [put_small, put_streamed])
SIZES = pytest.mark.parametrize("data", [b"", b"x", LARGE[:PART_BYTES], LARGE], ids=["empty", "one", "part", "large"])


@BOTH_WAYS
@SIZES
def test_what_is_put_is_got_back_and_the_pointer_says_its_size_and_checksum(
    store: RawStore, put: Put, data: bytes
) -> None:
    pointer = put(store, KEY, data)
    assert (pointer.path, pointer.size, pointer.content_type) == (KEY, len(data), "audio/wav")
    assert pointer.checksum == hashlib.sha256(data).hexdigest()
    assert store.get(pointer) == data
    assert b"".join(store.chunks(KEY)) == data


@BOTH_WAYS
@SIZES
def test_the_same_bytes_twice_are_one_object_and_one_pointer(store: RawStore, put: Put, data: bytes) -> None:
    assert put(store, KEY, data) == put(store, KEY, data)
    assert [found.path for found in store.list()] == [KEY]


@BOTH_WAYS
@pytest.mark.parametrize("first, second", [(b"old", b"new"), (LARGE, b"new"), (b"old", LARGE), (LARGE, LARGE + b"!")])
def test_other_bytes_are_refused_with_the_way_out_and_the_original_stays(
    store: RawStore, put: Put, first: bytes, second: bytes
) -> None:
    pointer = put(store, KEY, first)
    with pytest.raises(Conflict, match="--id"):
        put(store, KEY, second)
    assert store.get(pointer) == first


@pytest.mark.parametrize("size", [1_000, len(LARGE)])
def test_of_many_racers_with_different_bytes_exactly_one_wins(store: RawStore, size: int) -> None:
    def race(racer: int) -> Pointer | None:
        try:
            return put_streamed(store, KEY, bytes([racer]) * size)
        except Conflict:
            return None

    with ThreadPoolExecutor(6) as pool:
        winners = [pointer for pointer in pool.map(race, range(6)) if pointer]
    assert len(winners) == 1
    assert len(store.get(winners[0])) == size


def test_a_stream_that_fails_half_way_leaves_nothing(store: RawStore) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > PART_BYTES + 100:
                raise ConnectionResetError("the sender went away")
            return super().read(size)

    with pytest.raises((ConnectionResetError, Unavailable)):
        store.put_stream(KEY, Breaking(LARGE), "audio/wav")
    assert store.head(KEY) is None
    assert list(store.list()) == []


def test_what_is_deleted_is_gone_with_its_name_free_and_twice_is_once(store: RawStore) -> None:
    kept, gone = put_small(store, KEY + ".kept", b"kept"), put_streamed(store, KEY, LARGE)
    for _ in range(2):
        store.delete(gone.path)
        assert [found.path for found in store.list()] == [kept.path]
    with pytest.raises(DataFault):
        store.get(gone)
    assert store.get(put_small(store, KEY, b"another")) == b"another"


def test_a_missing_object_is_named_as_such(store: RawStore) -> None:
    pointer = Pointer(KEY, 3, "audio/wav", "0" * 64)
    with pytest.raises(DataFault) as fault:
        store.get(pointer)
    assert fault.value.reason == "MISSING_OBJECT"
    assert store.head(KEY) is None
    with pytest.raises(NotFound):
        list(store.chunks(KEY))


def test_a_pointer_that_lies_about_bytes_or_size_is_a_data_fault(store: RawStore) -> None:
    pointer = put_small(store, KEY, b"abc")
    for lie in (
        Pointer(KEY, 3, "audio/wav", "0" * 64),
        Pointer(KEY, 1 << 50, "audio/wav", pointer.checksum),
        Pointer(KEY, 2, "audio/wav", pointer.checksum),
    ):
        with pytest.raises(DataFault) as fault:
            store.get(lie)
        assert fault.value.reason == "CORRUPT"


def test_a_pointer_may_name_a_stretch_of_an_object(store: RawStore) -> None:
    put_small(store, KEY, b"0123456789")
    assert store.get(Pointer(KEY, 3, "audio/wav", hashlib.sha256(b"345").hexdigest(), offset=3)) == b"345"


@pytest.mark.parametrize("data", [b"0123456789", LARGE], ids=["small", "large"])
def test_a_stretch_is_read_without_the_rest_and_ends_where_the_object_ends(store: RawStore, data: bytes) -> None:
    put_streamed(store, KEY, data)
    for offset, size in ((0, 4), (3, 4), (3, len(data)), (len(data), 5), (len(data) + 7, 5), (2, 0), (0, len(data))):
        assert b"".join(store.chunks(KEY, offset, size)) == data[offset : offset + size]
    with pytest.raises(NotFound):
        list(store.chunks(KEY + ".not", 3, 4))


def test_listing_goes_by_whole_parts_and_tells_sizes(store: RawStore) -> None:
    keys = ["audio/acme/2026-01-31/a.wav", "audio/acme/2026-02-01/b%20c@+=~.wav", "images/acme/2026-01-31/a.png"]
    for number, key in enumerate(keys):
        put_small(store, key, b"x" * number)
    assert sorted((found.path, found.size) for found in store.list()) == list(zip(keys, range(3), strict=True))
    assert [found.path for found in store.list("audio/acme/2026-02-01")] == keys[1:2]
    assert list(store.list("aud")) == []
    head = store.head(keys[1])
    assert head is not None
    assert (head.path, head.size) == (keys[1], 1)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a//b",
        "a/./b",
        "a\x00b",
        "a\nb",
        "a\\..\\b",
        ".incoming/x",
        "b" * 2000,
        "\ud800/x",
    ],
)
def test_a_key_that_could_lead_astray_is_refused_by_every_method(store: RawStore, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: put_small(store, key, b"x"),
        lambda: store.head(key),
        lambda: list(store.chunks(key)),
        lambda: store.get(Pointer(key, 1, "audio/wav", "0" * 64)),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest):
            call()


def test_listing_while_others_write_shows_whole_objects_and_misses_none_that_was_there(store: RawStore) -> None:
    there = {f"audio/acme/2026-01-31/{number}.wav" for number in range(20)}
    for key in there:
        put_small(store, key, b"old")

    def write(number: int) -> None:
        put_small(store, f"audio/acme/2026-02-01/{number}.wav", b"new")

    def look(_: int) -> list[tuple[str, int]]:
        return [(found.path, found.size) for found in store.list("audio/acme")]

    with ThreadPoolExecutor(6) as pool:
        writing = [pool.submit(write, number) for number in range(60)]
        for listed in pool.map(look, range(12)):
            assert there <= {path for path, _ in listed}
            assert {size for _, size in listed} == {3}
        for done in writing:
            done.result()
    assert len(list(store.list("audio"))) == 80
