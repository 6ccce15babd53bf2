"""Raw store: one behaviour suite, run against every adapter.

The S3 arm runs when HEADWATER_TEST_S3 names a server: http://access:secret@127.0.0.1:9000
"""

import hashlib
import io
import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.domain.pointer import Pointer
from headwater.errors import Conflict, DataFault, HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.settings import Settings, Value, resolve
from headwater.storage.raw_directory import INCOMING, DirectoryRawStore
from headwater.storage.raw_store import RawStore, open_raw_store

PART_BYTES = 5 << 20
KEY = "audio/acme/2026-01-31/call.wav"
LARGE = os.urandom(1 << 20) * 11 + b"tail"


def _settings(lake: Path, **options: Value) -> Settings:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return resolve(lake, {}, {"raw.part_bytes": PART_BYTES, **named}, {})


def _open_s3(lake: Path, url: str) -> RawStore:
    import boto3

    parts = urlsplit(url)
    endpoint = f"{parts.scheme}://{parts.hostname}:{parts.port}"
    key, secret = parts.username or "access", parts.password or "secret"
    bucket = f"headwater-{uuid.uuid4().hex[:12]}"
    session = boto3.Session(key, secret, region_name="us-east-1")
    session.client("s3", endpoint_url=endpoint).create_bucket(Bucket=bucket)
    options = {"s3__endpoint": endpoint, "s3__access_key": key, "s3__secret_key": secret}
    return open_raw_store(f"s3://{bucket}/some/prefix", _settings(lake, **options))


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RawStore:
    if request.param == "directory":
        return open_raw_store(str(tmp_path / "raw"), _settings(tmp_path))
    url = os.environ.get("HEADWATER_TEST_S3")
    if not url:
        pytest.skip("HEADWATER_TEST_S3 names no server")
    return _open_s3(tmp_path, url)


@pytest.fixture
def directory(tmp_path: Path) -> DirectoryRawStore:
    return DirectoryRawStore(tmp_path / "raw")


def _put_small(store: RawStore, key: str, data: bytes) -> Pointer:
    return store.put_bytes(key, data, "audio/wav")


def _put_streamed(store: RawStore, key: str, data: bytes) -> Pointer:
    return store.put_stream(key, io.BytesIO(data), "audio/wav")


Put = Callable[[RawStore, str, bytes], Pointer]
BOTH_WAYS = pytest.mark.parametrize("put", [_put_small, _put_streamed])
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
            return _put_streamed(store, KEY, bytes([racer]) * size)
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


def test_a_missing_object_is_named_as_such(store: RawStore) -> None:
    pointer = Pointer(KEY, 3, "audio/wav", "0" * 64)
    with pytest.raises(DataFault) as fault:
        store.get(pointer)
    assert fault.value.reason == "MISSING_OBJECT"
    assert store.head(KEY) is None
    with pytest.raises(NotFound):
        list(store.chunks(KEY))


def test_a_pointer_that_lies_about_bytes_or_size_is_a_data_fault(store: RawStore) -> None:
    pointer = _put_small(store, KEY, b"abc")
    for lie in (
        Pointer(KEY, 3, "audio/wav", "0" * 64),
        Pointer(KEY, 1 << 50, "audio/wav", pointer.checksum),
        Pointer(KEY, 2, "audio/wav", pointer.checksum),
    ):
        with pytest.raises(DataFault) as fault:
            store.get(lie)
        assert fault.value.reason == "CORRUPT"


def test_a_pointer_may_name_a_stretch_of_an_object(store: RawStore) -> None:
    _put_small(store, KEY, b"0123456789")
    assert store.get(Pointer(KEY, 3, "audio/wav", hashlib.sha256(b"345").hexdigest(), offset=3)) == b"345"


def test_listing_goes_by_whole_parts_and_tells_sizes(store: RawStore) -> None:
    keys = ["audio/acme/2026-01-31/a.wav", "audio/acme/2026-02-01/b%20c@+=~.wav", "images/acme/2026-01-31/a.png"]
    for number, key in enumerate(keys):
        _put_small(store, key, b"x" * number)
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
        lambda: _put_small(store, key, b"x"),
        lambda: store.head(key),
        lambda: list(store.chunks(key)),
        lambda: store.get(Pointer(key, 1, "audio/wav", "0" * 64)),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest):
            call()


def test_an_unknown_scheme_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="s3://bucket/prefix"):
        open_raw_store("gopher://bucket", _settings(tmp_path))


