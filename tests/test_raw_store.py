"""Raw objects in a directory: no link is followed, nothing is left by a writer that died; and the choice by URI."""

import hashlib
import io
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from behaviour_raw_store import *  # noqa: F403
from behaviour_raw_store import KEY, LARGE, PART_BYTES, put_small, put_streamed

from headwater.domain.pointer import Pointer
from headwater.errors import Conflict, DataFault, HeadwaterError, InvalidRequest, Unavailable
from headwater.setting import Value
from headwater.settings import Settings, resolve
from headwater.storage.raw.directory_store import INCOMING, DirectoryRawStore
from headwater.storage.raw.store import RawStore, open_raw_store


def _settings(lake: Path, **options: Value) -> Settings:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return resolve(lake, {}, {"raw.part_bytes": PART_BYTES, **named}, {})


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    return open_raw_store(str(tmp_path / "raw"), _settings(tmp_path))


@pytest.fixture
def directory(tmp_path: Path) -> DirectoryRawStore:
    return DirectoryRawStore(tmp_path / "raw")


def test_an_unknown_scheme_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="s3://bucket/prefix"):
        open_raw_store("gopher://bucket", _settings(tmp_path))


def test_an_s3_server_that_does_not_answer_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.io.s3.RETRY_SECONDS", 0.2)
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
    put_small(directory, KEY, b"abc")
    file = directory.open_local(KEY)
    assert file is not None
    with file:
        (directory.root / KEY).unlink()
        path = Path(f"/proc/self/fd/{file.fileno()}")
        assert path.read_bytes() == b"abc", "whatever its name stands for by now"
        assert path.stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("damage", [b"abX", b"ab", b""])
def test_damaged_bytes_are_reported_and_never_served(directory: DirectoryRawStore, damage: bytes) -> None:
    pointer = put_small(directory, KEY, b"abc")
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
        put_small(directory, KEY, b"secret")
    with pytest.raises(Conflict):
        put_small(directory, f"{linked}/new.wav", b"secret")
    assert directory.head(KEY) is None
    assert list(directory.list()) == []
    assert [path for path in outside.rglob("*") if path.is_file()] == [secret]


def test_an_object_in_the_way_of_a_directory_is_a_conflict(directory: DirectoryRawStore) -> None:
    put_small(directory, "audio/acme/name", b"x")
    with pytest.raises(Conflict):
        put_small(directory, "audio/acme/name/below", b"x")
    with pytest.raises(Conflict):
        put_small(directory, "audio/acme", b"x")


def test_a_full_disk_keeps_nothing_and_works_again_once_there_is_room(directory: DirectoryRawStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(Unavailable, match="space"):
            put_streamed(directory, KEY, LARGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(directory.list()) == []
    assert list((directory.root / INCOMING).iterdir()) == []
    assert directory.get(put_streamed(directory, KEY, LARGE)) == LARGE


_KILLED = """
import io, os, signal, sys
from pathlib import Path
from headwater.storage.raw.directory_store import DirectoryRawStore
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
    assert put_small(directory, KEY, b"abc").size == 3
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
    for call in (lambda: put_small(store, KEY, b"x"), lambda: list(store.list()), lambda: list(store.chunks(KEY))):
        with pytest.raises(HeadwaterError):
            call()