def test_an_s3_server_that_does_not_answer_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.raw_s3.RETRY_SECONDS", 0.2)
    options: dict[str, Value] = {
        "s3__endpoint": "http://127.0.0.1:9",
        "s3__access_key": "a",
        "s3__secret_key": "s3cret",
    }
    store = open_raw_store("s3://bucket/prefix", _settings(tmp_path, **options))
    with pytest.raises(Unavailable, match=r"s3\.endpoint") as raised:
        store.head(KEY)
    assert "s3cret" not in str(raised.value)


def test_a_local_object_is_read_only_and_decoders_can_open_it(directory: DirectoryRawStore) -> None:
    _put_small(directory, KEY, b"abc")
    path = directory.local_path(KEY)
    assert path is not None
    assert path.read_bytes() == b"abc"
    assert path.stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("damage", [b"abX", b"ab", b""])
def test_damaged_bytes_are_reported_and_never_served(directory: DirectoryRawStore, damage: bytes) -> None:
    pointer = _put_small(directory, KEY, b"abc")
    path = directory.root / KEY
    path.chmod(0o644)
    path.write_bytes(damage)
    with pytest.raises(DataFault) as fault:
        directory.get(pointer)
    assert fault.value.reason == "CORRUPT"


@pytest.mark.parametrize("linked", ["audio", "audio/acme", KEY])
def test_no_link_below_the_root_is_followed(directory: DirectoryRawStore, tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    secret = outside / Path(KEY).relative_to("audio")
    secret.parent.mkdir(parents=True)
    secret.write_bytes(b"secret")
    link = directory.root / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / Path(linked).relative_to("audio"))
    with pytest.raises(DataFault, match="MISSING_OBJECT"):
        directory.get(Pointer(KEY, 6, "audio/wav", hashlib.sha256(b"secret").hexdigest()))
    with pytest.raises(Conflict):
        _put_small(directory, KEY, b"secret")
    with pytest.raises(Conflict):
        _put_small(directory, f"{linked}/new.wav", b"secret")
    assert directory.head(KEY) is None
    assert list(directory.list()) == []
    assert [path for path in outside.rglob("*") if path.is_file()] == [secret]


def test_an_object_in_the_way_of_a_directory_is_a_conflict(directory: DirectoryRawStore) -> None:
    _put_small(directory, "audio/acme/name", b"x")
    with pytest.raises(Conflict):
        _put_small(directory, "audio/acme/name/below", b"x")
    with pytest.raises(Conflict):
        _put_small(directory, "audio/acme", b"x")


def test_a_full_disk_keeps_nothing_and_works_again_once_there_is_room(directory: DirectoryRawStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(Unavailable, match="space"):
            _put_streamed(directory, KEY, LARGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(directory.list()) == []
    assert list((directory.root / INCOMING).iterdir()) == []
    assert directory.get(_put_streamed(directory, KEY, LARGE)) == LARGE


_KILLED = """
import io, os, signal, sys
from pathlib import Path
from headwater.storage.raw_directory import DirectoryRawStore
class Deadly(io.BytesIO):
    def read(self, size=-1):
        if self.tell() >= 3 << 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(size)
DirectoryRawStore(Path(sys.argv[1])).put_stream(sys.argv[2], Deadly(bytes(8 << 20)), "audio/wav")
"""


def test_a_killed_writer_leaves_nothing_visible_and_its_scraps_are_swept(directory: DirectoryRawStore) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, str(directory.root), KEY], check=False)
    assert done.returncode == -9
    assert directory.head(KEY) is None
    (scrap,) = (directory.root / INCOMING).iterdir()
    os.utime(scrap, (time.time() - 3600,) * 2)
    assert _put_small(directory, KEY, b"abc").size == 3
    assert not scrap.exists()


def test_a_large_object_is_stored_in_bounded_memory(directory: DirectoryRawStore) -> None:
    class Zeros(io.RawIOBase):
        left = 256 << 20

        def read(self, size: int = -1, /) -> bytes:
            given = min(size, self.left)
            self.left -= given
            return bytes(given)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pointer = directory.put_stream(KEY, Zeros(), "audio/wav")  # type: ignore[arg-type]
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert pointer.size == 256 << 20
    assert grown_kb < 32 << 10


def test_every_error_of_the_store_is_one_of_the_six_kinds(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("a file where the store should be")
    store = DirectoryRawStore(tmp_path / "raw")
    for call in (lambda: _put_small(store, KEY, b"x"), lambda: list(store.list()), lambda: list(store.chunks(KEY))):
        with pytest.raises(HeadwaterError):
            call()
